"""Attention by kernels of regard's own."""

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from regard.embedding._arithmetic import Arithmetic
from regard.kernels import Attention, attend_by, here


class KernelArithmetic(Arithmetic):
    """The same sums: attention in one call, without scores ever leaving the caches.

    Args:
        attentions: ways to work attention out; for each text the first that takes it, or torch's.
    """

    def __init__(self, *attentions: Attention) -> None:
        self._attentions = attentions

    def attend(self, qkv: Tensor, context: Tensor, shape: Sequence[tuple[int, int]]) -> Tensor:
        """See `Arithmetic`."""
        target, (_, _, heads, head_dim) = here(), qkv.shape
        for each in (qkv, context):  # the kernels get nothing but addresses
            assert each.dtype == torch.float32, each.dtype
            assert each.is_contiguous(), each.stride()

        def chosen(run: tuple[int, int]) -> Attention | None:
            return next((each for each in self._attentions if each.takes(target, head_dim, run[1])), None)

        start = 0
        for attention, group in groupby(shape, key=chosen):
            runs = list(group)
            tokens = slice(start, start + sum(rows * length for rows, length in runs))
            start = tokens.stop
            if attention is None:
                super().attend(qkv[tokens], context[tokens], runs)
                continue
            room = max(attention.scratch(target, head_dim, length) for _, length in runs)
            scratch, pairs = torch.empty(room, dtype=torch.uint8), torch.tensor(runs)
            addresses = (each.data_ptr() for each in (qkv[tokens], context[tokens], pairs))
            attend_by(attention, target, head_dim)(*addresses, len(runs), heads, scratch.data_ptr())
        return context
