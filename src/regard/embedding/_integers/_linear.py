"""A network's linear maps in 16 bits."""

from torch import Tensor, nn

from regard.embedding._int16._product import Int16Product


class Int16Linear(nn.Module):
    """A linear map by `Int16Product`.

    Args:
        linear: in float32, on the CPU, of sizes that `Int16Product` takes.

    Example:
        >>> import torch
        >>> linear = nn.Linear(16, 32).requires_grad_(False)
        >>> x = torch.randn(2, 3, 16)
        >>> torch.allclose(Int16Linear(linear)(x), linear(x), atol=1e-2)
        True
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self._product = Int16Product(linear.weight, linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out), float32."""
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        return self._product.into(rows.new_empty(len(rows), self._product.width), rows).view(
            *x.shape[:-1], -1
        )
