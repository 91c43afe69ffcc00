"""Products in float32 of a weight that was packed once; in LLVM's representation.

torch's product brings the weight into the order in which it reads it at every call, and leaves GELU to a pass
of its own.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]
from torch import Tensor

from regard.kernels._gelu import FINE
from regard.kernels._ir import (
    F32,
    I64,
    PTR,
    exported,
    fetch,
    fma,
    internal,
    load,
    place,
    spread,
    store,
    summing,
    vector,
    whole,
    zeros,
)
from regard.kernels._products import KernelProduct, Sizes, by_panels, panel_of, rows_of
from regard.kernels._target import ADDRESS, NUMBER, Target, compiled, here

_LINE: Final = 16
"""Floats of a cache line."""


def kernels(target: Target, depth: int) -> Any:
    """The module for rows of so many entries, to be compiled, with the function

        product(x, weights, base, step, out, out_step, rows, width, depth, block, with_gelu)

    x: float32 (rows, depth), of which so many rows as a block has are multiplied while they are in a cache;
    weights: as `Float32Product` packs them. Then

        out[i * out_step + o] = base[i * step + o] + sum over j of x[i, j] W[o, j]

    and GELU of that where with_gelu is not 0; base may be out, and depth is that of the module.
    """
    module = ir.Module()
    # A tile for each number of rows that can be left.
    most = rows_of(target)
    tile_of = {count: _tile(module, target, depth, count) for count in range(1, most + 1)}
    function, b = exported(module, "product", PTR, PTR, PTR, I64, PTR, *[I64] * 6)
    x, weights, base, step, out, *numbers = function.args
    sizes = Sizes(*numbers)

    def tile(count: int, first: Any, row: Any, column: Any) -> None:
        # `first` is that of the block of rows, `row` counts within it.
        at = b.add(first, row)
        arguments = [
            place(b, x, b.mul(at, sizes.depth), F32),
            place(b, weights, b.mul(column, sizes.depth), F32),
            place(b, base, b.add(b.mul(at, step), column), F32),
            step,
            place(b, out, b.add(b.mul(at, sizes.out_step), column), F32),
            sizes.out_step,
        ]
        b.call(tile_of[count], arguments)

    by_panels(module, b, target, sizes, out, most=most, normal=FINE, make_codes=lambda *_: None, tile=tile)
    b.ret_void()
    return module


def _tile(module: Any, target: Target, depth: int, count: int) -> Any:
    """So many rows, and the columns of a panel.

    Where depth is a constant, the distances of the rows are part of the loads: added up at every step, they
    would take turns with the products.
    """
    floats, panel = vector(F32, target.lanes), panel_of(target)
    function, b = internal(module, f"tile{count}", PTR, PTR, PTR, I64, PTR, I64)
    x, weights, base, step, out, out_step = function.args
    rows = [place(b, x, whole(row * depth), F32) for row in range(count)]
    # A panel is two registers of columns.
    halves = [whole(0), whole(target.lanes)]
    # (count, 2): a sum of each row and each half of the panel.
    with summing(b, whole(depth), 1, [zeros(floats)] * (2 * count)) as (k, sums, added):
        here = place(b, weights, b.mul(k, whole(panel)), F32)
        # The panel after this one: the processor foresees the end of a panel, and not that it goes on.
        for number in range(0, panel, _LINE):
            fetch(module, b, place(b, here, whole(depth * panel + number), F32))
        columns = [load(b, here, half, floats) for half in halves]
        for row in rows:
            # One entry of x in every lane, times two registers of weights.
            own = spread(b, load(b, row, k, F32), floats)
            for column in columns:
                added.append(fma(module, b, own, column, sums[len(added)]))
    results = iter(added)
    for row in range(count):
        for half in halves:
            # The sums do not begin there: they would be rounded as numbers of its size are.
            start = load(b, base, b.add(b.mul(whole(row), step), half), floats)
            store(b, b.fadd(start, next(results)), out, b.add(b.mul(whole(row), out_step), half))
    b.ret_void()
    return function


class Float32Product(KernelProduct):
    """x -> x W^T + bias, each sum in the order of the entries.

    A row's numbers are the same whatever else is in the batch.

    Args:
        weight: float32 (width, depth), on the CPU, width a multiple of 16, or
            of 32 on processors with AVX-512.
        bias: float32 (width,).

    Source: tiles that stay in the registers, of packed panels: Goto and van de Geijn 2008,
    doi:10.1145/1356052.1356053, section 4.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        target = here()
        panel = panel_of(target)
        width, depth = weight.shape
        # Panel after panel; in each, all its columns of entry 0, then of entry 1, and so on: (panels,
        # depth, panel).
        panels = weight.detach().view(width // panel, panel, depth).transpose(1, 2).contiguous()
        super().__init__(_product(target, depth), [panels], width, depth, bias)
        # Processors with AVX-512 have a second cache of twice the size and more.
        self._entries = (96 if target.lanes == 16 else 48) * 1536

    @staticmethod
    def takes(weight: Tensor) -> bool:
        """Whether the weight's sizes are those that the kernels know."""
        return len(weight) % panel_of(here()) == 0

    def _room(self, rows: int) -> tuple[Tensor, ...]:
        # No codes are made: nothing to keep.
        return ()


@cache
def _product(target: Target, depth: int) -> Callable[..., None]:
    """The kernel; compiled once a process, which takes some 0.1 s."""
    return compiled(lambda: kernels(target, depth), "product", *[ADDRESS] * 3, NUMBER, ADDRESS, *[NUMBER] * 6)
