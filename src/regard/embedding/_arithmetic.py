"""What engines of encoders are made of, without gradients: linear maps and attention."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F


class Projection(Protocol):
    """x W^T + bias.

    Attributes:
        width: the entries of what comes out.
    """

    width: int

    def into(self, out: Tensor, x: Tensor) -> Tensor:
        """out = x W^T + bias; x (rows, depth) lies without gaps, out (rows, width) with none within rows."""
        ...


class Product(Projection, Protocol):
    """The same, followed by something or added to something."""

    def gelu_into(self, out: Tensor, x: Tensor) -> Tensor:
        """out = gelu(x W^T + bias); as `into`."""
        ...

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """residual += x W^T, in its own memory; without the bias."""
        ...


MakeProduct = Callable[[Tensor, Tensor | None], Product]
"""What makes a linear map of a weight (width, depth) and a bias (width,)."""


class TorchProduct:
    """By torch: a weight (width, depth) and a bias (width,), of the type of what they are multiplied with."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight, bias
        self.width = len(weight)

    def into(self, out: Tensor, x: Tensor) -> Tensor:
        """See `Product`."""
        if self._bias is None:
            return torch.mm(x, self._weight.t(), out=out)
        return torch.addmm(self._bias, x, self._weight.t(), out=out)

    def gelu_into(self, out: Tensor, x: Tensor) -> Tensor:
        """See `Product`."""
        made: Tensor = torch.ops.aten.gelu_(self.into(out, x), approximate="none")
        return made

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """See `Product`."""
        residual.addmm_(x, self._weight.t())


class SideBySide:
    """The columns of one product of some rows, then those of another."""

    def __init__(self, first: Projection, second: Projection) -> None:
        self._first, self._second = first, second
        self.width = first.width + second.width

    def into(self, out: Tensor, x: Tensor) -> Tensor:
        """See `Projection`."""
        at = self._first.width
        self._first.into(out[:, :at], x)
        self._second.into(out[:, at:], x)
        return out


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
