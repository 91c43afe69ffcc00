"""Attention in float32, in LLVM's representation: a head's scores never leave the first cache."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]

from regard.kernels._attention import Attention, Head, by_heads, together_of
from regard.kernels._ir import (
    F32,
    I32,
    I64,
    PTR,
    carrying,
    exp2,
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
from regard.kernels._target import Target

# Tokens up to which this is faster than torch's attention; with AVX-512 up to some 4,096.
_LONGEST: Final = 512


def _takes(target: Target, head_dim: int, length: int) -> bool:
    return head_dim % target.lanes == 0 and length <= _LONGEST


def _padded(length: int, lanes: int) -> int:
    return -(-length // lanes) * lanes


def _scratch(target: Target, head_dim: int, length: int) -> int:
    # Bytes: the keys transposed (head_dim, padded), then scores (queries at once, padded), all float32.
    return 4 * _padded(length, target.lanes) * (head_dim + together_of(target))


def _kernel(target: Target, head_dim: int) -> Any:
    module = ir.Module()
    transpose = _transposed_keys(module, target, head_dim)

    def begin(b: Any, head: Head) -> tuple[Callable[[Any], Any], list[Any]]:
        lanes = whole(target.lanes)
        # The tokens, rounded up to whole registers.
        padded = b.mul(b.sdiv(b.add(head.length, whole(target.lanes - 1)), lanes), lanes)
        scores = place(b, head.scratch, b.mul(padded, whole(head_dim)), F32)
        b.call(transpose, [head.keys, head.step, head.length, padded, head.scratch])

        def query_at(number: Any) -> Any:
            return place(b, head.queries, b.mul(number, head.step), F32)

        return query_at, [head.step, head.scratch, head.values, head.length, padded, scores]

    by_heads(module, target, head_dim, partial(_queries, module, target, head_dim), begin)
    return module


FLOAT32: Final = Attention(_takes, _scratch, _kernel)
"""All in float32."""


def _transposed_keys(module: Any, target: Target, head_dim: int) -> Any:
    """(length, head_dim) -> (head_dim, padded); behind the last key it stands again."""
    # Square blocks of lanes x lanes are turned in the registers: so reading and writing both go along
    # rows.
    lanes, floats = target.lanes, vector(F32, target.lanes)
    function, b = internal(module, "transpose", PTR, I64, I64, I64, PTR)
    keys, step, length, padded, columns = function.args
    last = b.sub(length, whole(1))
    with (
        loop(b, whole(0), padded, whole(lanes)) as first,
        loop(b, whole(0), whole(head_dim), whole(lanes)) as entry,
    ):
        rows = []
        for number in range(lanes):
            key = b.add(first, whole(number))
            # Beyond the end the last key is read again: whatever lies there could be infinite.
            key = b.select(b.icmp_signed("<", key, last), key, last)
            rows.append(load(b, place(b, keys, b.mul(key, step), F32), entry, floats))
        for number, row in enumerate(transposed(b, rows)):
            store(b, row, columns, b.add(b.mul(b.add(entry, whole(number)), padded), first))
    b.ret_void()
    return function


def _queries(module: Any, target: Target, head_dim: int, count: int) -> Any:
    """The contexts of `count` queries that follow one another."""
    lanes, floats = target.lanes, vector(F32, target.lanes)
    function, b = internal(module, f"queries{count}", PTR, I64, PTR, PTR, I64, I64, PTR, PTR, I64)
    queries, step, keys, values, length, padded, scores, out, width = function.args
    # rows: where each query begins; of_row: where its scores begin, (count, padded).
    rows = [place(b, queries, b.mul(whole(row), step), F32) for row in range(count)]
    of_row = [place(b, scores, b.mul(whole(row), padded), F32) for row in range(count)]
    numbers = ir.Constant(vector(I32, lanes), list(range(lanes)))
    nothing = filled(floats, -math.inf)

    highest, first = [nothing] * count, whole(0)
    # First: the scores q.k, with their largest of each query as they come.
    for registers in (2, 1):  # of keys at once, and what is left
        stop = b.sub(padded, b.srem(padded, whole(registers * lanes)))
        with carrying(b, first, stop, whole(registers * lanes), highest) as (key, before, out_highest):
            keys_of = [b.add(key, whole(lanes * number)) for number in range(registers)]
            # One sum a query and a register of keys, over the entries of the head.
            with summing(b, whole(head_dim), 1, [zeros(floats)] * (count * registers)) as (
                entry,
                sums,
                added,
            ):
                here = place(b, keys, b.mul(entry, padded), F32)
                columns = [load(b, here, each, floats) for each in keys_of]
                for row in rows:
                    own = spread(b, load(b, row, entry, F32), floats)
                    for column in columns:
                        added.append(fma(module, b, own, column, sums[len(added)]))
            results = iter(added)
            # Behind the last key stands -inf, whose weight is 0.
            for place_of, most in zip(of_row, before, strict=True):
                for first_key in keys_of:
                    left = spread(b, b.trunc(b.sub(length, first_key), I32), numbers.type)
                    score = b.select(b.icmp_signed("<", numbers, left), next(results), nothing)
                    store(b, score, place_of, first_key)
                    most = larger(b, most, score)
                out_highest.append(most)
        highest, first = out_highest, stop
    # m_i of every query, in all lanes of a register.
    tops = [spread(b, over_lanes(b, each, larger), floats) for each in highest]
    # exp(s - m) = 2^((s - m) log2(e))
    to_two = filled(floats, math.log2(math.e))
    # Second: the weights over the scores, and their sums of each query.
    with summing(b, padded, lanes, [zeros(floats)] * count) as (key, totals, out_totals):
        for place_of, top, total in zip(of_row, tops, totals, strict=True):
            distance = b.fsub(load(b, place_of, key, floats), top)
            weight = exp2(module, b, b.fmul(distance, to_two))
            store(b, weight, place_of, key)
            out_totals.append(b.fadd(total, weight))
    # One division a query: 1 / sum of its weights.
    shares = []
    for total in out_totals:
        of_row_total = over_lanes(b, total, lambda b, *pair: b.fadd(*pair))
        shares.append(spread(b, b.fdiv(ir.Constant(F32, 1.0), of_row_total), floats))
    # Third: the sums of weights times values, for so many entries of the head that they stay in
    # registers.
    at_once = target.accumulators // count * lanes
    for first in range(0, head_dim, at_once):
        parts = range(first, min(first + at_once, head_dim), lanes)
        # (count, parts): `sums` come in as `added` of the round before.
        with summing(b, length, 1, [zeros(floats)] * (count * len(parts))) as (key, sums, added):
            here = place(b, values, b.mul(key, step), F32)
            columns = [load(b, here, whole(part), floats) for part in parts]
            for place_of in of_row:
                weight = spread(b, load(b, place_of, key, F32), floats)
                for column in columns:
                    added.append(fma(module, b, weight, column, sums[len(added)]))
        results = iter(added)
        for row, share in enumerate(shares):
            for part in parts:
                context = b.fmul(next(results), share)
                store(b, context, out, b.add(b.mul(whole(row), width), whole(part)))
    b.ret_void()
    return function
