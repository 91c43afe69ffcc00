"""What products by a kernel have in common: where their sums begin, and where they go."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class KernelProduct(ABC):
    """A `Product` whose kernel adds to what it is given: a bias for all rows, or a residual stream.

    `kernel` is `product` of a module in `regard.kernels`, `weights` what it gets of the weight, and keeps,
    and `factors` are its last arguments; bias: float32 (width,), or None.
    """

    def __init__(
        self,
        kernel: Callable[..., None],
        weights: Sequence[Tensor],
        width: int,
        depth: int,
        bias: Tensor | None,
        factors: Sequence[float] = (),
    ) -> None:
        self._kernel, self._weights, self._factors = kernel, weights, factors
        self.width, self._depth = width, depth
        self._bias = torch.zeros(width) if bias is None else bias.detach().float()

    def into(self, out: Tensor, x: Tensor) -> Tensor:
        """See `Product`."""
        return self._run(x, self._bias, 0, out)

    def gelu_into(self, out: Tensor, x: Tensor) -> Tensor:
        """See `Product`."""
        return self._run(x, self._bias, 0, out, with_gelu=True)

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """See `Product`."""
        self._run(x, residual, residual.stride(0), residual)

    def _run(self, x: Tensor, base: Tensor, step: int, out: Tensor, *, with_gelu: bool = False) -> Tensor:
        """out = base + x W^T, rows of base being so many floats apart; GELU of that where it is asked for."""
        # The kernel gets nothing but addresses.
        assert x.dtype == base.dtype == out.dtype == torch.float32, (x.dtype, base.dtype, out.dtype)
        assert x.is_contiguous(), x.stride()
        assert base.stride(-1) == out.stride(1) == 1, (base.stride(), out.stride())
        assert x.shape == (len(out), self._depth), (x.shape, self._depth)
        assert base.shape[-1] == out.shape[1] == self.width, (base.shape, out.shape, self.width)
        at_once = self._at_once(len(x), with_gelu=with_gelu)
        codes, scales = self._room(at_once)
        self._kernel(
            *(each.data_ptr() for each in (x, codes, scales, *self._weights, base)),
            step,
            out.data_ptr(),
            out.stride(0),
            len(x),
            self.width,
            self._depth,
            at_once,
            with_gelu,
            *self._factors,
        )
        return out

    @abstractmethod
    def _room(self, rows: int) -> tuple[Tensor, Tensor]:
        """Memory for the codes and scales of so many rows."""

    def _at_once(self, rows: int, *, with_gelu: bool) -> int:
        """Rows whose codes, and results where GELU reads them again, stay in the second cache."""
        return max(1, min(rows, _ENTRIES // max(self._depth, with_gelu * self.width)))


# 288 KiB in 16 bits.
_ENTRIES = 96 * 1536
