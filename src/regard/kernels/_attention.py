"""The order in which attention is worked out, in LLVM's representation: head by head, some queries at a time.

context_i = sum over j of exp(q_i.k_j - m_i) v_j / sum over j of exp(q_i.k_j - m_i),  m_i = max_j q_i.k_j
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any

from regard.kernels._ir import F32, I64, PTR, exported, load, loop, place, summing, whole
from regard.kernels._target import ADDRESS, NUMBER, Target, compiled


@dataclass(frozen=True, slots=True)
class Attention:
    """A way to work attention out.

    Args:
        takes: whether it does for a target, a head_dim, and so many tokens.
        scratch: the bytes that a head of a text needs, of the same three.
        kernel: makes the module, to be compiled, of a target and a head_dim; with the function

            attend(qkv, context, runs, count, heads, scratch)

            runs: so many pairs, int64, of texts and the tokens of each, which lie one after the other. qkv:
            float32 (tokens, 3, heads, head_dim), the queries scaled; context: (tokens, heads, head_dim).
    """

    takes: Callable[[Target, int, int], bool]
    scratch: Callable[[Target, int, int], int]
    kernel: Callable[[Target, int], Any]


@dataclass(frozen=True, slots=True)
class Head:
    """Where the numbers of a head of a text are."""

    queries: Any  # the address of the first token's; of keys, values and context too
    keys: Any
    values: Any
    context: Any
    length: Any  # the tokens of the text
    step: Any  # floats from a token's queries, keys and values to the next one's
    width: Any  # the same of contexts
    scratch: Any  # the address of room for what is made of them


def together_of(target: Target) -> int:
    """Queries that are worked out together: sums of their products with two registers of keys are as many as
    the registers may hold."""
    return target.accumulators // 2


def by_heads(
    module: Any,
    target: Target,
    head_dim: int,
    queries: Callable[[int], Any],
    begin: Callable[[Any, Head], tuple[Callable[[Any], Any], list[Any]]],
) -> None:
    """The function `attend`.

    `queries` writes the function that works so many queries' contexts out; its arguments are the address of
    the first query, what `begin` gives, the address of the first context, and the floats between two. `begin`
    writes what a head begins with; it gives what finds a query's address by its number, and the function's
    other arguments.
    """
    # Each number of queries at once is a function of its own: all, half, and one.
    together = together_of(target)
    made_by = {count: queries(count) for count in {together, together // 2, 1}}
    function, b = exported(module, "attend", PTR, PTR, PTR, I64, I64, PTR)
    qkv, context, runs, count, heads, scratch = function.args
    # Floats of a token's queries over all heads; keys, and then values, lie behind them.
    size = b.mul(heads, whole(head_dim))
    step = b.mul(size, whole(3))
    # `begun`: tokens of all runs before this one.
    with summing(b, count, 1, [whole(0)]) as (number, (begun,), out):
        # A run is a number of texts of the same length: (texts, tokens of each).
        texts, length = (load(b, runs, b.add(b.mul(number, whole(2)), whole(at)), I64) for at in (0, 1))
        with loop(b, whole(0), texts, whole(1)) as text, loop(b, whole(0), heads, whole(1)) as head:
            token, entry = b.add(begun, b.mul(text, length)), b.mul(head, whole(head_dim))
            # qkv: (tokens, 3, heads, head_dim); here the first token of the text, its queries, this
            # head.
            own = place(b, qkv, b.add(b.mul(token, step), entry), F32)
            here = Head(
                queries=own,
                keys=place(b, own, size, F32),
                values=place(b, own, b.mul(size, whole(2)), F32),
                context=place(b, context, b.add(b.mul(token, size), entry), F32),
                length=length,
                step=step,
                width=size,
                scratch=scratch,
            )
            query_at, arguments = begin(b, here)

            # The defaults hold on to the values of this head's block while the function is written.
            def run(
                count: int,
                first: Any,
                here: Head = here,
                query_at: Callable[[Any], Any] = query_at,
                arguments: list[Any] = arguments,
            ) -> None:
                query, out = query_at(first), place(b, here.context, b.mul(first, size), F32)
                b.call(made_by[count], [query, *arguments, out, size])

            _some_at_a_time(b, length, together, run)
        out.append(b.add(begun, b.mul(texts, length)))
    b.ret_void()


def _some_at_a_time(b: Any, length: Any, together: int, run: Callable[[int, Any], None]) -> None:
    """What is left at the end is worked out by as many as there are or by half of them, which begin earlier:
    some contexts are then made twice, with the same result."""
    half = whole(together // 2)
    # Full groups first, then the rest of length % together.
    left = b.srem(length, whole(together))
    done = b.sub(length, left)
    with loop(b, whole(0), done, whole(together)) as query:
        run(together, query)
    with b.if_then(b.icmp_signed("!=", left, whole(0))):
        # More than half is left, and there are full groups before: one more full group that ends with
        # the last query.
        fits = b.and_(b.icmp_signed("<", half, left), b.icmp_signed("<", whole(0), done))
        with b.if_else(fits) as (as_many, fewer):
            with as_many:
                run(together, b.sub(length, whole(together)))
            # At most half is left, or no full group was there; groups of half as many do if the text has
            # so many tokens.
            with fewer, b.if_else(b.icmp_signed("<=", half, length)) as (halves, one_by_one):
                with halves, loop(b, done, length, half) as query:
                    # The last of these groups ends with the last query, too.
                    last = b.sub(length, half)
                    run(together // 2, b.select(b.icmp_signed("<", query, last), query, last))
                with one_by_one, loop(b, whole(0), length, whole(1)) as query:
                    run(1, query)


_one_at_a_time = Lock()


def attend_by(attention: Attention, target: Target, head_dim: int) -> Callable[..., None]:
    """The kernel of one that takes such heads; compiled once a process, which takes some 0.1 s."""
    # A cache alone would let threads that begin together compile the same kernel each.
    with _one_at_a_time:
        return _attend_by(attention, target, head_dim)


@cache
def _attend_by(attention: Attention, target: Target, head_dim: int) -> Callable[..., None]:
    kinds = [*[ADDRESS] * 3, *[NUMBER] * 2, ADDRESS]
    return compiled(lambda: attention.kernel(target, head_dim), "attend", *kinds)
