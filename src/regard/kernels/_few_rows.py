"""Products of a few rows with a weight that is read once, as it lies; in LLVM's representation.

A token that a decoder writes reads every weight and computes next to nothing: its time is that of reading.
So the weight is not packed: a column of the product reads a row of the weight as it lies.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]

from regard.kernels._ir import (
    F32,
    I8,
    I16,
    I32,
    I64,
    PTR,
    exported,
    fetch,
    filled,
    fma,
    internal,
    load,
    loop,
    picked,
    place,
    store,
    summing,
    tiles,
    transposed,
    vector,
    whole,
    zeros,
)
from regard.kernels._target import Target

JOB: Final = ("next", "x", "weight", "scales", "bias", "out", "rows", "width", "depth")
"""What the kernel is told, int64 each; the first counts the portions that have been taken."""

PARTS: Final = 4
"""A row alone is read in so many registers at a time: its depth has to be a multiple of them."""

_COLUMNS: Final = 4  # of a tile of several rows: what is read of x is used so many times
_PORTION: Final = (
    16  # columns that a thread takes at a time; a thread that is held up leaves the rest to others
)


@dataclass(frozen=True, slots=True)
class Stored:
    """How the entries of a weight are stored."""

    element: Any  # the type of one
    widened: Callable[[Any, Any], Any]  # what writes the floats of a register of them
    scaled: bool = False  # whether every row of the weight has a factor


def _of_bfloat16(b: Any, loaded: Any) -> Any:
    wide = vector(I32, loaded.type.count)
    return b.bitcast(b.shl(b.zext(loaded, wide), filled(wide, 16)), vector(F32, wide.count))


def _of_int8(b: Any, loaded: Any) -> Any:
    return b.sitofp(b.sext(loaded, vector(I32, loaded.type.count)), vector(F32, loaded.type.count))


FLOAT32: Final = Stored(F32, lambda b, loaded: loaded)
BFLOAT16: Final = Stored(I16, _of_bfloat16)
INT8: Final = Stored(I8, _of_int8, scaled=True)


def kernels(target: Target, stored: Stored) -> Any:
    """The module, to be compiled, with the function

        product(job)        out[i, o] = bias[o] + scales[o] sum over j of x[i, j] weight[o, j]

    job: int64 (9,), as `JOB` names them. x: float32 (rows, depth); weight (width, depth), depth a multiple
    of `PARTS` registers; scales and bias: float32 (width,); out: float32 (rows, width). All without gaps.

    Every thread that is to work calls it with the same job; it returns when nothing is left to take.
    """
    module = ir.Module()
    most = target.accumulators // _COLUMNS
    tile_of = {
        (rows, columns): _tile(module, target, stored, rows, columns)
        for rows in range(1, most + 1)
        for columns in (1, _COLUMNS)
    }
    function, b = exported(module, "product", PTR)
    (job,) = function.args
    told = {name: load(b, job, whole(at), I64) for at, name in enumerate(JOB)}
    x, weight, scales, bias, out = (
        b.inttoptr(told[name], PTR) for name in ("x", "weight", "scales", "bias", "out")
    )
    rows, width, depth = told["rows"], told["width"], told["depth"]

    def columns(count: int, first: Any) -> None:
        own = place(b, weight, b.mul(first, depth), stored.element)

        def tile(of: int, row: Any) -> None:
            at = [place(b, each, first, F32) for each in (scales, bias)]
            to = place(b, out, b.add(b.mul(row, width), first), F32)
            b.call(tile_of[of, count], [place(b, x, b.mul(row, depth), F32), own, *at, to, width, depth])

        tiles(b, rows, most, tile)

    take, work, done = (b.append_basic_block() for _ in range(3))
    b.branch(take)
    b.position_at_end(take)
    start = b.mul(b.atomic_rmw("add", job, whole(1), "monotonic"), whole(_PORTION))
    b.cbranch(b.icmp_signed("<", start, width), work, done)
    b.position_at_end(work)
    end = b.add(start, whole(_PORTION))
    stop = b.select(b.icmp_signed("<", end, width), end, width)
    full = b.sub(stop, b.srem(b.sub(stop, start), whole(_COLUMNS)))
    # One row alone reads the weight from its first entry to its last.
    full = b.select(b.icmp_signed("==", rows, whole(1)), start, full)
    with loop(b, start, full, whole(_COLUMNS)) as first:
        columns(_COLUMNS, first)
    with loop(b, full, stop, whole(1)) as first:
        columns(1, first)
    b.branch(take)
    b.position_at_end(done)
    b.ret_void()
    return module


def _tile(module: Any, target: Target, stored: Stored, rows: int, columns: int) -> Any:
    """So many rows of x, and so many of the weight."""
    floats, entries = vector(F32, target.lanes), vector(stored.element, target.lanes)
    parts = PARTS if rows == columns == 1 else 1
    function, b = internal(module, f"tile{rows}x{columns}", *[PTR] * 5, I64, I64)
    x, weight, scales, bias, out, width, depth = function.args
    of_x = [place(b, x, b.mul(whole(row), depth), F32) for row in range(rows)]
    of_weight = [place(b, weight, b.mul(whole(column), depth), stored.element) for column in range(columns)]
    starts = [zeros(floats)] * (parts * rows * columns)
    with summing(b, depth, parts * target.lanes, starts) as (first, sums, added):
        for part in range(parts):
            at = b.add(first, whole(part * target.lanes))
            read = [load(b, each, at, floats) for each in of_x]
            for each in of_weight:
                if columns > 1:
                    # Several rows at a time are not what the processor foresees: the next ones are asked for.
                    fetch(module, b, place(b, each, b.add(at, b.mul(whole(columns), depth)), stored.element))
                wide = stored.widened(b, load(b, each, at, entries))
                added += [fma(module, b, wide, row, sums[len(added) + n]) for n, row in enumerate(read)]
    for row in range(rows):
        # The sums of neighbouring columns side by side, as they are stored.
        own = [reduce(b.fadd, added[rows * column + row :: rows * columns]) for column in range(columns)]
        total = reduce(b.fadd, transposed(b, own))
        distance = target.lanes // 2
        while distance >= columns:
            lanes = list(range(distance))
            halves = [picked(b, total, total, [lane + first for lane in lanes]) for first in (0, distance)]
            total, distance = b.fadd(*halves), distance // 2
        base, scale = (load(b, each, whole(0), total.type) for each in (bias, scales))
        total = b.fmul(total, scale) if stored.scaled else total
        store(b, b.fadd(total, base), out, b.mul(whole(row), width))
    b.ret_void()
    return function
