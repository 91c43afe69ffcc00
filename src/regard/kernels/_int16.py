"""Codes of 16 bits for rows, and products of codes; in LLVM's representation.

One instruction (`vpmaddwd`) multiplies pairs of codes and adds two products each, twice as many as one of
float32 does; where there is VNNI, LLVM makes it one with the addition to the sums (`vpdpwssd`).
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import torch
from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]
from torch import Tensor

from regard.kernels._gelu import FINE
from regard.kernels._ir import (
    F32,
    F64,
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
from regard.kernels._products import KernelProduct, Sizes, by_panels, panel_of, rows_of
from regard.kernels._target import ADDRESS, NUMBER, REAL, Target, compiled, here

# The least whose reciprocal is a float32 too: of rows whose entries are below 4e-34 codes become coarse.
_LEAST_SCALE: Final = 2.0**-126
# A sum of squares below it may have lost some, which were 0 in float32.
_LEAST_SUM: Final = 2.0**-80


def kernels(target: Target) -> Any:
    """The module, to be compiled, with the function

        product(x, codes, scales, weights, weight_scales, base, step, out, out_step, rows, width, depth,
                block, with_gelu, per_norm, per_entry)

    x: float32 (rows, depth). So many rows as a block has are made codes, and multiplied while these are in
    a cache; `codes` and `scales` have room for a block. A row's scale is the largest of its norm times
    per_norm, its largest entry, without its sign, times per_entry, and 2^-126; its codes are
    round(x / scale). weights: as `Int16Product` packs them. Then

        out[i * out_step + o] = base[i * step + o] +
            scales[i] weight_scales[o] (sum over j of codes[i, j] weights[o, j])

    and GELU of that where with_gelu is not 0; base may be out.
    """
    module = ir.Module()
    codes_of = _codes(module, target)
    most = rows_of(target)
    tile_of = {count: _tile(module, target, count) for count in range(1, most + 1)}
    function, b = exported(module, "product", *[PTR] * 6, I64, PTR, *[I64] * 6, F32, F32)
    x, codes, scales, weights, weight_scales, base, step, out, *numbers, per_norm, per_entry = function.args
    sizes = Sizes(*numbers)

    # Codes of a block of rows, before its panels.
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
    lanes, floats, doubles = target.lanes, vector(F32, target.lanes), vector(F64, target.lanes)
    function, b = internal(module, "codes", PTR, PTR, PTR, I64, I64, F32, F32)
    x, codes, scales, rows, depth, per_norm, per_entry = function.args
    root, wide_root = (intrinsic(module, f"llvm.sqrt.{of.intrinsic_name}", of, of) for of in (F32, F64))
    size = intrinsic(module, f"llvm.fabs.v{lanes}f32", floats, floats)
    with loop(b, whole(0), rows, whole(1)) as row:
        # Two registers at a time, with sums and largest of their own: neither waits for the other.
        entries = place(b, x, b.mul(row, depth), F32)
        codes_at = place(b, codes, b.mul(row, depth), I16)
        # squares: sums of x^2; top, other: the largest |x|.
        with summing(b, depth, 2 * lanes, [zeros(floats)] * 4) as (k, (*squares, top, other), out):
            here = [load(b, place(b, entries, k, F32), whole(lanes * half), floats) for half in range(2)]
            out += [b.fadd(total, b.fmul(each, each)) for total, each in zip(squares, here, strict=True)]
            out += [larger(b, t, b.call(size, [h])) for t, h in zip((top, other), here, strict=True)]
        total = over_lanes(b, b.fadd(out[0], out[1]), lambda b, *pair: b.fadd(*pair))
        highest = over_lanes(b, larger(b, out[2], out[3]), larger)
        norms = [(b.call(root, [total]), b.block)]
        # The sum must not have lost small squares, nor be infinite.
        fits = b.fcmp_ordered("<", ir.Constant(F32, _LEAST_SUM), total)
        fits = b.and_(fits, b.fcmp_ordered("<", total, ir.Constant(F32, math.inf)))
        with b.if_then(b.not_(fits), likely=False):  # what float32 has no squares for
            # In float64, whose squares hold for all floats. Rarely needed, so the quicker way comes
            # first.
            with summing(b, depth, lanes, [zeros(doubles)]) as (k, (wide,), out):
                each = b.fpext(load(b, entries, k, floats), doubles)
                out.append(b.fadd(wide, b.fmul(each, each)))
            total = over_lanes(b, out[0], lambda b, *pair: b.fadd(*pair))
            norms.append((b.fptrunc(b.call(wide_root, [total]), F32), b.block))
        # The norm is that of the block that the processor came from.
        norm = b.phi(F32)
        for value, block in norms:
            norm.add_incoming(value, block)
        # Where the norm is not a number it stays, so that its row is not a number either.
        scale = larger(b, b.fmul(norm, per_norm), b.fmul(highest, per_entry))
        scale = larger(b, scale, ir.Constant(F32, _LEAST_SCALE))
        store(b, scale, scales, row)
        # One division a row, then products.
        steps = spread(b, b.fdiv(ir.Constant(F32, 1.0), scale), floats)
        with loop(b, whole(0), depth, whole(lanes)) as k:
            # Rounded to whole numbers in the lowest bits; the upper half of them is cut off.
            numbers = fma(module, b, load(b, entries, k, floats), steps, filled(floats, ROUNDS))
            bits = b.bitcast(numbers, vector(I32, lanes))
            store(b, b.trunc(bits, vector(I16, lanes)), codes_at, k)
    b.ret_void()
    return function


def _tile(module: Any, target: Target, count: int) -> Any:
    """So many rows, and the columns of a panel."""
    lanes = target.lanes
    floats, sums_of, codes_of = vector(F32, lanes), vector(I32, lanes), vector(I16, 2 * lanes)
    function, b = internal(module, f"tile{count}", PTR, I64, PTR, PTR, I64, PTR, I64, PTR, PTR)
    codes, depth, weights, base, step, out, out_step, scales, weight_scales = function.args
    # Where the codes of each row begin.
    rows = [place(b, codes, b.mul(whole(row), depth), I16) for row in range(count)]
    # A panel is two registers of columns.
    halves = [whole(0), whole(lanes)]
    # Two entries of depth at a time: one instruction multiplies pairs.
    with summing(b, depth, 2, [zeros(sums_of)] * (2 * count)) as (k, sums, added):
        panel = place(b, weights, b.mul(k, whole(2 * lanes)), I16)
        columns = [load(b, panel, b.mul(half, whole(2)), codes_of) for half in halves]
        for row, entries in enumerate(rows):
            # Two codes of a row as one number of 32 bits, then in every lane.
            pair = b.load(place(b, entries, k, I16), typ=I32, align=2)
            pairs = spread(b, pair, sums_of)
            for half, column in enumerate(columns):
                added.append(add_pairs(module, b, sums[2 * row + half], pairs, column))
    # Back to floats: sum * scale of the row * scale of the column, added to the base.
    for row in range(count):
        scale = spread(b, load(b, scales, whole(row), F32), floats)
        for number, half in enumerate(halves):
            of_column = load(b, weight_scales, half, floats)
            value = b.fmul(b.fmul(b.sitofp(added[2 * row + number], floats), scale), of_column)
            start = load(b, base, b.add(b.mul(whole(row), step), half), floats)
            store(b, b.fadd(start, value), out, b.add(b.mul(whole(row), out_step), half))
    b.ret_void()
    return function


# One below the largest of 16 bits, for what rounding adds.
_LARGEST = 2**15 - 2
# Rows and columns of codes get norms up to the root of the largest sum of 32 bits, 46,340: then no sum of
# their products is larger, by the inequality of Cauchy and Schwarz.
_NORM = math.isqrt(2**31 - 1)
# The kernel adds squares in float32, in eight parts: below 2e-4 of the norm for 2^16 entries.
_SPARE = 2e-4


class Int16Product(KernelProduct):
    """x -> x W^T + bias, with codes of 16 bits.

        s_i = max(|x_i| / c, max_j |x_ij| / 32766),  a_ij = round(x_ij / s_i)
        t_o = the same of W_o,                       w_oj = round(W_oj / t_o)
        y_io = s_i t_o sum_j a_ij w_oj + b_o

    with c = (46340 - sqrt(depth) / 2) (1 - 2e-4): then |a_i| and |w_o| are below 46,340, roundings counted,
    and by the inequality of Cauchy and Schwarz every sum is below 2^31, so that it is exact. A row's
    numbers are the same whatever else is in the batch. Rounding moves a row by sqrt(depth) / 2 s_i at most:
    by 2.2e-4 of its norm for 384 entries and 4.3e-4 for 1,536, or by 3e-4 and 6e-4 where one entry outweighs
    all others. As a rule it is 0.6 times as much. The rows of W are moved as far. That holds for rows of any
    size from 1e-33 to 1e33; below, codes become coarse, and above, a result may be infinite.

    Args:
        weight: float32 (width, depth), on the CPU, both multiples of 16, or
            of 32 on processors with AVX-512.
        bias: float32 (width,).

    Source: whole numbers for products of matrices: Jacob et al. 2018, arXiv 1712.05877, section 2.2; there
    with 8 bits, and sums of 32.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        target = here()
        panel = panel_of(target)
        width, depth = weight.shape
        weight = weight.detach()
        norms = weight.double().norm(dim=1)  # squares of small entries are 0 in float32
        scales = torch.maximum(norms / _norm(depth), weight.abs().amax(dim=1) / _LARGEST).float()
        # A row of zeros: any scale gives codes 0.
        scales = torch.where(scales > 0, scales, 1.0)
        codes = (weight / scales[:, None]).round_().to(torch.int16)
        # Column after column of a panel, two codes of each: what one instruction multiplies. A pair is moved
        # as one number.
        pairs = codes.view(torch.int32).view(width // panel, panel, depth // 2)
        weights = [pairs.transpose(1, 2).contiguous(), scales]
        # What the kernel needs to scale a row of x in the same way as rows of W here.
        factors = [1.0 / _norm(depth), 1.0 / _LARGEST]
        super().__init__(_product(target), weights, width, depth, bias, factors)

    @staticmethod
    def takes(weight: Tensor) -> bool:
        """Whether the weight's sizes are those that the kernels know."""
        return all(size % panel_of(here()) == 0 for size in weight.shape)

    def _room(self, rows: int) -> tuple[Tensor, Tensor]:
        return torch.empty(rows, self._depth, dtype=torch.int16), torch.empty(rows)


@cache
def _product(target: Target) -> Callable[..., None]:
    # The last two are floats: per_norm and per_entry.
    """The kernel; compiled once a process, which takes some 0.1 s."""
    kinds = [*[ADDRESS] * 6, NUMBER, ADDRESS, *[NUMBER] * 6, REAL, REAL]
    return compiled(lambda: kernels(target), "product", *kinds)


def _norm(depth: int) -> float:
    return (_NORM - math.sqrt(depth) / 2) * (1 - _SPARE)
