"""Activation functions of transformers, some rows of a long text at a time.

Several of them are a formula of which every step makes another tensor of the widest kind that a pass has:
eight for GELU in GPT-2. A trace of 2,048 tokens took 310 to 460 MB so, with the holes that they left on the
heap, and takes 265 to 280 by rows.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from regard._lens._implementations import is_listening

ACTIVATED_AT_ONCE: Final = 64
"""So many rows at a time: with 3,072 entries, 0.8 MB, which stay in a core's own cache."""

_HOME = "transformers.activations"


def is_activation(module: nn.Module) -> bool:
    """Whether a module is one of transformers' activation functions, which go entry by entry."""
    return type(module).__module__ == _HOME


_LOCK = threading.Lock()


@contextmanager
def by_rows(activations: Iterable[nn.Module]) -> Iterator[None]:
    """For the time of a forward pass that somebody listens to; they are as they were at the end."""
    replaced = []
    try:
        for module in activations:
            with _LOCK:
                # One that has a forward of its own is somebody else's, or another pass's at the moment, and
                # then goes on as it is: the numbers are the same.
                if "forward" not in vars(module):
                    module.forward = partial(_by_rows, module.forward)
                    replaced.append(module)
        yield
    finally:
        for module in replaced:
            del module.forward


def _by_rows(forward: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    if args or kwargs or not isinstance(x, Tensor) or not _is_long(x):
        return forward(x, *args, **kwargs)
    made = torch.empty_like(x)
    rows, places = x.view(-1, x.shape[-1]), made.view(-1, x.shape[-1])
    for start in range(0, len(rows), ACTIVATED_AT_ONCE):
        part = rows[start : start + ACTIVATED_AT_ONCE]
        value = forward(part)
        if value.shape != part.shape or value.dtype != part.dtype:
            return forward(x)
        places[start : start + ACTIVATED_AT_ONCE] = value
    return made


def _is_long(x: Tensor) -> bool:
    return (
        is_listening()  # a pass of another thread goes on as it is
        and x.is_cpu
        and x.ndim > 1
        and x.is_contiguous()
        and x.numel() > ACTIVATED_AT_ONCE * x.shape[-1]
        and not torch.is_grad_enabled()
    )
