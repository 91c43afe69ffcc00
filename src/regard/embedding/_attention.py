"""Attention of short texts by a kernel of regard's own."""

from collections.abc import Callable
from functools import cache
from typing import Final

import torch
from torch import Tensor

from regard.embedding._llvm._attention import kernels, scratch_of
from regard.embedding._llvm._compiled import ADDRESS, NUMBER, compiled
from regard.embedding._llvm._target import Target, here
from regard.embedding._post_norm import TorchAttention

# By the lanes of a register: tokens of a text up to which it is faster than torch.
_LONGEST: Final = {16: 512, 8: 64}


class ShortAttention(TorchAttention):
    """The same sums; of short texts in one call, without their scores ever leaving the caches.

    Example:
        >>> qkv = torch.randn(2 * 5, 3, 4, 32)
        >>> made, expected = torch.empty(2 * 5, 4 * 32), torch.empty(2 * 5, 4 * 32)
        >>> ShortAttention()(qkv, made, 2, 5)
        >>> TorchAttention()(qkv, expected, 2, 5)
        >>> torch.allclose(made, expected, atol=1e-5)
        True
    """

    def __call__(self, qkv: Tensor, context: Tensor, rows: int, length: int) -> None:
        """See `TorchAttention`."""
        target, (_, _, heads, head_dim) = here(), qkv.shape
        lanes = target.lanes
        # Four registers for each query are as many as leave room for others.
        if length > _LONGEST[lanes] or head_dim % lanes or head_dim > 4 * lanes:
            super().__call__(qkv, context, rows, length)
            return
        scratch = torch.empty(scratch_of(target, head_dim, length))
        attend = _attend(target, head_dim)
        attend(qkv.data_ptr(), context.data_ptr(), rows, length, heads, scratch.data_ptr())


@cache
def _attend(target: Target, head_dim: int) -> Callable[..., None]:
    """The kernel; compiled once a process, which takes some 0.1 s."""
    return compiled(kernels(target, head_dim), "attend", *[ADDRESS] * 2, *[NUMBER] * 3, ADDRESS)
