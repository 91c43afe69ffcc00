"""Attention and norms by kernels of regard's own."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby
from typing import Final

import torch
from torch import Tensor

from regard.embedding._arithmetic import Arithmetic
from regard.embedding._llvm import _attention, _norm
from regard.embedding._llvm._compiled import ADDRESS, NUMBER, REAL, compiled
from regard.embedding._llvm._target import Target, here

# By the lanes of a register: tokens of a text up to which attention is faster than torch's.
_LONGEST: Final = {16: 512, 8: 64}


class KernelArithmetic(Arithmetic):
    """The same sums: of short texts, attention in one call, without their scores ever leaving the caches.

    Example:
        >>> qkv, shape = torch.randn(2 * 5 + 3, 3, 4, 32), [(2, 5), (1, 3)]
        >>> made, expected = torch.empty(2 * 5 + 3, 4 * 32), torch.empty(2 * 5 + 3, 4 * 32)
        >>> ours = KernelArithmetic().attend(qkv, made, shape)
        >>> torch.allclose(ours, Arithmetic().attend(qkv, expected, shape), atol=1e-5)
        True
    """

    def attend(self, qkv: Tensor, context: Tensor, shape: Sequence[tuple[int, int]]) -> Tensor:
        """See `Arithmetic`."""
        target, (_, _, heads, head_dim) = here(), qkv.shape
        lanes = target.lanes
        # Four registers for each query are as many as leave room for others.
        takes = head_dim % lanes == 0 and head_dim <= 4 * lanes
        start = 0
        for is_short, group in groupby(shape, key=lambda run: takes and run[1] <= _LONGEST[lanes]):
            runs = list(group)
            tokens = slice(start, start + sum(rows * length for rows, length in runs))
            start = tokens.stop
            if not is_short:
                super().attend(qkv[tokens], context[tokens], runs)
                continue
            scratch = torch.empty(max(_attention.scratch_of(target, head_dim, length) for _, length in runs))
            pairs = torch.tensor(runs)
            addresses = (each.data_ptr() for each in (qkv[tokens], context[tokens], pairs))
            _attend(target, head_dim)(*addresses, len(runs), heads, scratch.data_ptr())
        return context

    def norm(self, x: Tensor, weight: Tensor, shift: Tensor, eps: float) -> Tensor:
        """See `Arithmetic`."""
        target, (rows, width) = here(), x.shape
        if width % (target.lanes * _norm.TOGETHER) or not x.is_contiguous():
            return super().norm(x, weight, shift, eps)
        _norms(target)(*(each.data_ptr() for each in (x, weight, shift)), rows, width, eps)
        return x


@cache
def _attend(target: Target, head_dim: int) -> Callable[..., None]:
    """The kernel; compiled once a process, which takes some 0.1 s."""
    module = _attention.kernels(target, head_dim)
    return compiled(module, "attend", *[ADDRESS] * 3, *[NUMBER] * 2, ADDRESS)


@cache
def _norms(target: Target) -> Callable[..., None]:
    """The kernel; compiled once a process."""
    return compiled(_norm.kernels(target), "norm", *[ADDRESS] * 3, *[NUMBER] * 2, REAL)
