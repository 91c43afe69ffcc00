"""Linear maps without gradients, as an engine uses them: into new memory, or added to what is there."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


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


class Float32Product:
    """By torch.

    Args:
        weight: (width, depth).
        bias: (width,).

    Example:
        >>> product = Float32Product(torch.eye(2), torch.ones(2))
        >>> product.into(torch.empty(1, 2), torch.tensor([[3.0, 4.0]]))
        tensor([[4., 5.]])
    """

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
    """The columns of two products of the same rows.

    Args:
        first, second: in this order.

    Example:
        >>> both = SideBySide(Float32Product(torch.eye(2), None), Float32Product(torch.ones(1, 2), None))
        >>> both.into(torch.empty(1, 3), torch.tensor([[3.0, 4.0]]))
        tensor([[3., 4., 7.]])
    """

    def __init__(self, first: Projection, second: Projection) -> None:
        self._first, self._second = first, second
        self.width = first.width + second.width

    def into(self, out: Tensor, x: Tensor) -> Tensor:
        """See `Projection`."""
        at = self._first.width
        self._first.into(out[:, :at], x)
        self._second.into(out[:, at:], x)
        return out
