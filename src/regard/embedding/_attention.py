"""What an encoder works out beside its products and norms: attention."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from regard.kernels import Attention


class AttentionBackend:
    """Attention by torch's kernel."""

    def attend(self, qkv: Tensor, context: Tensor, shape: Sequence[tuple[int, int]]) -> Tensor:
        """context = softmax(q k^T) v, for each head of each text.

        Args:
            qkv: float32 (tokens, 3, heads, head_dim), without gaps, the queries scaled.
            context: (tokens, heads x head_dim), without gaps; written and given back.
            shape: for each run how many texts, and how many tokens each of them has.
        """
        _, _, heads, head_dim = qkv.shape
        start = 0
        for rows, length in shape:
            here = slice(start, start + rows * length)
            q, k, v = qkv[here].view(rows, length, 3, heads, head_dim).permute(2, 0, 3, 1, 4)
            joined = F.scaled_dot_product_attention(q, k, v, scale=1.0).transpose(1, 2)
            context[here].view(rows, length, heads, head_dim).copy_(joined)
            start += rows * length
        return context


class KernelAttention(AttentionBackend):
    """By kernels of regard's own, whose scores stay in caches: the first that takes a text, else torch's."""

    def __init__(self, *attentions: "Attention") -> None:
        self._attentions = attentions

    def attend(self, qkv: Tensor, context: Tensor, shape: Sequence[tuple[int, int]]) -> Tensor:
        """See `AttentionBackend`."""
        # Only here: llvmlite is not always installed.
        from regard.kernels import attend_by, here

        target, (_, _, heads, head_dim) = here(), qkv.shape
        for each in (qkv, context):  # the kernels get nothing but addresses
            assert each.dtype == torch.float32, each.dtype
            assert each.is_contiguous(), each.stride()

        def chosen(run: tuple[int, int]) -> "Attention | None":
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
