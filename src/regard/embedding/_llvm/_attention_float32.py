"""Attention of short texts, in LLVM's representation: a head's scores never leave the first cache."""

import math
from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]

from regard.embedding._llvm._attention import Attention, Head, by_heads
from regard.embedding._llvm._exponential import exp2
from regard.embedding._llvm._ir import (
    F32,
    I32,
    I64,
    PTR,
    filled,
    fma,
    internal,
    larger,
    load,
    loop,
    over_lanes,
    place,
    spread,
    store,
    summing,
    transposed,
    vector,
    whole,
    zeros,
)
from regard.embedding._llvm._target import Target

# By the lanes of a register: tokens of a text up to which this is faster than torch's attention.
_LONGEST: Final = {16: 512, 8: 64}


def _takes(target: Target, head_dim: int, length: int) -> bool:
    # Four registers for each query are as many as leave room for others.
    lanes = target.lanes
    return head_dim % lanes == 0 and head_dim <= 4 * lanes and length <= _LONGEST[lanes]


def _queries_of(target: Target, head_dim: int) -> int:
    """The queries that are worked out together: their contexts fill half of the registers."""
    return max(1, min(8, target.lanes * target.lanes // head_dim))


def _padded(length: int, lanes: int) -> int:
    return -(-length // lanes) * lanes


def _scratch(target: Target, head_dim: int, length: int) -> int:
    return 4 * _padded(length, target.lanes) * (head_dim + _queries_of(target, head_dim))


def _kernel(target: Target, head_dim: int) -> Any:
    module, together = ir.Module(), _queries_of(target, head_dim)
    transpose = _transposed_keys(module, target, head_dim)
    made_by = {
        count: _queries(module, target, head_dim, count) for count in {together, max(1, together // 2), 1}
    }

    def begin(b: Any, head: Head) -> Any:
        lanes = whole(target.lanes)
        padded = b.mul(b.sdiv(b.add(head.length, whole(target.lanes - 1)), lanes), lanes)
        scores = place(b, head.scratch, b.mul(padded, whole(head_dim)), F32)
        b.call(transpose, [head.keys, head.step, head.length, padded, head.scratch])

        def run(count: int, first: Any) -> None:
            queries = place(b, head.queries, b.mul(first, head.step), F32)
            out = place(b, head.context, b.mul(first, head.width), F32)
            keys, values = head.scratch, head.values
            arguments = [queries, head.step, keys, values, head.length, padded, scores, out, head.width]
            b.call(made_by[count], arguments)

        return run

    by_heads(module, head_dim, together, begin)
    return module


FLOAT32: Final = Attention(_takes, _scratch, _kernel)
"""All in float32."""


def _transposed_keys(module: Any, target: Target, head_dim: int) -> Any:
    """(length, head_dim) -> (head_dim, padded); behind the last key it stands again."""
    lanes, floats = target.lanes, vector(F32, target.lanes)
    function, b = internal(module, "transpose", PTR, I64, I64, I64, PTR)
    keys, step, length, padded, made = function.args
    last = b.sub(length, whole(1))
    with (
        loop(b, whole(0), padded, whole(lanes)) as first,
        loop(b, whole(0), whole(head_dim), whole(lanes)) as entry,
    ):
        rows = []
        for number in range(lanes):
            key = b.add(first, whole(number))
            key = b.select(b.icmp_signed("<", key, last), key, last)
            rows.append(load(b, place(b, keys, b.mul(key, step), F32), entry, floats))
        for number, row in enumerate(transposed(b, rows)):
            store(b, row, made, b.add(b.mul(b.add(entry, whole(number)), padded), first))
    b.ret_void()
    return function


def _queries(module: Any, target: Target, head_dim: int, count: int) -> Any:
    """The contexts of so many queries that follow one another."""
    lanes, floats = target.lanes, vector(F32, target.lanes)
    function, b = internal(module, f"queries{count}", PTR, I64, PTR, PTR, I64, I64, PTR, PTR, I64)
    queries, step, keys, values, length, padded, scores, out, width = function.args
    rows = [place(b, queries, b.mul(whole(row), step), F32) for row in range(count)]
    of_row = [place(b, scores, b.mul(whole(row), padded), F32) for row in range(count)]
    numbers = ir.Constant(vector(I32, lanes), list(range(lanes)))
    nothing = filled(floats, -math.inf)
    with summing(b, padded, lanes, [nothing] * count) as (key, highest, out_highest):
        with summing(b, whole(head_dim), 1, [zeros(floats)] * count) as (entry, sums, added):
            column = load(b, place(b, keys, b.mul(entry, padded), F32), key, floats)
            for row, total in zip(rows, sums, strict=True):
                added.append(fma(module, b, spread(b, load(b, row, entry, F32), floats), column, total))
        left = spread(b, b.trunc(b.sub(length, key), I32), numbers.type)
        is_key = b.icmp_signed("<", numbers, left)
        for place_of, total, most in zip(of_row, added, highest, strict=True):
            score = b.select(is_key, total, nothing)
            store(b, score, place_of, key)
            out_highest.append(larger(b, most, score))
    tops = [spread(b, over_lanes(b, each, larger), floats) for each in out_highest]
    to_two = filled(floats, math.log2(math.e))
    with summing(b, padded, lanes, [zeros(floats)] * count) as (key, totals, out_totals):
        for place_of, top, total in zip(of_row, tops, totals, strict=True):
            distance = b.fsub(load(b, place_of, key, floats), top)
            weight = exp2(module, b, b.fmul(distance, to_two))
            store(b, weight, place_of, key)
            out_totals.append(b.fadd(total, weight))
    parts = range(0, head_dim, lanes)
    with summing(b, length, 1, [zeros(floats)] * (count * len(parts))) as (key, sums, added):
        value = [load(b, place(b, values, b.mul(key, step), F32), whole(part), floats) for part in parts]
        for row in range(count):
            weight = spread(b, load(b, of_row[row], key, F32), floats)
            for part, each in enumerate(value):
                added.append(fma(module, b, weight, each, sums[row * len(parts) + part]))
    for row in range(count):
        total = over_lanes(b, out_totals[row], lambda b, *pair: b.fadd(*pair))
        share = spread(b, b.fdiv(ir.Constant(F32, 1.0), total), floats)
        for number, part in enumerate(parts):
            context = b.fmul(added[row * len(parts) + number], share)
            store(b, context, out, b.add(b.mul(whole(row), width), whole(part)))
    b.ret_void()
    return function
