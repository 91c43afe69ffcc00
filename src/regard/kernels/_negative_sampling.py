"""Steps of negative sampling, example after example, in LLVM's representation."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]

from regard.kernels._ir import (
    F32,
    I32,
    I64,
    PTR,
    carrying,
    exp2,
    exported,
    filled,
    fma,
    load,
    loop,
    over_lanes,
    place,
    spread,
    store,
    vector,
    whole,
    zeros,
)
from regard.kernels._target import ADDRESS, NUMBER, REAL, Target, compiled, here

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]

_LOG2_E: Final = 1 / math.log(2)


class NegativeSampling:
    """One step of gradient descent for each example, one after the other.

    An example has words to read, a word to predict, and K words drawn at random that are not it:

        h = mean over the pieces p of its words of in_p
        y_0 = h . out_t of the word to predict,  y_k = -h . out_k of the others
        loss = sum over k of -log sigmoid(y_k)
        out_k += rate sigmoid(-y_k) (+-h),  + for the word to predict
        in_p += rate g / n,  g = sum over k of sigmoid(-y_k) (+-out_k)

    with all out_k as they were before the step. n is the number of pieces, the gradient of the mean; or 1
    where `is_whole`. A word drawn that is the one to predict counts nothing; one drawn twice counts twice.

    Args:
        size: of a vector. A row of a table has `width`, a multiple of a register, and zeros at its end.
        negatives: K.
        is_whole: whether each piece gets all of g.

    Source: Mikolov et al. 2013, arXiv 1310.4546, equation 4; the gradient of the mean: Irsoy et al. 2021,
    arXiv 2012.15332, section 3.
    """

    def __init__(self, size: int, negatives: int, *, is_whole: bool = False) -> None:
        lanes = here().lanes
        # Rows are rounded up to whole registers, so that the kernel needs no tail.
        self.width = lanes * -(-size // lanes)
        self.negatives, self._is_whole = negatives, is_whole
        self._kernel = _compiled(here(), self.width, negatives)

    def __call__(
        self,
        tables: tuple[Floats, Floats],
        pieces: tuple[Places, Numbers],
        words: tuple[Places, Numbers],
        targets: Numbers,
        rate: float,
    ) -> float:
        """Change the tables by one step for each example.

        Args:
            tables: of what is read and of what is predicted, (rows, width).
            pieces: of word w, the rows [first[w], first[w + 1]) of the second array.
            words: to read in example i, the same way.
            targets: (examples, 1 + K), the word to predict first.
            rate: how far a step goes.

        Returns:
            The loss summed over the examples, each before its own step.
        """
        count = len(targets)
        assert targets.shape == (count, self.negatives + 1)
        assert len(words[0]) == count + 1
        # Losses are left in two parts for each example, of which numpy takes one logarithm for all.
        losses = np.empty((count, 2), np.float32)
        arrays = (*tables, *pieces, *words, targets, losses)
        # The kernel gets nothing but addresses: everything it relies on is checked here.
        assert all(each.flags.c_contiguous for each in arrays)
        assert all(table.dtype == np.float32 and table.shape[1] == self.width for table in tables)
        assert all(first.dtype == np.int64 and rows.dtype == np.int32 for first, rows in (pieces, words))
        assert targets.dtype == np.int32
        self._kernel(*[each.ctypes.data for each in arrays], count, rate, int(self._is_whole))
        # Added up in float64: a run sums millions of examples.
        return float(losses[:, 0].sum(dtype=np.float64) + np.log(losses[:, 1]).sum(dtype=np.float64))


@cache
def _compiled(target: Target, width: int, negatives: int) -> Callable[..., None]:
    """The kernel; compiled once a process."""
    kinds = [*[ADDRESS] * 8, NUMBER, REAL, NUMBER]
    return compiled(lambda: kernel(target, width, negatives), "learn", *kinds)


def kernel(target: Target, width: int, negatives: int) -> Any:
    """The module, to be compiled, with the function

        learn(in, out, first piece, pieces, first word, words, targets, losses, examples, rate, is_whole)

    with arrays as `NegativeSampling` has them. losses: float32 (examples, 2), of which each example's loss is
    the first and the logarithm of the second: sum over k of -log sigmoid(y_k) is

        sum over k of max(-y_k, 0)  +  log of the product over k of (1 + exp(-|y_k|))
    """
    module = ir.Module()
    floats = vector(F32, target.lanes)
    # Where each register of a vector begins.
    parts = [whole(first) for first in range(0, width, target.lanes)]
    function, b = exported(module, "learn", *[PTR] * 8, I64, F32, I64)
    read, predicted, first_piece, pieces, first_word, words, targets, losses, count, rate, is_whole = (
        function.args
    )
    # The word to predict, and K others.
    drawn = whole(negatives + 1)

    def row(table: Any, number: Any) -> Any:
        return place(b, table, b.mul(b.sext(number, I64), whole(width)), F32)

    with loop(b, whole(0), count, whole(1)) as example:
        own = b.mul(example, drawn)
        following = b.add(example, whole(1))
        # Before the loop over pieces: numbers and rows of all words drawn, (K + 1,).
        numbers = [load(b, targets, b.add(own, whole(k)), I32) for k in range(negatives + 1)]
        rows = [row(predicted, number) for number in numbers]
        begin, end = (load(b, first_word, each, I64) for each in (example, following))

        # Two loops, one in the other: over the words to read, and over the pieces of each.
        def each_piece(carried: list[Any], use: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
            """Runs over the rows of the example's words."""
            with carrying(b, begin, end, whole(1), carried) as (at, outer, outer_out):
                word = b.sext(load(b, words, at, I32), I64)
                start, stop = (load(b, first_piece, each, I64) for each in (word, b.add(word, whole(1))))
                with carrying(b, start, stop, whole(1), outer) as (piece, inner, inner_out):
                    inner_out += use(row(read, load(b, pieces, piece, I32)), inner)
                outer_out += inner_out
            return outer_out

        def add(one: Any, sums: list[Any]) -> list[Any]:
            *vectors, number = sums
            added = [
                b.fadd(each, load(b, one, part, floats)) for each, part in zip(vectors, parts, strict=True)
            ]
            return [*added, b.fadd(number, ir.Constant(F32, 1.0))]

        # h = the mean of the pieces; `number` counts them, as a float.
        *h, number = each_piece([*[zeros(floats)] * len(parts), ir.Constant(F32, 0.0)], add)
        share = b.fdiv(ir.Constant(F32, 1.0), number)
        h = [b.fmul(each, spread(b, share, floats)) for each in h]

        steps, loss, more = _judged(module, b, h, numbers, rows, parts, rate)
        # The two parts of the loss; numpy does the rest.
        store(b, loss, losses, b.mul(example, whole(2)))
        store(b, more, losses, b.add(b.mul(example, whole(2)), whole(1)))

        # g, with all out_k as they were: it is summed before any of them moves.
        g = [zeros(floats)] * len(parts)
        for step, one in zip(steps, rows, strict=True):
            for place_, part in enumerate(parts):
                there = load(b, one, part, floats)
                g[place_] = fma(module, b, step, there, g[place_])
        # Only now the rows of the words drawn move. One drawn twice is read again each time, so both
        # steps count.
        for step, one in zip(steps, rows, strict=True):
            for each, part in zip(h, parts, strict=True):
                store(b, fma(module, b, step, each, load(b, one, part, floats)), one, part)

        # 1 instead of 1 / n: each piece gets all of g.
        share = b.select(b.icmp_signed("!=", is_whole, whole(0)), ir.Constant(F32, 1.0), share)
        g = [b.fmul(each, spread(b, share, floats)) for each in g]

        def move(one: Any, _: list[Any]) -> list[Any]:
            for each, part in zip(g, parts, strict=True):
                store(b, b.fadd(load(b, one, part, floats), each), one, part)
            return []

        # The pieces of the words that were read move last.
        each_piece([], move)
    b.ret_void()
    return module


def _judged(
    module: Any, b: Any, h: list[Any], numbers: list[Any], rows: list[Any], parts: list[Any], rate: Any
) -> tuple[list[Any], Any, Any]:
    """How far each word drawn is moved along h, in every lane of a register; and the loss, in two parts."""
    floats = h[0].type
    # One lane a word, rounded up to a power of two; the rest is masked below.
    lanes = 1 << (len(rows) - 1).bit_length()
    kind, whole_kind = vector(F32, lanes), vector(I32, lanes)
    y, drawn = zeros(kind), zeros(whole_kind)
    # y_k = h . out_k, each in its lane.
    for k, (number, one) in enumerate(zip(numbers, rows, strict=True)):
        products = zeros(floats)
        for each, part in zip(h, parts, strict=True):
            products = fma(module, b, each, load(b, one, part, floats), products)
        lane = ir.Constant(I32, k)
        y = b.insert_element(y, over_lanes(b, products, ir.IRBuilder.fadd), lane)
        drawn = b.insert_element(drawn, number, lane)
    # + for the word to predict, - for the others.
    signs = ir.Constant(kind, [1.0] + [-1.0] * (lanes - 1))
    inside = ir.Constant(vector(ir.IntType(1), lanes), [k < len(rows) for k in range(lanes)])
    is_first = ir.Constant(vector(ir.IntType(1), lanes), [k == 0 for k in range(lanes)])
    # A word drawn that happens to be the one to predict counts nothing.
    is_other = b.icmp_signed("!=", drawn, spread(b, numbers[0], whole_kind))
    counts = b.and_(inside, b.or_(is_first, is_other))
    y = b.fmul(y, signs)
    # max(-y, 0) and exp(-|y|) instead of exp(-y): nothing overflows.
    is_low = b.fcmp_ordered("<", y, zeros(kind))
    below = b.select(is_low, b.fneg(y), zeros(kind))
    small = exp2(module, b, b.fmul(b.fneg(b.select(is_low, b.fneg(y), y)), filled(kind, _LOG2_E)))
    both = b.fadd(filled(kind, 1.0), small)
    wrong = b.fdiv(b.select(is_low, filled(kind, 1.0), small), both)  # sigmoid(-y)
    # rate sigmoid(-y_k) (+-1), 0 where the word does not count.
    moved = b.select(counts, b.fmul(b.fmul(wrong, signs), spread(b, rate, kind)), zeros(kind))
    steps = [spread(b, b.extract_element(moved, ir.Constant(I32, k)), floats) for k in range(len(rows))]
    loss = over_lanes(b, b.select(counts, below, zeros(kind)), ir.IRBuilder.fadd)
    # The product of 1 + exp(-|y_k|): each factor is at most 2, so the product stays below 2^(K + 1).
    return steps, loss, over_lanes(b, b.select(counts, both, filled(kind, 1.0)), ir.IRBuilder.fmul)
