"""Attention of short texts, in LLVM's representation: a head's scores never leave the first cache.

context_i = sum over j of exp(q_i.k_j - m_i) v_j / sum over j of exp(q_i.k_j - m_i),  m_i = max_j q_i.k_j
"""

import math
from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]

from regard.embedding._llvm._ir import (
    F32,
    I32,
    I64,
    PTR,
    ROUNDS,
    exported,
    filled,
    fma,
    internal,
    larger,
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
    zeros,
)
from regard.embedding._llvm._target import Target

# exp(r) = 1 + r + r^2 p(r) for |r| <= ln(2) / 2, within 2e-7: Moshier's Cephes library, expf.
_POWERS: Final = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
# ln(2) in two parts, of which the first times a whole number is exact.
_LN2: Final = (0.693359375, -2.12194440e-4)
_LOWEST: Final = -87.0  # of what is below, float32 has no exponential but 0


def queries_of(target: Target, head_dim: int) -> int:
    """The queries that are worked out together: their contexts fill half of the registers."""
    return max(1, min(8, target.lanes * target.lanes // head_dim))


def scratch_of(target: Target, head_dim: int, length: int) -> int:
    """The floats that a head of a text needs."""
    padded = -(-length // target.lanes) * target.lanes
    return padded * (head_dim + queries_of(target, head_dim))


def kernels(target: Target, head_dim: int) -> Any:
    """The module, to be compiled, with the function

        attend(qkv, context, runs, count, heads, scratch)

    runs: so many pairs, int64, of texts and the tokens of each, which lie one after the other. qkv: float32
    (tokens, 3, heads, head_dim), the queries scaled; context: (tokens, heads, head_dim). head_dim is a
    multiple of the lanes.
    """
    module, together = ir.Module(), queries_of(target, head_dim)
    half = max(1, together // 2)
    transpose = _transposed_keys(module, target, head_dim)
    queries_of_count = {count: _queries(module, target, head_dim, count) for count in {together, half, 1}}
    some, fewer, one = (queries_of_count[count] for count in (together, half, 1))
    function, b = exported(module, "attend", PTR, PTR, PTR, I64, I64, PTR)
    qkv, context, runs, count, heads, scratch = function.args
    lanes = whole(target.lanes)
    size = b.mul(heads, whole(head_dim))
    step = b.mul(size, whole(3))
    with summing(b, count, 1, [whole(0)]) as (number, (begun,), out):
        texts, length = (load(b, runs, b.add(b.mul(number, whole(2)), whole(at)), I64) for at in (0, 1))
        padded = b.mul(b.sdiv(b.add(length, whole(target.lanes - 1)), lanes), lanes)
        scores = place(b, scratch, b.mul(padded, whole(head_dim)), F32)
        with loop(b, whole(0), texts, whole(1)) as text, loop(b, whole(0), heads, whole(1)) as head:
            token, entry = b.add(begun, b.mul(text, length)), b.mul(head, whole(head_dim))
            queries = place(b, qkv, b.add(b.mul(token, step), entry), F32)
            keys, values = place(b, queries, size, F32), place(b, queries, b.mul(size, whole(2)), F32)
            made = place(b, context, b.add(b.mul(token, size), entry), F32)
            b.call(transpose, [keys, step, length, padded, scratch])

            def run(
                function: Any,
                first: Any,
                queries: Any = queries,
                values: Any = values,
                made: Any = made,
                length: Any = length,
                padded: Any = padded,
                scores: Any = scores,
            ) -> None:
                at = place(b, queries, b.mul(first, step), F32), place(b, made, b.mul(first, size), F32)
                b.call(function, [at[0], step, scratch, values, length, padded, scores, at[1], size])

            # What is left at the end is worked out by as many as there are or by half of them, which begin
            # earlier: some contexts are then made twice, with the same result.
            left = b.srem(length, whole(together))
            with b.if_else(b.icmp_signed("<", length, whole(together))) as (few, many):
                with few, loop(b, whole(0), length, whole(1)) as query:
                    run(one, query)
                with many:
                    with loop(b, whole(0), b.sub(length, left), whole(together)) as query:
                        run(some, query)
                    with b.if_then(b.icmp_signed("<", whole(half), left)):
                        run(some, b.sub(length, whole(together)))
                    is_half = b.icmp_signed("<=", left, whole(half))
                    with b.if_then(b.and_(is_half, b.icmp_signed("<", whole(0), left))):
                        run(fewer, b.sub(length, whole(half)))
        out.append(b.add(begun, b.mul(texts, length)))
    b.ret_void()
    return module


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
        distance = 1
        while distance < lanes:
            for number in range(lanes):
                if not number & distance:
                    one, other = rows[number], rows[number + distance]
                    low = [lane if not lane & distance else lanes + lane - distance for lane in range(lanes)]
                    high = [lane + distance if not lane & distance else lanes + lane for lane in range(lanes)]
                    rows[number] = picked(b, one, other, low)
                    rows[number + distance] = picked(b, one, other, high)
            distance *= 2
        for number, row in enumerate(rows):
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
    with summing(b, padded, lanes, [zeros(floats)] * count) as (key, totals, out_totals):
        for place_of, top, total in zip(of_row, tops, totals, strict=True):
            weight = _exponential(module, b, b.fsub(load(b, place_of, key, floats), top))
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


def _exponential(module: Any, b: Any, x: Any) -> Any:
    """exp(x) for x <= 0: 2^n exp(r) with x = n ln(2) + r; what is not a number stays so."""
    kind = x.type
    lowest = filled(kind, _LOWEST)
    x = b.select(b.fcmp_ordered("<", x, lowest), lowest, x)
    shifted = fma(module, b, x, filled(kind, math.log2(math.e)), filled(kind, ROUNDS))
    n = b.fsub(shifted, filled(kind, ROUNDS))
    r = x
    for part in _LN2:
        r = fma(module, b, n, filled(kind, -part), r)
    p = filled(kind, _POWERS[0])
    for power in _POWERS[1:]:
        p = fma(module, b, p, r, filled(kind, power))
    value = b.fadd(fma(module, b, p, b.fmul(r, r), r), filled(kind, 1.0))
    whole_of = vector(I32, kind.count)
    # The lowest bits of the shifted number are n; moved up, they are the exponent of a float.
    exponent = b.shl(b.add(b.bitcast(shifted, whole_of), filled(whole_of, 127)), filled(whole_of, 23))
    return b.fmul(value, b.bitcast(exponent, kind))
