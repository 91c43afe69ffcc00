"""Small questions about tensors: where one lives, which positions are meant, its length, its fingerprint."""

import hashlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from regard.core.errors import InputError

# A name of its own, so that a test can put the CPU on the other side of each decision.
_CPU = "cpu"


# Numbers of a block elsewhere than on the CPU, where calls cost more than memory: 256 MB in float32.
ON_DEVICE = 2**26


def on_cpu(tensor: Tensor) -> bool:
    """Whether numbers can be looked at without waiting for a device, and torch's CPU kernels do the work.

    False while torch.compile traces, where a look would break the graph.
    """
    return tensor.device.type == _CPU and not torch.compiler.is_compiling()


def unit(x: Tensor) -> Tensor:
    """x / |x| over the last axis: of length 1 at any scale that the type holds; a vector of zeros stays one.

    The largest entry is divided out first. Of float32 the squares are infinite from 1.8e19 on, and x / inf
    is 0; below 1e-23 they are 0. An entry that is infinite or not a number makes the whole vector NaN.
    """
    # Divided by the largest entry first: the sum of squares neither overflows nor vanishes.
    largest = x.detach().abs().amax(dim=-1, keepdim=True)
    return torch.nn.functional.normalize(x / torch.where(largest > 0, largest, 1), dim=-1)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """The cosine of the angle between vectors, those of the last axis; 0 where one of them is zero."""
    # Each made of length 1 before: a product of lengths could overflow.
    return (unit(a) * unit(b)).sum(dim=-1)


Positions = range | Tensor
"""Some positions: a range, read without a copy where its step is 1, or an int64 tensor (n,) in any order."""


def check_positions(name: str, positions: Positions | None, length: int) -> Positions:
    """The positions asked for, all of them by default; InputError where one is not there."""
    if positions is None:
        return range(length)
    if isinstance(positions, Tensor):
        if positions.ndim != 1 or positions.dtype != torch.int64:
            raise InputError(
                f"{name} must be a range or an int64 tensor of shape (n,); "
                f"got {positions.dtype} of shape {tuple(positions.shape)}."
            )
        # The least and the largest tell whether all are in range.
        ends = [] if not len(positions) else [int(positions.min()), int(positions.max())]
    else:
        # The ends of a range do, whichever way it runs.
        ends = [] if not positions else [positions[0], positions[-1]]
    for end in ends:
        if not 0 <= end < length:
            raise InputError(f"{name} must be from 0 to {length - 1}; got {end}.")
    return positions


def take(tensor: Tensor, positions: Positions, dim: int) -> Tensor:
    """Some positions of an axis: a view where they are a plain range."""
    # The usual case: no numbers are made at all.
    if isinstance(positions, range) and positions.step == 1 and positions:
        return tensor.narrow(dim, positions.start, len(positions))
    return tensor.index_select(dim, as_tensor(positions, tensor.device))


def as_tensor(positions: Positions, device: torch.device) -> Tensor:
    """The positions as int64 (n,)."""
    if isinstance(positions, range):
        return torch.arange(positions.start, positions.stop, positions.step, device=device)
    return positions


def fingerprint(about: str, tensors: Iterable[tuple[str, Tensor]]) -> str:
    """The SHA-256 of a text, and of the names, shapes, types and bytes of tensors.

    Every byte is read, at about a gigabyte a second.
    """
    digest = hashlib.sha256(about.encode())
    for name, tensor in tensors:
        # Names, shapes and types too: the same bytes mean another thing in another shape.
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(_bytes_of(tensor))
    return digest.hexdigest()


def _bytes_of(tensor: Tensor) -> Any:
    # As bytes: numpy has no bfloat16.
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
