"""Codes of 8 bits for blocks of rows, and products of codes; in LLVM's representation.

One instruction of processors with VNNI (`vpdpbusd`) multiplies bytes and adds four products each, four times
as many as one of float32 does.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import torch
from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]
from torch import Tensor

from regard.kernels._gelu import COARSE
from regard.kernels._ir import (
    F32,
    I8,
    I32,
    I64,
    PTR,
    ROUNDS,
    add_fours,
    exported,
    filled,
    fma,
    internal,
    intrinsic,
    load,
    loop,
    over_lanes,
    picked,
    place,
    spread,
    store,
    summing,
    vector,
    whole,
)
from regard.kernels._products import KernelProduct, Sizes, by_panels, panel_of
from regard.kernels._target import ADDRESS, NUMBER, Target, compiled, here

BLOCK: Final = 128
"""Entries that share a scale."""

LARGEST: Final = 127
"""The largest code."""

# What the Hadamard matrix mixes: entries of a block that are this far apart, and less so by halves.
_NEAREST: Final = 4


_ROWS: Final = 6  # of a tile


def bytes_of(target: Target) -> int:
    """What a block of a panel of weights takes: what sums start with, scales, codes."""
    # Bytes: a start of 4, a scale of 4, and BLOCK codes for each column.
    return panel_of(target) * (4 + 4 + BLOCK)


def kernels(target: Target) -> Any:
    """The module, to be compiled, with the function

        product(x, codes, scales, weights, base, step, out, out_step, rows, width, depth, at_once,
                with_gelu)

    x: float32 (rows, depth). So many rows as are worked with at once are made codes, and multiplied while
    these are in a cache; `codes` and `scales` have room for them. weights: as `Int8Product` packs them.

        out[i * out_step + o] = base[i * step + o] + sum over blocks k of
            scales[i, k] weight_scales[o, k] (sum over j in k of codes[i, j] weights[o, j])

    with the codes that `Int8Product` tells, and GELU of that where with_gelu is not 0; base may be out.
    """
    module = ir.Module()
    codes_of = _codes(module, target)
    # Sums of so many rows and two registers of columns stay in the registers, 16 of AVX2 and 32 of AVX-512.
    tile_of = {count: _tile(module, target, count) for count in range(1, _ROWS + 1)}
    function, b = exported(module, "product", *[PTR] * 5, I64, PTR, *[I64] * 6)
    x, codes, scales, weights, base, step, out, *numbers = function.args
    sizes = Sizes(*numbers)
    # Blocks of a row: depth is a multiple of BLOCK.
    blocks = b.sdiv(sizes.depth, whole(BLOCK))

    def make_codes(first: Any, count: Any) -> None:
        entries = place(b, x, b.mul(first, sizes.depth), F32)
        b.call(codes_of, [entries, codes, scales, b.mul(count, blocks)])

    def tile(count: int, first: Any, row: Any, column: Any) -> None:
        at = b.add(first, row)
        # All blocks of the panels before this one.
        bytes_before = b.mul(b.mul(column, blocks), whole(bytes_of(target) // panel_of(target)))
        arguments = [
            place(b, codes, b.mul(row, sizes.depth), I8),
            # A block has two floats: its scale, and -ROUNDS times that.
            place(b, scales, b.mul(b.mul(row, blocks), whole(2)), F32),
            blocks,
            place(b, weights, bytes_before, I8),
            place(b, base, b.add(b.mul(at, step), column), F32),
            step,
            place(b, out, b.add(b.mul(at, sizes.out_step), column), F32),
            sizes.out_step,
        ]
        b.call(tile_of[count], arguments)

    by_panels(module, b, target, sizes, out, most=_ROWS, normal=COARSE, make_codes=make_codes, tile=tile)
    b.ret_void()
    return module


def _codes(module: Any, target: Target) -> Any:
    """The codes and scales of some blocks, which lie one after the other."""
    lanes = target.lanes
    floats, bits_of = vector(F32, lanes), vector(I32, lanes)
    umax = intrinsic(module, f"llvm.umax.v{lanes}i32", bits_of, bits_of, bits_of)

    def larger(b: Any, one: Any, other: Any) -> Any:
        return b.call(umax, [one, other])

    function, b = internal(module, "codes", PTR, PTR, PTR, I64)
    x, codes, scales, count = function.args
    with loop(b, whole(0), count, whole(1)) as block:
        # (BLOCK / lanes) registers hold the block.
        start = b.mul(block, whole(BLOCK))
        entries = place(b, x, start, F32)
        parts = [load(b, entries, whole(place_of), floats) for place_of in range(0, BLOCK, lanes)]
        turned = _turned(module, b, parts, lanes)
        # Without their signs, floats are in the order of their bits, and what is not a number is above all.
        sizes = [b.and_(b.bitcast(each, bits_of), filled(bits_of, 0x7FFFFFFF)) for each in turned]
        # In pairs, in log2 steps.
        while len(sizes) > 1:
            sizes = [larger(b, one, other) for one, other in zip(sizes[::2], sizes[1::2], strict=True)]
        # m = max |u|, as a float again.
        most = b.bitcast(over_lanes(b, sizes[0], larger), F32)
        scale, pair = b.fmul(most, ir.Constant(F32, 1 / LARGEST)), b.mul(block, whole(2))
        store(b, scale, scales, pair)
        # With it one fma takes the 1.5 x 2^23 off and scales: (ROUNDS + s) scale - ROUNDS scale.
        store(b, b.fmul(scale, ir.Constant(F32, -ROUNDS)), scales, b.add(pair, whole(1)))
        # 127 / m; of a block of zeros infinite, and 0 times infinity no number, whose lowest byte does
        # not matter since its scale is 0.
        steps = spread(b, b.fdiv(ir.Constant(F32, float(LARGEST)), most), floats)
        for number, register in enumerate(turned):
            # The instruction takes codes without a sign: 128 stands for 0.
            numbers = fma(module, b, register, steps, filled(floats, ROUNDS + 128))
            code_bytes = b.trunc(b.bitcast(numbers, bits_of), vector(I8, lanes))
            store(b, code_bytes, codes, b.add(start, whole(lanes * number)))
    b.ret_void()
    return function


def _turned(module: Any, b: Any, parts: list[Any], lanes: int) -> list[Any]:
    """A block times the Hadamard matrix that mixes entries 64, 32, 16, 8 and 4 apart."""
    # First the mixing across registers (lanes and more apart), by sums and differences.
    distance = 1
    while distance < len(parts):
        for number in range(len(parts)):
            if not number & distance:
                one, other = parts[number], parts[number + distance]
                parts[number], parts[number + distance] = b.fadd(one, other), b.fsub(one, other)
        distance *= 2
    # Then within a register: each lane plus or minus its partner.
    distance = lanes // 2
    while distance >= _NEAREST:
        # a + b in the lane below, b's partner minus itself in the lane above: one fma with signs.
        signs = ir.Constant(parts[0].type, [-1.0 if lane & distance else 1.0 for lane in range(lanes)])
        swapped = [lane ^ distance for lane in range(lanes)]
        parts = [fma(module, b, each, signs, picked(b, each, each, swapped)) for each in parts]
        distance //= 2
    return parts


def _tile(module: Any, target: Target, count: int) -> Any:
    """So many rows, and the columns of a panel."""
    lanes, panel_width = target.lanes, panel_of(target)
    floats, sums_of = vector(F32, lanes), vector(I32, lanes)
    halves = [whole(0), whole(lanes)]
    function, b = internal(module, f"tile{count}", PTR, PTR, I64, PTR, PTR, I64, PTR, I64)
    codes, scales, blocks, panel, base, step, out, out_step = function.args
    depth = b.mul(blocks, whole(BLOCK))
    # The totals begin with the base, (count, 2).
    starts = [
        load(b, base, b.add(b.mul(whole(row), step), half), floats) for row in range(count) for half in halves
    ]
    # Blocks along the depth; each has scales of its own.
    with summing(b, blocks, 1, starts) as (k, totals, results):
        # A block of the panel: starts, scales, then codes in fours.
        here = place(b, panel, b.mul(k, whole(bytes_of(target))), I8)
        begin = [load(b, here, half, sums_of) for half in halves]
        column_scales = [load(b, place(b, here, whole(4 * panel_width), I8), half, floats) for half in halves]
        quads = place(b, here, whole(8 * panel_width), I8)
        first = b.mul(k, whole(BLOCK))
        rows = [place(b, codes, b.add(b.mul(whole(row), depth), first), I8) for row in range(count)]
        # Four entries of depth at a time; the sums start at what takes the 128s off.
        with summing(b, whole(BLOCK), 4, begin * count) as (j, sums, added):
            columns = [
                load(b, place(b, quads, b.mul(j, whole(panel_width)), I8), half, sums_of) for half in halves
            ]
            for row in range(count):
                quad = spread(b, b.load(place(b, rows[row], j, I8), typ=I32, align=1), sums_of)
                added += [
                    add_fours(module, b, sums[2 * row + half], quad, columns[half]) for half in range(2)
                ]
        for row in range(count):
            # The sums begin at the bits of a float that leaves whole numbers in the lowest ones.
            # (scale, -ROUNDS scale) of this row's block.
            pair = place(b, scales, b.mul(b.add(b.mul(whole(row), blocks), k), whole(2)), F32)
            scale, begun = (spread(b, load(b, pair, whole(number), F32), floats) for number in range(2))
            for half in range(2):
                # No conversion: the bits of the sum are those of 1.5 x 2^23 + the sum.
                shifted = b.bitcast(added[2 * row + half], floats)
                # sum * scale of the row's block
                value = fma(module, b, shifted, scale, begun)
                # + that * scale of the column's block
                results.append(fma(module, b, value, column_scales[half], totals[2 * row + half]))
    for row in range(count):
        for number, half in enumerate(halves):
            store(b, results[2 * row + number], out, b.add(b.mul(whole(row), out_step), half))
    b.ret_void()
    return function


# Entries 4, 8, 16, 32 and 64 apart are mixed.
_ORDER: Final = 32
# Those of 1.5 x 2^23 in float32.
_BITS: Final = 0x4B400000


class Int8Product(KernelProduct):
    """x -> x W^T + bias, with codes of 8 bits, and a scale for each 128 entries of a row.

    Entries far above the others would leave these no codes. So each block of 128 is multiplied by
    B = H (x) I_4 first, where H is the Hadamard matrix of order 32; since B B^T = 32 I, it is enough to do
    the same to the weights, and to divide by 32. With u = x B and w = W B / 32, and for each block k

        s_ik = max_j |u_ij| / 127,  a_ij = round(u_ij / s_ik)
        t_ok = max_j |w_oj| / 127,  c_oj = round(w_oj / t_ok)
        y_io = b_o + sum over k of s_ik t_ok (sum over j in k of a_ij c_oj)

    The inner sums are of whole numbers and exact. A row's numbers are the same whatever else is in the batch.
    What rounding does to y has, of rows and weights without a pattern, some 0.9 percent of its norm.

    Args:
        weight: float32 (width, depth), on the CPU: depth a multiple of 128, width of 16, or of 32 on
            processors with AVX-512.
        bias: float32 (width,).

    Source: codes of 8 bits with a scale for each row and column: Dettmers et al. 2022, arXiv 2208.07339,
    section 2.1. Hadamard matrices against entries that stand out: Ashkboos et al. 2024 (QuaRot),
    arXiv 2404.00456, section 4.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        target = here()
        panel = panel_of(target)
        width, depth = weight.shape
        # (width * blocks, BLOCK): W B / 32, block after block.
        turned = weight.detach().float().reshape(-1, BLOCK) @ _mixing() / _ORDER
        # One scale for each row of W and each block.
        scales = turned.abs().amax(dim=1, keepdim=True) / LARGEST
        codes = (turned / torch.where(scales == 0, 1.0, scales)).round_()
        # Activations have 128 for 0: what that adds is taken off from the start. The sums stay below 2^22,
        # and become the lowest bits of a float.
        begin = _BITS - (128 * codes.sum(dim=1)).to(torch.int32)
        panels = (width // panel, panel, depth // BLOCK)
        # Column after column of a panel, four codes of each: what one instruction multiplies.
        fours = codes.to(torch.int8).view(torch.int32).view(*panels, BLOCK // 4).permute(0, 2, 3, 1)
        of_panels = (begin.view(panels), scales.float().view(torch.int32).view(panels))
        parts = [each.transpose(1, 2).unsqueeze(2) for each in of_panels]
        weights = torch.cat([*parts, fours], dim=2).contiguous()
        super().__init__(_product(target), [weights], width, depth, bias)

    @staticmethod
    def takes(weight: Tensor) -> bool:
        """Whether the weight's sizes are those that the kernels know."""
        width, depth = weight.shape
        return width % panel_of(here()) == 0 and depth % BLOCK == 0

    def _room(self, rows: int) -> tuple[Tensor, Tensor]:
        blocks = self._depth // BLOCK
        return torch.empty(rows, self._depth, dtype=torch.uint8), torch.empty(rows, blocks, 2)


@cache
def _product(target: Target) -> Callable[..., None]:
    """The kernel; compiled once a process, which takes some 0.1 s."""
    return compiled(lambda: kernels(target), "product", *[ADDRESS] * 5, NUMBER, ADDRESS, *[NUMBER] * 6)


@cache
def _mixing() -> Tensor:
    """(128, 128): H (x) I_4, without the root."""
    # Sylvester's construction: H_2n = [[H, H], [H, -H]].
    hadamard = torch.ones(1, 1)
    while len(hadamard) < _ORDER:
        hadamard = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), hadamard)
    return torch.kron(hadamard, torch.eye(BLOCK // _ORDER))
