"""A network's linear maps as products of whole numbers."""

from collections.abc import Callable

from torch import Tensor, nn

from regard.embedding._products import Product


class ProductLinear(nn.Module):
    """A linear map worked out by another product.

    Args:
        linear: in float32, on the CPU, of sizes that the product takes.
        product: what makes it of a weight and a bias.

    Example:
        >>> import torch
        >>> from regard.embedding._products import Float32Product
        >>> linear = nn.Linear(16, 32).requires_grad_(False)
        >>> x = torch.randn(2, 3, 16)
        >>> torch.allclose(ProductLinear(linear, Float32Product)(x), linear(x), atol=1e-6)
        True
    """

    def __init__(self, linear: nn.Linear, product: Callable[[Tensor, Tensor | None], Product]) -> None:
        super().__init__()
        self._product = product(linear.weight, linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out), float32."""
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        return self._product.into(rows.new_empty(len(rows), self._product.width), rows).view(
            *x.shape[:-1], -1
        )
