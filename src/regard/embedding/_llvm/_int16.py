"""Codes of rows, and products of codes; written in LLVM's representation, for AVX2.

One instruction (`vpmaddwd`) multiplies sixteen pairs of codes and adds two products each, to eight sums. That
is twice what one of float32 does, and a processor starts as many of both in a cycle.
"""

from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]

from regard.embedding._int16._ir import (
    CODES,
    F32,
    FLOATS,
    I16,
    I32,
    I64,
    LANES,
    PTR,
    SUMS,
    VOID,
    intrinsic,
    load,
    loop,
    place,
    spread,
    store,
    summing,
    whole,
    zeros,
)

PANEL: Final = 2 * LANES
"""The columns of a product that are worked out together, and how many codes of a row are made at once."""
# Sums of six rows and two registers of columns stay in the sixteen registers, with what is multiplied.
_ROWS: Final = 6
# Squares of entries below 1e-19 are lost to float32; with this, their codes are 0 or 1 where it matters.
_LEAST_SCALE: Final = 2.0**-64


def kernels() -> Any:
    """The module, to be compiled, with the function

        product(x, codes, scales, weights, weight_scales, base, step, out, rows, width, depth, block,
                per_norm, per_entry)

    x: float32 (rows, depth). So many rows as a block has are made codes, and multiplied while these are in
    a cache; `codes` and `scales` have room for a block. A row's scale is the largest of its norm times
    per_norm, its largest entry, without its sign, times per_entry, and 2^-64; its codes are
    round(x / scale). weights: as `Int16Product` packs them. Then

        out[i, o] = base[i * step + o] + scales[i] weight_scales[o] (sum over j of codes[i, j] weights[o, j])

    and base may be out.
    """
    module = ir.Module()
    _product(module, _codes(module))
    return module


def _codes(module: Any) -> Any:
    arguments = [PTR, PTR, PTR, I64, I64, F32, F32]
    function = ir.Function(module, ir.FunctionType(VOID, arguments), "codes")
    function.linkage = "internal"
    x, codes, scales, rows, depth, per_norm, per_entry = function.args
    root = intrinsic(module, "llvm.sqrt.f32", F32, F32)
    size = intrinsic(module, "llvm.fabs.v8f32", FLOATS, FLOATS)
    larger = intrinsic(module, "llvm.x86.avx.max.ps.256", FLOATS, FLOATS, FLOATS)
    rounded = intrinsic(module, "llvm.x86.avx.cvt.ps2dq.256", SUMS, FLOATS)
    none, one = ir.Constant(F32, 0.0), ir.Constant(F32, 1.0)
    b = ir.IRBuilder(function.append_basic_block())
    with loop(b, whole(0), rows, whole(1)) as row:
        entries = place(b, x, b.mul(row, depth), F32)
        made = place(b, codes, b.mul(row, depth), I16)
        with summing(b, depth, PANEL, [zeros(FLOATS)] * 4) as (k, (*squares, top, other), out):
            here = [load(b, place(b, entries, k, F32), whole(LANES * half), FLOATS) for half in range(2)]
            out += [b.fadd(total, b.fmul(each, each)) for total, each in zip(squares, here, strict=True)]
            out += [b.call(larger, [b.call(size, [h]), t]) for t, h in zip((top, other), here, strict=True)]
        squares, tops = b.fadd(out[0], out[1]), b.call(larger, out[2:])
        total = highest = none
        for lane in range(LANES):
            total = b.fadd(total, b.extract_element(squares, ir.Constant(I32, lane)))
            highest = _largest(b, highest, b.extract_element(tops, ir.Constant(I32, lane)))
        scale = _largest(b, b.fmul(b.call(root, [total]), per_norm), b.fmul(highest, per_entry))
        scale = _largest(b, scale, ir.Constant(F32, _LEAST_SCALE))
        store(b, scale, scales, row)
        steps = spread(b, b.fdiv(one, scale), FLOATS)
        with loop(b, whole(0), depth, whole(LANES)) as k:
            numbers = b.call(rounded, [b.fmul(load(b, entries, k, FLOATS), steps)])
            store(b, b.trunc(numbers, ir.VectorType(I16, LANES)), made, k)
    b.ret_void()
    return function


def _largest(b: Any, one: Any, other: Any) -> Any:
    # Where `one` is not a number it stays, so that its row is not a number either.
    return b.select(b.fcmp_ordered("<", one, other), other, one)


def _product(module: Any, make_codes: Any) -> None:
    arguments = [*[PTR] * 6, I64, PTR, *[I64] * 4, F32, F32]
    function = ir.Function(module, ir.FunctionType(VOID, arguments), "product")
    x, codes, scales, weights, weight_scales, base, step, out, *sizes, per_norm, per_entry = function.args
    rows, width, depth, block = sizes
    add_products = intrinsic(module, "llvm.x86.avx2.pmadd.wd", SUMS, CODES, CODES)
    tiles = {count: _tile(module, count, add_products) for count in range(1, _ROWS + 1)}
    b = ir.IRBuilder(function.append_basic_block())
    with loop(b, whole(0), rows, block) as first:
        left = b.sub(rows, first)
        here = b.select(b.icmp_signed("<", left, block), left, block)
        entries = place(b, x, b.mul(first, depth), F32)
        b.call(make_codes, [entries, codes, scales, here, depth, per_norm, per_entry])

        def tile(count: int, row: Any, column: Any, first: Any = first) -> None:
            at = b.add(first, row)
            arguments = [
                place(b, codes, b.mul(row, depth), I16),
                depth,
                place(b, weights, b.mul(column, depth), I16),
                place(b, base, b.add(b.mul(at, step), column), F32),
                step,
                place(b, out, b.add(b.mul(at, width), column), F32),
                width,
                place(b, scales, row, F32),
                place(b, weight_scales, column, F32),
            ]
            b.call(tiles[count], arguments)

        over = b.srem(here, whole(_ROWS))
        full = b.sub(here, over)
        with loop(b, whole(0), width, whole(PANEL)) as column:
            with loop(b, whole(0), full, whole(_ROWS)) as row:
                tile(_ROWS, row, column)
            after = b.append_basic_block()
            choice = b.switch(over, after)
            for count in range(1, _ROWS):
                case = b.append_basic_block()
                choice.add_case(whole(count), case)
                b.position_at_end(case)
                tile(count, full, column)
                b.branch(after)
            b.position_at_end(after)
    b.ret_void()


def _tile(module: Any, count: int, add_products: Any) -> Any:
    """So many rows, and the columns of a panel."""
    arguments = [PTR, I64, PTR, PTR, I64, PTR, I64, PTR, PTR]
    function = ir.Function(module, ir.FunctionType(VOID, arguments), f"tile{count}")
    function.linkage = "internal"
    function.attributes.add("noinline")  # inlined, its sums would leave their registers
    codes, depth, weights, base, step, out, width, scales, weight_scales = function.args
    b = ir.IRBuilder(function.append_basic_block())
    rows = [place(b, codes, b.mul(whole(row), depth), I16) for row in range(count)]
    halves = [whole(0), whole(LANES)]
    with summing(b, depth, 2, [zeros(SUMS)] * (2 * count)) as (k, sums, added):
        panel = place(b, weights, b.mul(k, whole(PANEL)), I16)
        columns = [load(b, panel, b.mul(half, whole(2)), CODES) for half in halves]
        for row, codes_of in enumerate(rows):
            pair = b.load(place(b, codes_of, k, I16), typ=I32, align=2)
            pairs = b.bitcast(spread(b, pair, SUMS), CODES)
            for half, column in enumerate(columns):
                added.append(b.add(sums[2 * row + half], b.call(add_products, [pairs, column])))
    for row in range(count):
        scale = spread(b, load(b, scales, whole(row), F32), FLOATS)
        for number, half in enumerate(halves):
            of_column = load(b, weight_scales, half, FLOATS)
            value = b.fmul(b.fmul(b.sitofp(added[2 * row + number], FLOATS), scale), of_column)
            start = load(b, base, b.add(b.mul(whole(row), step), half), FLOATS)
            store(b, b.fadd(start, value), out, b.add(b.mul(whole(row), width), half))
    b.ret_void()
    return function
