"""Attention with whole numbers, in LLVM's representation.

One instruction of processors with VNNI (`vpdpbusd`) multiplies bytes and adds four products each, and another
(`vpdpwssd`) two of numbers of 16 bits. In a head of a text,

    a_i = round(127 q_i / Q),  b_j = round(127 k_j / K)      Q, K: the largest entries, without their signs
    w_ij = exp(Q K / 127^2 (a_i.b_j - max_l a_i.b_l)),  e_ij = round(8191 w_ij)
    c_jd = round(511 v_jd / V_d)                             V_d: the largest of a dimension, without signs
    context_id = V_d / 511 (sum over j of e_ij c_jd) / sum over j of e_ij

The sums of products are of whole numbers and exact: those with weights stay below 2^31 up to 512 tokens.
Weights have more bits than what scores are made of, since most of a text's can be far below the largest and
outweigh it together.

Source: codes of 8 bits for queries and keys, and more for what is summed with the weights: Zhang et al. 2024
(SageAttention), arXiv 2410.02367, section 4.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]

from regard.kernels._attention import Attention, Head, by_heads, together_of
from regard.kernels._ir import (
    F32,
    I8,
    I16,
    I32,
    I64,
    PTR,
    ROUNDS,
    add_fours,
    add_pairs,
    exp2,
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
    transposed,
    vector,
    whole,
    zeros,
)
from regard.kernels._target import Target

# The largest codes, without their signs.
# -127..127: what fits a byte with its sign, symmetric about 0.
_SCORED: Final = 127
# 2^13 - 1: 512 tokens times 8191 times 511 is 2,143,027,712 in the worst case, just below 2^31.
_WEIGHT: Final = 8191
_VALUE: Final = 511
_LONGEST: Final = 512  # tokens: more could need more than 32 bits
# Tokens from which on this is faster than attention in float32.
_SHORTEST: Final = 17
# The bits of 1.5 x 2^23 in float32: sums that begin there are the lowest bits of a float.
_BITS: Final = 0x4B400000


def _takes(target: Target, head_dim: int, length: int) -> bool:
    return target.vnni and head_dim in (32, 64) and _SHORTEST <= length <= _LONGEST


def _scratch(target: Target, head_dim: int, length: int) -> int:
    keys = 2 * target.lanes
    # Scores of two registers of keys are worked out together: the tokens are rounded up to them.
    padded = -(-length // keys) * keys
    # For each token: codes of its query (1), key (1) and value (2 bytes an entry), 4 bytes of a panel's
    # start, and the scores. Then the steps of each dimension, and that of scores.
    return padded * (4 * head_dim + 4 + 4 * together_of(target)) + 4 * (head_dim + 1)


def _panel(target: Target, head_dim: int) -> int:
    """The bytes of a register of keys: what sums of products with them start with, and codes."""
    return target.lanes * (4 + head_dim)


def _kernel(target: Target, head_dim: int) -> Any:
    module = ir.Module()
    prepare = _prepared(module, target, head_dim)

    def begin(b: Any, head: Head) -> tuple[Callable[[Any], Any], list[Any]]:
        # The room is divided: queries, keys in panels, values, steps, scores of the queries at once.
        at_once = 2 * target.lanes
        padded = b.mul(b.sdiv(b.add(head.length, whole(at_once - 1)), whole(at_once)), whole(at_once))
        queries, keys = head.scratch, place(b, head.scratch, b.mul(padded, whole(head_dim)), I8)
        values = place(b, keys, b.mul(padded, whole(head_dim + 4)), I8)
        steps = place(b, values, b.mul(padded, whole(2 * head_dim)), I8)
        scores = place(b, steps, whole(head_dim + 1), F32)
        read = [head.queries, head.keys, head.values, head.step, head.length, padded]
        b.call(prepare, [*read, queries, keys, values, steps])

        def query_at(number: Any) -> Any:
            return place(b, queries, b.mul(number, whole(head_dim)), I8)

        return query_at, [keys, values, steps, head.length, padded, scores]

    by_heads(module, target, head_dim, partial(_queries, module, target, head_dim), begin)
    return module


INT8: Final = Attention(_takes, _scratch, _kernel)
"""For texts of some length, where the processor has VNNI."""


def _prepared(module: Any, target: Target, head_dim: int) -> Any:
    """The codes of a head, and what 1 stands for: of each dimension's values, and of scores."""
    function, b = internal(module, "prepare", *[PTR] * 3, I64, I64, I64, *[PTR] * 4)
    queries, keys, values, step, length, padded, of_queries, of_keys, of_values, steps = function.args
    lanes = target.lanes
    # `of_queries` to `steps` are where the results go; the three first are what is read.
    floats, wholes = vector(F32, lanes), vector(I32, lanes)
    bytes_of = vector(I8, lanes)
    parts, last = range(0, head_dim, lanes), b.sub(length, whole(1))

    def entries(start: Any, token: Any) -> list[Any]:
        here = place(b, start, b.mul(token, step), F32)
        return [load(b, here, whole(part), floats) for part in parts]

    # `fma` rounds entry / step to a whole number that stands in the lowest bits of the float.
    def codes(own: Any, per_one: Any, nothing: int = 0) -> Any:
        return b.bitcast(fma(module, b, own, per_one, filled(floats, ROUNDS + nothing)), wholes)

    # The largest entries first: Q of all queries, K of all keys, V_d of each dimension.
    query, key, most = _largest(
        module,
        b,
        target,
        length,
        len(parts),
        lambda token: [entries(each, token) for each in (queries, keys, values)],
    )
    # Q K / 127^2, and log2(e), since the weights are powers of two.
    of_score = b.fmul(b.fmul(query, key), ir.Constant(F32, math.log2(math.e) / _SCORED**2))
    store(b, of_score, steps, whole(head_dim))
    # V_d / 511, (head_dim,), for the end.
    for part, each in zip(parts, most, strict=True):
        store(b, b.fmul(each, filled(floats, 1 / _VALUE)), steps, whole(part))
    per_query, per_key = (
        spread(b, b.fdiv(ir.Constant(F32, float(_SCORED)), each), floats) for each in (query, key)
    )
    per_value = [b.fdiv(filled(floats, float(_VALUE)), each) for each in most]
    # Queries, as bytes without a sign.
    with loop(b, whole(0), length, whole(1)) as token:
        codes_at = place(b, of_queries, b.mul(token, whole(head_dim)), I8)
        for part, own in zip(parts, entries(queries, token), strict=True):
            # The instruction takes codes without a sign: 128 stands for 0.
            store(b, b.trunc(codes(own, per_query, 128), bytes_of), codes_at, whole(part))
    with loop(b, whole(0), padded, whole(lanes)) as first:
        # A panel of keys, of so many as a register has lanes.
        rows = []
        # Behind the last key it stands again: the largest score is that of a key that exists.
        for number in range(lanes):
            at = b.add(first, whole(number))
            at = b.select(b.icmp_signed("<", at, last), at, last)
            rows.append([b.trunc(codes(own, per_key), bytes_of) for own in entries(keys, at)])
        panel = place(b, of_keys, b.mul(b.sdiv(first, whole(lanes)), whole(_panel(target, head_dim))), I8)
        _key_panel(module, b, target, rows, panel)
    # Values in pairs of two tokens, since one instruction multiplies two of 16 bits.
    with loop(b, whole(0), length, whole(2)) as first:
        # An odd number of tokens: behind the last value stands 0.
        is_last = b.icmp_signed("==", first, last)
        pair = entries(values, first), entries(values, b.select(is_last, last, b.add(first, whole(1))))
        codes_at = place(b, of_values, b.mul(first, whole(head_dim)), I16)
        for part, one, other, per_one in zip(parts, *pair, per_value, strict=True):
            # The first token's code in the low half of 32 bits, the second's in the high half.
            low = b.and_(codes(one, per_one), filled(wholes, 0xFFFF))
            high = b.select(is_last, zeros(wholes), b.shl(codes(other, per_one), filled(wholes, 16)))
            store(b, b.or_(low, high), place(b, codes_at, whole(2 * part), I16), whole(0))
    b.ret_void()
    return function


def _largest(
    module: Any,
    b: Any,
    target: Target,
    length: Any,
    parts: int,
    entries: Callable[[Any], list[list[Any]]],
) -> tuple[Any, Any, list[Any]]:
    """Without their signs, of all queries, of all keys, and of each dimension of the values.

    Not a number where one is not: without their signs, floats are in the order of their bits, and it is above
    all.
    """
    # As whole numbers without a sign, for which there is one instruction without exceptions for NaN.
    lanes, wholes = target.lanes, vector(I32, target.lanes)
    larger_of = intrinsic(module, f"llvm.umax.v{lanes}i32", wholes, wholes, wholes)

    def larger(b: Any, one: Any, other: Any) -> Any:
        return b.call(larger_of, [one, other])

    with summing(b, length, 1, [zeros(wholes)] * (2 + parts)) as (token, largest, out):
        # 0x7FFFFFFF takes the sign off.
        sizes = [
            [b.and_(b.bitcast(own, wholes), filled(wholes, 0x7FFFFFFF)) for own in each]
            for each in entries(token)
        ]
        out += [
            reduce(partial(larger, b), own, before) for before, own in zip(largest, sizes[:2], strict=False)
        ]
        out += [larger(b, before, own) for before, own in zip(largest[2:], sizes[2], strict=True)]
    query, key = (b.bitcast(over_lanes(b, each, larger), F32) for each in out[:2])
    return query, key, [b.bitcast(each, vector(F32, lanes)) for each in out[2:]]


def _key_panel(module: Any, b: Any, target: Target, rows: list[list[Any]], panel: Any) -> None:
    """The codes of keys, four of each after another, behind what sums of products with them start with."""
    lanes, wholes, eight = target.lanes, vector(I32, target.lanes), vector(I32, 8)
    # `total`: of each key 128 times the sum of its codes.
    total, column = zeros(wholes), whole(lanes)
    for at in range(0, len(rows[0]), 32 // lanes):
        # 32 entries of each key are eight fours; a register of 16 lanes has those of two keys.
        each = [b.bitcast(_joined(b, row[at : at + 32 // lanes]), eight) for row in rows]
        together = [_joined(b, each[number::8]) for number in range(8)]
        for fours in transposed(b, together):
            # 128 stands for 0 in the queries: what that adds is taken off.
            # The constant is four bytes of 128.
            total = add_fours(module, b, total, filled(wholes, 0x80808080 - 2**32), fours)
            store(b, fours, panel, column)
            column = b.add(column, whole(lanes))
    # The sums of the scores start there: the bits of 1.5 x 2^23, less what the 128s add.
    store(b, b.sub(filled(wholes, _BITS), total), panel, whole(0))


def _joined(b: Any, parts: Sequence[Any]) -> Any:
    """A power of two of registers as one."""
    while len(parts) > 1:
        lanes = range(2 * parts[0].type.count)
        parts = [picked(b, *pair, lanes) for pair in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _queries(module: Any, target: Target, head_dim: int, count: int) -> Any:
    """The contexts of `count` queries that follow one another."""
    lanes = target.lanes
    floats, wholes = vector(F32, lanes), vector(I32, lanes)
    largest = intrinsic(module, f"llvm.smax.v{lanes}i32", wholes, wholes, wholes)
    function, b = internal(module, f"queries{count}", *[PTR] * 4, I64, I64, PTR, PTR, I64)
    queries, keys, values, steps, length, padded, scores, out, width = function.args
    # Codes of scores first, 32 bits a key; later weights of 16 bits lie over them.
    of_row = [place(b, scores, b.mul(whole(row), padded), I32) for row in range(count)]

    # Four entries of a query (or two weights) in every lane.
    def four_bytes(at: Any) -> Any:
        return spread(b, b.load(at, typ=I32, align=1), wholes)

    # First: the scores as whole numbers, above the bits of 1.5 x 2^23, and the largest of each query.
    with summing(b, padded, 2 * lanes, [zeros(wholes)] * count) as (key, highest, out_highest):
        panel = place(b, keys, b.mul(b.sdiv(key, whole(lanes)), whole(_panel(target, head_dim))), I8)
        panels = panel, place(b, panel, whole(_panel(target, head_dim)), I8)
        # Each sum begins with what the panel begins with.
        sums = [[load(b, panel, whole(0), wholes) for panel in panels] for _ in range(count)]
        # Four entries of the head at a time, of two registers of keys.
        for entry in range(0, head_dim, 4):
            columns = [load(b, panel, whole(lanes + lanes * entry // 4), wholes) for panel in panels]
            for row in range(count):
                own = four_bytes(place(b, queries, whole(row * head_dim + entry), I8))
                sums[row] = [
                    add_fours(module, b, total, own, column)
                    for total, column in zip(sums[row], columns, strict=True)
                ]
        for row, most in enumerate(highest):
            for half, total in enumerate(sums[row]):
                # Sums of the two halves side by side: (count, padded).
                store(b, total, of_row[row], b.add(key, whole(lanes * half)))
                most = b.call(largest, [most, total])
            out_highest.append(most)
    # What a difference of 1 between two sums is as a power of two.
    step = spread(b, load(b, steps, whole(head_dim), F32), floats)
    tops = []
    # The bits of floats above 0 are in their order: the largest number is the largest float, too.
    for most in out_highest:
        top = over_lanes(b, most, lambda b, *pair: b.call(largest, pair))
        tops.append(spread(b, b.bitcast(top, F32), floats))
    # Second: the weights, and their sum.
    with summing(b, padded, lanes, [zeros(floats)] * count) as (key, totals, out_totals):
        # How many keys are left from here on; lanes beyond do not count.
        left = spread(b, b.trunc(b.sub(length, key), I32), wholes)
        is_key = b.icmp_signed("<", ir.Constant(wholes, list(range(lanes))), left)
        for row, (top, total) in enumerate(zip(tops, totals, strict=True)):
            # The bits are those of 1.5 x 2^23 + score, and the difference of two such floats is exact.
            score = b.bitcast(load(b, of_row[row], key, wholes), floats)
            weight = exp2(module, b, b.fmul(b.fsub(score, top), step))
            codes = fma(module, b, weight, filled(floats, float(_WEIGHT)), filled(floats, ROUNDS))
            # Taking 1.5 x 2^23 off leaves the whole number; what is not a number stays so.
            more = b.fadd(total, b.fsub(codes, filled(floats, ROUNDS)))
            out_totals.append(b.select(is_key, more, total))
            # Weights of 16 bits need half of the room: none overwrites a score that is still to be read.
            store(b, b.trunc(b.bitcast(codes, wholes), vector(I16, lanes)), of_row[row], key)
    shares = []
    for total in out_totals:
        of_row_total = over_lanes(b, total, lambda b, *pair: b.fadd(*pair))
        # One division a query: 1 / sum over j of e_ij.
        shares.append(spread(b, b.fdiv(ir.Constant(F32, 1.0), of_row_total), floats))
    # Third: sums of weights times values, two tokens at a time.
    at_once = min(head_dim, target.accumulators // count * lanes)
    for first in range(0, head_dim, at_once):
        parts = range(first, first + at_once, lanes)
        with summing(b, length, 2, [zeros(wholes)] * (count * len(parts))) as (key, sums, added):
            here = place(b, values, b.mul(key, whole(head_dim)), I16)
            columns = [load(b, place(b, here, whole(2 * part), I16), whole(0), wholes) for part in parts]
            for row in range(count):
                # Two weights that lie side by side, as one number of 32 bits.
                own = four_bytes(place(b, of_row[row], key, I16))
                for column in columns:
                    added.append(add_pairs(module, b, sums[len(added)], own, column))
        results = iter(added)
        for row, share in enumerate(shares):
            for part in parts:
                # V_d / 511, divided by the sum of the weights.
                scale = b.fmul(load(b, steps, whole(part), floats), share)
                context = b.fmul(b.sitofp(next(results), floats), scale)
                store(b, context, out, b.add(b.mul(whole(row), width), whole(part)))
    b.ret_void()
    return function
