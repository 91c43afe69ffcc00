"""How the use of a word differs between periods or parts of a corpus."""

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from regard.concordance._lines import Line, Lines
from regard.concordance._uses import Place
from regard.concordance._values import iso_date
from regard.concordance._vectors import Vectors
from regard.core.arguments import several
from regard.core.displayable import Displayable, plain_table
from regard.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

# Parts beyond that give too many pairs to read.
_MOST_PARTS: Final = 6
# Draws are worked out so many at a time, which bounds the memory of weights (draws, documents).
_AT_ONCE: Final = 100
_MOST_LINES: Final = 5


@dataclass(frozen=True)
class Measure:
    """How far two parts are from each other.

    Attributes:
        value: the number.
        low, high: of 95 in 100 bootstrap samples; whole documents are drawn, with replacement.
        chance: its mean where the documents are dealt to the two parts at random.
        p: the share of such deals that are as far apart or farther, the true one among them.
    """

    value: float
    low: float
    high: float
    chance: float
    p: float


@dataclass(frozen=True, eq=False)
class Change:
    """How two parts of a corpus differ in their use of a word.

    Attributes:
        first, second: the parts.
        uses: of each.
        apd: average pairwise distance, mean (1 - cos) over all pairs of a use here and one there.
        prt: 1 - cos of the two mean vectors; the source has 1 / cos, which is in the same order.
        jsd: the Jensen-Shannon divergence of the shares of the senses, in bits; None of one sense.
        lines: for each part the uses that set it apart most: those without which the means were nearest.

    Source: Kutuzov and Giulianelli 2020, arXiv 2005.00050, for APD and PRT.
    """

    first: str
    second: str
    uses: tuple[int, int]
    apd: Measure
    prt: Measure
    jsd: Measure | None
    lines: tuple[Lines, ...]

    def measures(self) -> list[tuple[str, Measure]]:
        """Those that there are, by their names."""
        found = (("apd", self.apd), ("prt", self.prt), ("jsd", self.jsd))
        return [(name, measure) for name, measure in found if measure is not None]


@dataclass(frozen=True, eq=False)
class Drift(Displayable):
    """The changes between each two parts.

    Attributes:
        word: whose uses they are.
        changes: of each pair of parts, in their order.
        left_out: how many uses have no date, or no such field; or no vector, where the tokenizer drops them.
        note: what to mind, in words.
    """

    word: str
    changes: tuple[Change, ...]
    left_out: int
    note: str = ""

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each measure of each pair."""
        rows = []
        for change in self.changes:
            uses_first, uses_second = change.uses
            pair: dict[str, Any] = {"first": change.first, "second": change.second}
            pair |= {"uses_first": uses_first, "uses_second": uses_second}
            rows += [pair | {"measure": name} | vars(measure) for name, measure in change.measures()]
        return rows

    def _parts(self) -> "Iterator[RenderableType]":
        from rich.text import Text

        yield Text(self.word + f", without {self.left_out:,} uses that have none" * (self.left_out > 0))
        if self.note:
            yield Text(self.note)
        for change in self.changes:
            here, there = change.uses
            yield Text(f"\n{change.first}, {here:,} uses | {change.second}, {there:,} uses", style="bold")
            rows = []
            for name, of in change.measures():
                value, low, high, chance, p = (f"{number:.3f}" for number in vars(of).values())
                rows.append([name.upper(), value, f"{low} to {high}", chance, p])
            yield plain_table(["", "value", "95 %", "by chance", "p"], rows)
            if len(self.changes) == 1:
                for name, lines in zip((change.first, change.second), change.lines, strict=True):
                    yield Text(f"\nWhat sets {name} apart", style="bold")
                    yield from lines._parts()


def parts_of(values: Sequence[Any], by: str, bins: Sequence[str]) -> tuple[list[str | None], list[str]]:
    """The part of each use by its date or value, None where it has none; and the parts in their order."""
    if by == "date":
        known = sorted(each for each in values if each is not None)
        # Where each period begins, as ISO has it, with how it was typed.
        begins = {_date(each): each.strip() for each in several("bins", bins, "dates")}
        if not bins and known:
            # The date in the middle; where all before it are equal, the next one.
            middle = known[len(known) // 2]
            middle = middle if middle > known[0] else next((each for each in known if each > middle), middle)
            begins = {middle: middle}
        starts = sorted(begins)
        names = [f"before {begins[starts[0]]}"] if starts else []
        names += [f"from {begins[each]}" for each in starts]
        # As many starts as lie at or before the date.
        parts = [None if each is None else names[bisect_right(starts, each)] for each in values]
    elif bins:
        raise InputError("bins must be left out where by is not date: they are where periods begin.")
    else:
        parts = [None if each is None else str(each) for each in values]
        names = sorted({each for each in parts if each is not None})
    # Only parts that have uses.
    names = [name for name in names if name in parts]
    if not names:
        raise InputError(f"by must name what the uses have; none of these has a {by}.")
    if not 2 <= len(names) <= _MOST_PARTS:
        some = ", ".join(names[:8]) + " and others" * (len(names) > 8)
        raise InputError(
            f"by must part the uses into 2 to {_MOST_PARTS}; {by!r} gives {len(names)}: {some}. "
            "Choose some with where, or for dates with bins."
        )
    return parts, names


def _date(text: str) -> str:
    if (begin := iso_date(text)) is None:
        raise InputError(f"bins must be dates, as 1950 or 1950-03-01; got {text!r}.")
    return begin


def units_of(places: Sequence[Place], field: str | None) -> list[Any]:
    """What is drawn and dealt as one: the documents that a field says, else the rows of the corpus."""
    if field is None:
        return [each.doc for each in places]
    named = [json.loads(each.meta).get(field) for each in places]
    # A use without the field is a document by itself.
    own = field == "document"  # as the corpus counts them, in each of its files
    return [
        each.doc if name is None else (each.source if own else "", str(name))
        for each, name in zip(places, named, strict=True)
    ]


def doubt(places: Sequence[Place], parts: Sequence[str]) -> str:
    """What is to be said where rows of one source and part stand together; "" where none do."""
    # By document number: neighbours of the same source and part are rows that stand together.
    rows = {each.doc: (each.source, part) for each, part in zip(places, parts, strict=True)}
    together = next((what[0] for doc, what in rows.items() if rows.get(doc + 1) == what), None)
    if together is None:
        return ""
    return (
        f"Each row counts as a document, and rows of {together} stand together. If they are of one document, "
        "p is too small: say which are by document (--document FIELD)."
    )


def drift(
    lines: Sequence[Line],
    vectors: Vectors,
    parts: Sequence[str],
    names: Sequence[str],
    *,
    units: Sequence[Any] | None = None,
    samples: int = 999,
    seed: int = 0,
) -> tuple[Change, ...]:
    """The change between each two parts, of uses with the labels of their senses.

    Units, as of `units_of`, are drawn and dealt, for uses in one document are not independent. One with uses
    in both parts, as an author of two periods, counts as two: it keeps its uses on either side.
    """
    # Vectors are of length 1, in float64: sums of many of them follow.
    unit = np.asarray(vectors, np.float64)
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    kinds, sense = np.unique([str(line.label) for line in lines], return_inverse=True)
    places = [line.place for line in lines]
    # Documents by number, in order of appearance; what one has in each part is a unit.
    numbers: dict[Any, int] = {}
    own_units = zip(units_of(places, None) if units is None else units, parts, strict=True)
    docs = np.array([numbers.setdefault(each, len(numbers)) for each in own_units])
    # Columns: 1 to count, the vector to sum, and one-hot senses. Sums over documents have all three.
    features = np.c_[np.ones(len(unit)), unit, np.eye(len(kinds))[sense]]
    changes = []
    for pair in combinations(names, 2):
        own = [np.flatnonzero(np.array(parts) == name) for name in pair]
        rows = np.concatenate(own)
        doc = np.unique(docs[rows], return_inverse=True)[1]
        # Sums of each document: how many uses, their vectors, and how many of each sense.
        sums = np.zeros((doc.max() + 1, features.shape[1]))
        np.add.at(sums, doc, features[rows])
        # Whether a document belongs to the first part.
        here = np.isin(np.arange(len(sums)), doc[: len(own[0])])
        apd, prt, jsd = _measured(sums, unit.shape[1], here, samples, np.random.default_rng(seed))
        # From the mean of one part to that of the other: uses far along it set their part apart.
        way = unit[own[0]].mean(0) - unit[own[1]].mean(0)
        best = [
            at[np.argsort(-(unit[at] @ side), kind="stable")]
            for side, at in zip((way, -way), own, strict=True)
        ]
        part_lines = tuple(Lines(tuple(lines[at] for at in each[:_MOST_LINES]), len(each)) for each in best)
        uses = (len(own[0]), len(own[1]))
        changes.append(Change(*pair, uses, apd, prt, jsd if len(kinds) > 1 else None, part_lines))
    return tuple(changes)


def _measured(sums: Any, size: int, here: Any, samples: int, rng: np.random.Generator) -> list[Measure]:
    """APD, PRT and JSD of the documents `here` and the others, with intervals and p."""
    # Documents of either part, which are drawn within it for the interval.
    places = [np.flatnonzero(here), np.flatnonzero(~here)]
    # The true measures: each document once on its own side.
    true = _measures(sums, size, here[None].astype(float), ~here[None])
    dealt, drawn = [], []
    for at in range(0, samples, _AT_ONCE):
        count = min(_AT_ONCE, samples - at)
        # Permutation: documents are dealt to the two sides at random, as many to each as there are.
        deals = rng.permuted(np.tile(here, (count, 1)), axis=1)
        dealt.append(_measures(sums, size, deals.astype(float), ~deals))
        # Bootstrap: documents of each side are drawn with replacement.
        weights = np.zeros((2, count, len(sums)))
        for side, own in enumerate(places):
            weights[side][:, own] = rng.multinomial(len(own), np.full(len(own), 1 / len(own)), size=count)
        drawn.append(_measures(sums, size, *weights))
    chance, spread = np.concatenate(dealt, 1), np.concatenate(drawn, 1)
    # Deals that come out as the true one are equal but for rounding; the true one counts as a deal.
    p = (1 + (chance >= true - 1e-12).sum(1)) / (1 + samples)
    low, high = np.quantile(spread, [0.025, 0.975], axis=1)
    return [Measure(*map(float, each)) for each in zip(true[:, 0], low, high, chance.mean(1), p, strict=True)]


def _measures(sums: Any, size: int, first: Any, second: Any) -> NDArray[np.float64]:
    """(3, draws): APD, PRT and JSD where documents count as often as weights, (draws, documents), say.

    The mean of cosines over all pairs is the product of the two means.
    """
    # (draws, documents) @ (documents, features): sums of each draw.
    a, b = (weights @ sums for weights in (first, second))
    # Divided by the number of uses: mean vector and shares of senses.
    a, b = a[:, 1:] / a[:, :1], b[:, 1:] / b[:, :1]
    # The mean cosine over all pairs: the product of the two means.
    product = (a[:, :size] * b[:, :size]).sum(1)
    lengths = np.linalg.norm(a[:, :size], axis=1) * np.linalg.norm(b[:, :size], axis=1)
    # JSD: entropy of the mean distribution minus the mean entropy.
    p, q = a[:, size:], b[:, size:]
    jsd = _entropy((p + q) / 2) - (_entropy(p) + _entropy(q)) / 2
    return np.stack([1 - product, 1 - product / lengths, jsd])


def _entropy(shares: NDArray[np.float64]) -> Any:
    # 0 log 0 is 0.
    return -(shares * np.log2(np.where(shares > 0, shares, 1))).sum(1)
