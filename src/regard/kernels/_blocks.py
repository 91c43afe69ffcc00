"""Weights in blocks of a few bits, unpacked or multiplied where they lie; in LLVM's representation."""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

from regard.kernels._block_types import BLOCK_TYPES, Block, BlockType
from regard.kernels._few_rows import _in_threads
from regard.kernels._ir import (
    F32,
    I8,
    I16,
    I32,
    I64,
    PTR,
    carrying,
    exported,
    filled,
    fma,
    internal,
    ir,
    load,
    loop,
    over_lanes,
    place,
    portions,
    store,
    tiles,
    vector,
    whole,
    zeros,
)
from regard.kernels._target import ADDRESS, Target, compiled, here

UNPACK: Final = ("next", "blocks", "out", "rows", "count", "half")
"""What `unpack` is told, int64 each; the first counts the portions that have been taken."""

PRODUCT: Final = ("next", "x", "blocks", "bias", "out", "rows", "width", "count")
"""What `product` is told."""

MOST_ROWS: Final = 8
"""More rows of x go through numbers that are unpacked once for all. (Measured on an AMD Zen 5: from 8 to 12
rows on, unpacking and torch's product take less time.)"""

_ROWS: Final = 4
"""Rows of a tile, for which a block is unpacked once: their sums stay in the registers."""


def unpack(target: Target, kind: BlockType) -> Any:
    """The module, to be compiled, with the function

        unpack(job)         out[i, j] = the number that entry j of row i of the blocks stands for

    job: int64 (6,), as `UNPACK` names them. blocks: rows of `count` blocks, one after the other. out:
    float32, or bfloat16 where half is not 0. Every thread that is to work calls it with the same job.
    """
    module = ir.Module()
    function, b = exported(module, "unpack", PTR)
    (job,) = function.args
    job_of = _told(b, job, UNPACK)
    blocks, out = b.inttoptr(job_of["blocks"], PTR), b.inttoptr(job_of["out"], PTR)
    # One branch a block: the numbers are worked out in one way, and stored in one of two.
    rounds = b.icmp_signed("!=", job_of["half"], whole(0))
    with portions(b, job, job_of["rows"]) as (start, stop):
        # Rows become blocks: they lie one after the other without gaps.
        first, last = (b.mul(each, job_of["count"]) for each in (start, stop))
        with loop(b, first, last, whole(1)) as number:
            at = place(b, blocks, b.mul(number, whole(kind.size)), I8)
            entry = b.mul(number, whole(kind.entries))
            numbers = kind.numbers(Block(module, b, target.lanes, at))
            with b.if_else(rounds) as (short, wide):
                for branch, rounded in ((short, True), (wide, False)):
                    with branch:
                        for turn, each in enumerate(numbers):
                            place_of = b.add(entry, whole(turn * target.lanes))
                            store(b, _bfloat16(b, each) if rounded else each, out, place_of)
    b.ret_void()
    return module


def product(target: Target, kind: BlockType) -> Any:
    """The module, to be compiled, with the function

        product(job)        out[i, o] = bias[o] + sum over j of x[i, j] weight[o, j]

    job: int64 (8,), as `PRODUCT` names them. x: float32 (rows, depth); blocks: the weight, (width, count
    blocks); bias: float32 (width,); out: float32 (rows, width); all without gaps.
    """
    module = ir.Module()
    tile_of = {rows: _tile(module, target, kind, rows) for rows in range(1, _ROWS + 1)}
    function, b = exported(module, "product", PTR)
    (job,) = function.args
    # The job is one array of whole numbers, so that a thread gets one argument.
    job_of = _told(b, job, PRODUCT)
    x, blocks, bias, out = (b.inttoptr(job_of[name], PTR) for name in ("x", "blocks", "bias", "out"))
    width, count = job_of["width"], job_of["count"]
    depth = b.mul(count, whole(kind.entries))
    # A column of the result is a row of the weight.
    with portions(b, job, width) as (start, stop), loop(b, start, stop, whole(1)) as column:
        own = place(b, blocks, b.mul(column, b.mul(count, whole(kind.size))), I8)
        begun = load(b, bias, column, F32)

        # All rows of x, some at a time, while this row of the weight is in the cache.
        def tile(rows: int, row: Any) -> None:
            rows_of_x = place(b, x, b.mul(row, depth), F32)
            to = place(b, out, b.add(b.mul(row, width), column), F32)
            b.call(tile_of[rows], [rows_of_x, own, begun, to, width, count])

        tiles(b, job_of["rows"], _ROWS, tile)
    b.ret_void()
    return module


def _tile(module: Any, target: Target, kind: BlockType, rows: int) -> Any:
    """So many rows of x times one row of the weight."""
    floats = vector(F32, target.lanes)
    function, b = internal(module, f"tile{rows}", PTR, PTR, F32, PTR, I64, I64)
    x, blocks, begun, out, width, count = function.args
    depth = b.mul(count, whole(kind.entries))
    of_x = [place(b, x, b.mul(whole(row), depth), F32) for row in range(rows)]
    # Sums of odd and of even registers apart: none waits for the one before.
    with carrying(b, whole(0), count, whole(1), [zeros(floats)] * (2 * rows)) as (number, sums, out_sums):
        at = place(b, blocks, b.mul(number, whole(kind.size)), I8)
        entry = b.mul(number, whole(kind.entries))
        # (rows, 2): the sums of even and of odd registers.
        added = list(sums)
        for turn, weights in enumerate(kind.numbers(Block(module, b, target.lanes, at))):
            place_of = b.add(entry, whole(turn * target.lanes))
            for row in range(rows):
                mine = 2 * row + turn % 2
                added[mine] = fma(module, b, weights, load(b, of_x[row], place_of, floats), added[mine])
        out_sums += added
    for row in range(rows):
        # Even and odd, then lanes, then the bias.
        total = over_lanes(b, b.fadd(*out_sums[2 * row : 2 * row + 2]), lambda b, *two: b.fadd(*two))
        store(b, b.fadd(total, begun), out, b.mul(whole(row), width))
    b.ret_void()
    return function


def _told(b: Any, job: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: load(b, job, whole(at), I64) for at, name in enumerate(names)}


def _bfloat16(b: Any, number: Any) -> Any:
    """Floats rounded to the nearest bfloat16, to the even one of two."""
    wide = vector(I32, number.type.count)
    bits = b.bitcast(number, wide)
    # The lowest bit that stays: where it is 1, halves are rounded up, else down.
    odd = b.and_(b.lshr(bits, filled(wide, 16)), filled(wide, 1))
    rounded = b.add(bits, b.add(odd, filled(wide, 0x7FFF)))
    return b.trunc(b.lshr(rounded, filled(wide, 16)), vector(I16, wide.count))


@cache
def unpacking(kind: str) -> Callable[[Tensor, Tensor], None] | None:
    """unpack(blocks, numbers), in the threads of torch, for blocks of a type; None where there is no kernel.

    blocks: uint8 (rows, bytes of a row); numbers: float32 or bfloat16 (rows, entries of a row).
    """
    known = BLOCK_TYPES.get(kind)
    if known is None:
        return None
    function = _address("unpack", kind)

    def run(blocks: Tensor, numbers: Tensor) -> None:
        # The kernel gets nothing but addresses.
        assert blocks.dtype == torch.uint8, blocks.dtype
        assert numbers.dtype in (torch.float32, torch.bfloat16), numbers.dtype
        assert blocks.is_contiguous(), blocks.stride()
        assert numbers.is_contiguous(), numbers.stride()
        rows, count = len(blocks), blocks.shape[1] // known.size
        assert numbers.shape == (rows, count * known.entries), (blocks.shape, numbers.shape)
        # bool becomes 0 or 1 in the job.
        half = numbers.dtype == torch.bfloat16
        _run(function, UNPACK, 0, blocks.data_ptr(), numbers.data_ptr(), rows, count, half)

    return run


def multiplying(kind: str, blocks: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor] | None:
    """product(x) = x W^T + bias, float32 (rows, width), for a few rows of x; None where there is no kernel.

    blocks: uint8 (width, bytes of a row), as its memory is then; bias: (width,), or None. x: (rows, depth),
    in any type that becomes float32, at most `MOST_ROWS` rows.
    """
    known = BLOCK_TYPES.get(kind)
    if known is None:
        return None
    # The kernel gets nothing but addresses, and they are asked for once.
    assert blocks.dtype == torch.uint8, blocks.dtype
    assert blocks.is_contiguous(), blocks.stride()
    width, count = len(blocks), blocks.shape[1] // known.size
    # Without a bias the kernel adds zeros, so that there is one kernel.
    base = torch.zeros(width) if bias is None else bias.detach().float().contiguous()
    assert base.shape == (width,), base.shape
    # Looked up once: `run` is called for each token that is written.
    function, in_threads, depth = _address("product", kind), _in_threads(), count * known.entries
    of_weight = blocks.data_ptr(), base.data_ptr()
    job, threads = ctypes.c_int64 * len(PRODUCT), torch.get_num_threads

    def run(x: Tensor) -> Tensor:
        rows, own = x.shape
        # `blocks` and `base` are named here, so that `run` holds their memory, of which the kernel has
        # only addresses.
        assert own == depth, (x.shape, blocks.shape, base.shape)
        x = x.detach().float().contiguous()
        out = torch.empty(rows, width)
        own_job = job(0, x.data_ptr(), *of_weight, out.data_ptr(), rows, width, count)
        in_threads(function, own_job, threads(), 0)
        return out

    return run


def _run(function: int, names: tuple[str, ...], *told: int) -> None:
    # The first number, 0, is the counter of portions.
    job = (ctypes.c_int64 * len(names))(*told)
    _in_threads()(function, job, torch.get_num_threads(), 0)


@cache
def _address(name: str, kind: str) -> int:
    """A kernel's address; compiled once a process, which takes some 0.1 s."""
    make = {"unpack": unpack, "product": product}[name]
    # `Any`, since ctypes has no type for what becomes an address.
    made: Any = compiled(lambda: make(here(), BLOCK_TYPES[kind]), name, ADDRESS)
    return ctypes.cast(made, ctypes.c_void_p).value or 0
