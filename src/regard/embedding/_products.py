"""Linear maps without gradients, as an engine uses them: into new memory, or added to what is there."""

from typing import Protocol

import torch
from torch import Tensor


class Product(Protocol):
    """x W^T + bias.

    Attributes:
        width: the entries of what comes out.
    """

    width: int

    def into(self, out: Tensor, x: Tensor) -> Tensor:
        """out = x W^T + bias; x (rows, depth) and out (rows, width) lie without gaps."""
        ...

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """residual += x W^T, in its own memory; without the bias."""
        ...


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

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """See `Product`."""
        residual.addmm_(x, self._weight.t())
