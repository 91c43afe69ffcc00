"""What products by a kernel have in common: the order of their work, where sums begin, and where they go."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.kernels._gelu import Normal, gelu
from regard.kernels._ir import F32, loop, place, tiles, whole
from regard.kernels._target import Target


def panel_of(target: Target) -> int:
    """The columns of a product that are worked out together: two registers of them."""
    return 2 * target.lanes


def rows_of(target: Target) -> int:
    """The rows of a tile: sums of so many and of two registers of columns stay in the registers, with what is
    multiplied. There are 32 of AVX-512, and 16 of AVX2."""
    # 12 x 2 sums leave 8 of 32 registers for the factors; 6 x 2 leave 4 of 16.
    return 12 if target.lanes == 16 else 6


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers that a kernel is told about a product, int64."""

    out_step: Any  # floats from a row of the result to the next
    rows: Any
    width: Any
    depth: Any
    at_once: Any  # rows that are made codes, and multiplied while these are in a cache
    with_gelu: Any  # whether GELU of the sums is wanted; 0 for no


def by_panels(
    module: Any,
    b: Any,
    target: Target,
    sizes: Sizes,
    out: Any,
    *,
    most: int,
    normal: Normal,
    make_codes: Callable[[Any, Any], None],
    tile: Callable[[int, Any, Any, Any], None],
) -> None:
    """Some rows at a time, all panels of these, in tiles of at most `most` rows, whose result is at `out`.

    `make_codes` writes what makes the codes of rows, from the first on so many. `tile` writes the tile of so
    many rows: given the first row of those that have codes, the first of the tile among these, and the first
    column.
    """
    activate = gelu(module, target, normal)
    # A block of rows goes through all panels while its codes are in a cache.
    with loop(b, whole(0), sizes.rows, sizes.at_once) as first:
        left = b.sub(sizes.rows, first)
        here = b.select(b.icmp_signed("<", left, sizes.at_once), left, sizes.at_once)
        make_codes(first, here)
        # Column by column: a panel of weights is used for all rows of the block, one tile after another.
        with loop(b, whole(0), sizes.width, whole(panel_of(target))) as column:

            def at(count: int, row: Any, first: Any = first, column: Any = column) -> None:
                tile(count, first, row, column)

            tiles(b, here, most, at)
            # GELU while the result of this panel is still in a cache.
            with b.if_then(b.icmp_signed("!=", sizes.with_gelu, whole(0))):
                result = place(b, out, b.add(b.mul(first, sizes.out_step), column), F32)
                b.call(activate, [result, here, whole(panel_of(target)), sizes.out_step])


class KernelProduct(ABC):
    """A `Product` whose kernel adds to what it is given: a bias for all rows, or a residual stream.

    `kernel` is `product` of a module in `regard.kernels`, `weights` what it gets of the weight, and keeps,
    and `factors` are its last arguments; bias: float32 (width,), or None.
    """

    _entries = 96 * 1536
    """How many are multiplied while they are in the second cache: 288 KiB in 16 bits."""

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
        # Without a bias zeros are added, so that there is one kernel.
        self._bias = torch.zeros(width) if bias is None else bias.detach().float()

    def into(self, out: Tensor, x: Tensor) -> Tensor:
        """See `Product`."""
        # Step 0: the bias is the same for each row.
        return self._run(x, self._bias, 0, out)

    def gelu_into(self, out: Tensor, x: Tensor) -> Tensor:
        """See `Product`."""
        return self._run(x, self._bias, 0, out, with_gelu=True)

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        # The residual stream is the base and the result: step and place are its own.
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
        at_once = self._at_once(len(x))
        # Held in a name until the kernel is done: it gets only addresses.
        room = self._room(at_once)
        self._kernel(
            *(each.data_ptr() for each in (x, *room, *self._weights, base)),
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
    def _room(self, rows: int) -> tuple[Tensor, ...]:
        """Memory for what the kernel makes of so many rows before it multiplies them: codes and scales."""

    def _at_once(self, rows: int) -> int:
        """Rows whose codes stay in the second cache."""
        # At least one row, even where its depth is more than the cache holds.
        return max(1, min(rows, self._entries // self._depth))
