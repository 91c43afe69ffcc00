"""The order in which a product is worked out, in LLVM's representation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from regard.kernels._gelu import Normal, gelu
from regard.kernels._ir import F32, loop, place, tiles, whole
from regard.kernels._target import Target


def panel_of(target: Target) -> int:
    """The columns of a product that are worked out together: two registers of them."""
    return 2 * target.lanes


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
    with loop(b, whole(0), sizes.rows, sizes.at_once) as first:
        left = b.sub(sizes.rows, first)
        here = b.select(b.icmp_signed("<", left, sizes.at_once), left, sizes.at_once)
        make_codes(first, here)
        with loop(b, whole(0), sizes.width, whole(panel_of(target))) as column:

            def at(count: int, row: Any, first: Any = first, column: Any = column) -> None:
                tile(count, first, row, column)

            tiles(b, here, most, at)
        with b.if_then(b.icmp_signed("!=", sizes.with_gelu, whole(0))):
            made = place(b, out, b.mul(first, sizes.out_step), F32)
            b.call(activate, [made, here, sizes.width, sizes.out_step])
