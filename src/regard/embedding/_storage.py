"""Vectors of fewer entries, and of fewer bits each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from regard.core.errors import InputError, RegardError
from regard.embedding._steps import Step, Unit

Storage = Literal["float32", "float16", "int8", "ubinary"]
"""How the entries of a vector are stored."""

_INT8: Final = 127
"""The largest entry of a vector in int8; -128 has no counterpart."""

_FLOAT16: Final = float(np.finfo(np.float16).max)


def finished(
    vectors: Tensor,
    steps: Sequence[Step] = (),
    *,
    truncate_dim: int | None = None,
    normalize: bool | None = None,
) -> Tensor:
    """Pooled vectors, through the checkpoint's steps, cut, and brought to the length 1.

    Args:
        vectors: (..., d).
        steps: as in `SentenceSettings`.
        truncate_dim: how many entries are kept, from the first; None for all.
        normalize: True: vectors have the length 1 at the end. None: only where a step sees to it, and then
            before they are cut. False: never, and a step that does it at the end is left out.

    Returns:
        (..., truncate_dim).

    Raises:
        InputError: more entries are to be kept than there are, or none.

    Example:
        >>> import torch
        >>> finished(torch.tensor([[3.0, 4.0, 12.0]]), truncate_dim=2, normalize=True)
        tensor([[0.6000, 0.8000]])

    Source: the order is that of sentence-transformers' `encode`. Vectors that can be cut: Kusupati et al.
    2022, arXiv 2205.13147.
    """
    steps = tuple(steps)
    if normalize is False:
        while steps and isinstance(steps[-1], Unit):
            steps = steps[:-1]
    for step in steps:
        vectors = step(vectors)
    if truncate_dim is not None:
        if not 1 <= truncate_dim <= vectors.shape[-1]:
            raise InputError(
                f"truncate_dim must be from 1 to {vectors.shape[-1]}, the size of the vectors; "
                f"got {truncate_dim}."
            )
        vectors = vectors[..., :truncate_dim]
    return functional.normalize(vectors, dim=-1) if normalize else vectors


@dataclass(frozen=True, kw_only=True, eq=False)
class Packed:
    """Vectors in a smaller type.

    Args:
        vectors: float32, float16 or int8 (..., d); uint8 (..., ceil(d / 8)) of the storage "ubinary".
        scales: float32 (...), what the entries of each int8 vector are multiplied by to get the float32 ones
            back; None elsewhere.
    """

    vectors: NDArray[Any]
    scales: NDArray[np.float32] | None = None


def packed(vectors: Tensor | NDArray[Any], storage: Storage) -> Packed:
    """Vectors in a smaller type, each by itself: it does not depend on the others.

        float16    rounded to the nearest
        int8       round(127 x / max |x|), with the scale max |x| / 127; cosines lose some 1e-4
        ubinary    a bit for each entry, 1 where x > 0, eight to a byte, the first entry's highest; the last
                   byte is filled up with 0

    Args:
        vectors: (..., d).
        storage: a name above, or "float32".

    Returns:
        The vectors, and the scales of int8.

    Raises:
        InputError: an unknown storage, or an entry that float16 has no number for.
        RegardError: an entry that is infinite or not a number, in any storage.

    Example:
        >>> packed(np.array([[0.5, -1.0, 0.25]]), "int8").vectors
        array([[  64, -127,   32]], dtype=int8)
        >>> packed(np.array([[0.5, -1.0, 0.25]]), "ubinary").vectors
        array([[160]], dtype=uint8)

    Source: "ubinary" is that of sentence-transformers. Its int8 is another: it takes the ranges
    of each entry from a sample of vectors, so that a vector's numbers depend on the others'.
    """
    wide = vectors.detach().cpu().float().numpy() if isinstance(vectors, Tensor) else vectors
    wide = np.asarray(wide, dtype=np.float32)
    odd = len(wide) - int(np.isfinite(wide).all(axis=tuple(range(1, wide.ndim))).sum()) if wide.ndim else 0
    if odd:
        raise RegardError(
            f"{odd} of {len(wide)} vectors have numbers that are not finite: the model's weights are "
            "damaged, or its layers overflow; load another checkpoint."
        )
    match storage:
        case "float32":
            return Packed(vectors=wide)
        case "float16":
            if not bool((np.abs(wide) <= _FLOAT16).all()):
                raise InputError(
                    f"storage='float16' has no number for an entry above {_FLOAT16:g} in size; give "
                    "storage='float32'."
                )
            return Packed(vectors=wide.astype(np.float16))
        case "int8":
            largest = np.abs(wide).max(axis=-1, keepdims=True, initial=0.0)
            scales = largest / np.float32(_INT8)
            # A vector of zeros, or of numbers so small that their scale is none.
            steps = np.divide(wide, scales, out=np.zeros_like(wide), where=scales > 0)
            codes = np.clip(np.rint(steps), -_INT8, _INT8).astype(np.int8)
            return Packed(vectors=codes, scales=scales[..., 0])
        case "ubinary":
            return Packed(vectors=np.packbits(wide > 0, axis=-1))
    raise InputError(f"storage must be float32, float16, int8 or ubinary; got {storage!r}.")
