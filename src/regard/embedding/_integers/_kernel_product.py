"""What products by a kernel have in common: where their sums begin, and where they go."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class KernelProduct(ABC):
    """A `Product` whose kernel adds to what it is given: a bias for all rows, or a residual stream.

    Args:
        width, depth: of the weight.
        bias: float32 (width,), or None.
    """

    def __init__(self, width: int, depth: int, bias: Tensor | None) -> None:
        self.width, self._depth = width, depth
        self._bias = torch.zeros(width) if bias is None else bias.detach().float()

    def into(self, out: Tensor, x: Tensor) -> Tensor:
        """See `Product`."""
        self._checked(x, self._bias, 0, out)
        return out

    def gelu_into(self, out: Tensor, x: Tensor) -> Tensor:
        """See `Product`."""
        self._checked(x, self._bias, 0, out, with_gelu=True)
        return out

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """See `Product`."""
        self._checked(x, residual, residual.stride(0), residual)

    def _checked(self, x: Tensor, base: Tensor, step: int, out: Tensor, *, with_gelu: bool = False) -> None:
        """`_run`, which hands on nothing but addresses."""
        assert x.dtype == base.dtype == out.dtype == torch.float32, (x.dtype, base.dtype, out.dtype)
        assert x.is_contiguous(), x.stride()
        assert base.stride(-1) == out.stride(1) == 1, (base.stride(), out.stride())
        assert x.shape == (len(out), self._depth), (x.shape, self._depth)
        assert base.shape[-1] == out.shape[1] == self.width, (base.shape, out.shape, self.width)
        self._run(x, base, step, out, with_gelu=with_gelu)

    @abstractmethod
    def _run(self, x: Tensor, base: Tensor, step: int, out: Tensor, *, with_gelu: bool = False) -> None:
        """out = base + x W^T, rows of base being so many floats apart; GELU of that where it is asked for."""

    def _at_once(self, rows: int, *, with_gelu: bool) -> int:
        """Rows whose codes, and results where GELU reads them again, stay in the second cache."""
        return max(1, min(rows, _ENTRIES // max(self._depth, with_gelu * self.width)))


# 288 KiB in 16 bits.
_ENTRIES = 96 * 1536
