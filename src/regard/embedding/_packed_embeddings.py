"""What enters the first layer of BERT's kind of encoder, of rows of different lengths."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.blocks import Stack


class PackedEmbeddings:
    """Learned embedding + position + type of token, normed: what `regard.blocks.Embeddings` gives.

    Args:
        stack: one that this `takes`.
        added: (d_model,), added to every row that comes out; None where nothing is.
    """

    def __init__(self, stack: Stack, added: Tensor | None) -> None:
        own = stack.embeddings
        self.learned, self._positions, self._numbering = own.tokens, own.positions, stack.numbering
        # The sentence of a pair is always the first.
        self._type = None if own.token_types is None else own.token_types.weight[0].detach()
        assert isinstance(own.norm, nn.LayerNorm), "only such are taken"
        self._norm, self._projection = own.norm, own.projection
        shift = own.norm.bias.detach()
        self._shift = shift if added is None or own.projection else (shift.double() + added).to(shift.dtype)
        self._added = added.to(shift.dtype) if added is not None and own.projection else None

    @staticmethod
    def takes(stack: Stack) -> bool:
        """Whether this computes what the stack's own embeddings do."""
        own = stack.embeddings
        return own.scale == 1.0 and type(own.norm) is nn.LayerNorm and own.norm.bias is not None

    def __call__(self, token_ids: Tensor, shape: Sequence[tuple[int, int]]) -> Tensor:
        """(tokens, d_model), of rows as `Engine.hidden` gets them."""
        x: Tensor = self.learned(token_ids)
        if self._positions is not None:
            x += self._positions(self._numbers(token_ids, shape))
        if self._type is not None:
            x += self._type
        x = F.layer_norm(x, x.shape[-1:], self._norm.weight, self._shift, self._norm.eps)
        if self._projection is not None:
            x = self._projection(x)
        return x if self._added is None else x.add_(self._added)

    def _numbers(self, token_ids: Tensor, shape: Sequence[tuple[int, int]]) -> Tensor:
        numbers, start = [], 0
        for rows, length in shape:
            ids = token_ids[start : start + rows * length].view(rows, length)
            numbers.append(self._numbering(ids).expand(rows, length).reshape(-1))
            start += rows * length
        return torch.cat(numbers)
