"""Codes of 16 bits for rows, and products of codes; in LLVM's representation.

One instruction (`vpmaddwd`) multiplies pairs of codes and adds two products each, twice as many as one of
float32 does; where there is VNNI, LLVM makes it one with the addition to the sums (`vpdpwssd`).
"""

from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]

from regard.kernels._gelu import FINE
from regard.kernels._ir import (
    F32,
    I16,
    I32,
    I64,
    PTR,
    ROUNDS,
    add_pairs,
    exported,
    filled,
    fma,
    internal,
    intrinsic,
    larger,
    load,
    loop,
    over_lanes,
    place,
    spread,
    store,
    summing,
    vector,
    whole,
    zeros,
)
from regard.kernels._panels import Sizes, by_panels
from regard.kernels._target import Target

# Squares of entries below 1e-19 are lost to float32; with this, their codes are 0 or 1 where it matters.
_LEAST_SCALE: Final = 2.0**-64


def kernels(target: Target) -> Any:
    """The module, to be compiled, with the function

        product(x, codes, scales, weights, weight_scales, base, step, out, out_step, rows, width, depth,
                block, with_gelu, per_norm, per_entry)

    x: float32 (rows, depth). So many rows as a block has are made codes, and multiplied while these are in
    a cache; `codes` and `scales` have room for a block. A row's scale is the largest of its norm times
    per_norm, its largest entry, without its sign, times per_entry, and 2^-64; its codes are
    round(x / scale). weights: as `Int16Product` packs them. Then

        out[i * out_step + o] = base[i * step + o] +
            scales[i] weight_scales[o] (sum over j of codes[i, j] weights[o, j])

    and GELU of that where with_gelu is not 0; base may be out.
    """
    module = ir.Module()
    codes_of = _codes(module, target)
    # Sums of so many rows and two registers of columns stay in the registers, with what is multiplied: 16 of
    # AVX2, 32 of AVX-512.
    most = 12 if target.lanes == 16 else 6
    tile_of = {count: _tile(module, target, count) for count in range(1, most + 1)}
    function, b = exported(module, "product", *[PTR] * 6, I64, PTR, *[I64] * 6, F32, F32)
    x, codes, scales, weights, weight_scales, base, step, out, *numbers, per_norm, per_entry = function.args
    sizes = Sizes(*numbers)

    def make_codes(first: Any, count: Any) -> None:
        entries = place(b, x, b.mul(first, sizes.depth), F32)
        b.call(codes_of, [entries, codes, scales, count, sizes.depth, per_norm, per_entry])

    def tile(count: int, first: Any, row: Any, column: Any) -> None:
        at = b.add(first, row)
        arguments = [
            place(b, codes, b.mul(row, sizes.depth), I16),
            sizes.depth,
            place(b, weights, b.mul(column, sizes.depth), I16),
            place(b, base, b.add(b.mul(at, step), column), F32),
            step,
            place(b, out, b.add(b.mul(at, sizes.out_step), column), F32),
            sizes.out_step,
            place(b, scales, row, F32),
            place(b, weight_scales, column, F32),
        ]
        b.call(tile_of[count], arguments)

    by_panels(module, b, target, sizes, out, most=most, normal=FINE, make_codes=make_codes, tile=tile)
    b.ret_void()
    return module


def _codes(module: Any, target: Target) -> Any:
    lanes, floats = target.lanes, vector(F32, target.lanes)
    function, b = internal(module, "codes", PTR, PTR, PTR, I64, I64, F32, F32)
    x, codes, scales, rows, depth, per_norm, per_entry = function.args
    root = intrinsic(module, "llvm.sqrt.f32", F32, F32)
    size = intrinsic(module, f"llvm.fabs.v{lanes}f32", floats, floats)
    with loop(b, whole(0), rows, whole(1)) as row:
        entries = place(b, x, b.mul(row, depth), F32)
        made = place(b, codes, b.mul(row, depth), I16)
        with summing(b, depth, 2 * lanes, [zeros(floats)] * 4) as (k, (*squares, top, other), out):
            here = [load(b, place(b, entries, k, F32), whole(lanes * half), floats) for half in range(2)]
            out += [b.fadd(total, b.fmul(each, each)) for total, each in zip(squares, here, strict=True)]
            out += [larger(b, t, b.call(size, [h])) for t, h in zip((top, other), here, strict=True)]
        total = over_lanes(b, b.fadd(out[0], out[1]), lambda b, *pair: b.fadd(*pair))
        highest = over_lanes(b, larger(b, out[2], out[3]), larger)
        # Where the norm is not a number it stays, so that its row is not a number either.
        scale = larger(b, b.fmul(b.call(root, [total]), per_norm), b.fmul(highest, per_entry))
        scale = larger(b, scale, ir.Constant(F32, _LEAST_SCALE))
        store(b, scale, scales, row)
        steps = spread(b, b.fdiv(ir.Constant(F32, 1.0), scale), floats)
        with loop(b, whole(0), depth, whole(lanes)) as k:
            numbers = fma(module, b, load(b, entries, k, floats), steps, filled(floats, ROUNDS))
            bits = b.bitcast(numbers, vector(I32, lanes))
            store(b, b.trunc(bits, vector(I16, lanes)), made, k)
    b.ret_void()
    return function


def _tile(module: Any, target: Target, count: int) -> Any:
    """So many rows, and the columns of a panel."""
    lanes = target.lanes
    floats, sums_of, codes_of = vector(F32, lanes), vector(I32, lanes), vector(I16, 2 * lanes)
    function, b = internal(module, f"tile{count}", PTR, I64, PTR, PTR, I64, PTR, I64, PTR, PTR)
    codes, depth, weights, base, step, out, out_step, scales, weight_scales = function.args
    rows = [place(b, codes, b.mul(whole(row), depth), I16) for row in range(count)]
    halves = [whole(0), whole(lanes)]
    with summing(b, depth, 2, [zeros(sums_of)] * (2 * count)) as (k, sums, added):
        panel = place(b, weights, b.mul(k, whole(2 * lanes)), I16)
        columns = [load(b, panel, b.mul(half, whole(2)), codes_of) for half in halves]
        for row, entries in enumerate(rows):
            pair = b.load(place(b, entries, k, I16), typ=I32, align=2)
            pairs = spread(b, pair, sums_of)
            for half, column in enumerate(columns):
                added.append(add_pairs(module, b, sums[2 * row + half], pairs, column))
    for row in range(count):
        scale = spread(b, load(b, scales, whole(row), F32), floats)
        for number, half in enumerate(halves):
            of_column = load(b, weight_scales, half, floats)
            value = b.fmul(b.fmul(b.sitofp(added[2 * row + number], floats), scale), of_column)
            start = load(b, base, b.add(b.mul(whole(row), step), half), floats)
            store(b, b.fadd(start, value), out, b.add(b.mul(whole(row), out_step), half))
    b.ret_void()
    return function
