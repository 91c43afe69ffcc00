"""Counts: of words, over the parts of a corpus, in one part against another, and around a word."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from regard.concordance._query import Spelling
from regard.concordance._store import Store, numbers
from regard.concordance._uses import Found, keys_of, neighbours, select
from regard.concordance._where import each_of, limits, of_documents, unmet
from regard.core.arguments import one_of, plain
from regard.core.displayable import Displayable, plain_table
from regard.core.errors import InputError
from regard.core.wording import excerpt, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

Numbers = NDArray[np.float64]

REST: Final = "rest"
"""The part of a corpus that is all of it but another part."""

UNITS: Final = {
    "form": "f.key",
    # A corpus without lemmas counts by form where a form has none.
    "lemma": "CASE f.lemma WHEN '' THEN f.key ELSE f.lemma END",
    "pos": "f.pos",
}
"""By what words are counted."""

MEASURES: Final = ("g2", "log_ratio", "log_dice", "mi", "mi3", "t")
"""By what collocates may be sorted."""

_BAR: Final = 24
_CELLS: Final = 40
"""The width of a plot of dispersion, in characters."""


@dataclass(frozen=True, eq=False)
class Counts(Displayable):
    """A table of counts.

    Attributes:
        rows, total: each a dictionary by column; and how many there are, with those left out.
        about: what was counted, in words.
        dispersion: of a word over a field, from 0, even, to 1, in one part only; else None.
        bar: the column that is drawn as bars too.
        shown: the columns that are drawn; None for all.
    """

    rows: tuple[dict[str, Any], ...]
    total: int
    about: str
    dispersion: float | None = None
    bar: str | None = None
    shown: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Counts({len(self)} of {self.total} rows: {self.about})"

    def to_rows(self) -> list[dict[str, Any]]:
        """A dictionary for each row."""
        return [dict(row) for row in self.rows]

    def _parts(self) -> "Iterator[RenderableType]":
        from rich.text import Text

        yield Text(printable(self.about))
        yield Text()
        columns = self.shown or tuple(next(iter(self.rows), {}))
        lines = [[_cell(name, row[name]) for name in columns] for row in self.rows]
        longest = max((row[self.bar] for row in self.rows), default=0) if self.bar else 0
        for line, row in zip(lines, self.rows, strict=True):
            # Bars are relative to the longest.
            line += ["█" * round(_BAR * row[self.bar] / (longest or 1))] if self.bar else []
        names = [name.replace("_", " ") for name in columns]
        yield plain_table([*names, ""][: len(lines[0]) if lines else 0], lines, bar=self.bar is not None)
        if self.total > len(self.rows):
            yield Text(f"\n{self.total - len(self.rows):,} more rows", style="dim")


def _cell(name: str, value: object) -> str:
    if name == "p" and isinstance(value, float):
        return "<0.001" if value < 0.001 else f"{value:.3f}"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 1000 else f"{value:,.0f}"
    if name == "plot":
        return str(value)
    return "-" if value is None else f"{value:,}" if type(value) is int else excerpt(str(value), 30)


def log_likelihood(a: Any, b: Any, size_a: float, size_b: float) -> tuple[Numbers, Numbers]:
    """G2 = 2 sum O ln(O / E) over a word and all others in two samples, and log2 of the ratio of its rates.

    G2 is negative where the word is rarer in the first; for the ratio a count of 0 is taken as 0.5.

    Source: Dunning 1993, "Accurate methods for the statistics of surprise and coincidence"; Rayson and
    Garside 2000, "Comparing corpora using frequency profiling". The ratio: Hardie 2014.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    # O of the contingency table: the word and all others, in each of two samples.
    observed = np.stack([a, b, size_a - a, size_b - b])
    both, total = a + b, size_a + size_b
    others = total - both
    # E under one rate in both samples: row sum times column sum, divided by the total.
    expected = np.stack([both * size_a, both * size_b, others * size_a, others * size_b]) / total
    with np.errstate(divide="ignore", invalid="ignore"):
        # O ln(O / E) is 0 where O is 0.
        terms = np.where(observed > 0, observed * np.log(observed / expected), 0.0)
    # A count of 0 as 0.5, since its logarithm would be infinite.
    ratio = np.log2(np.maximum(a, 0.5) / size_a) - np.log2(np.maximum(b, 0.5) / size_b)
    # The sign says where the word is more frequent; rounding may leave less than 0.
    return np.copysign(np.maximum(2 * terms.sum(0), 0), a * size_b - b * size_a), ratio


def holm(p: Numbers) -> Numbers:
    """The p of m tests together: the i-th smallest times m - i + 1, and at least that of those before it.

    Where nothing differs, the least of them is below .05 in at most 5 of 100 such lists.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".

    >>> holm(np.array([0.01, 0.04, 0.03])).round(2).tolist()
    [0.03, 0.06, 0.06]
    """
    # The smallest p times m, the next times m - 1, ...
    order = np.argsort(p, kind="stable")
    out = np.empty(len(p))
    # Never below the one before, and at most 1.
    out[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1)
    return out


def associations(near: Numbers, every: Numbers, words_near: int, words: int, uses: int) -> dict[str, Numbers]:
    """How much words keep to a word: O of their C places are near it, E = C words_near / words by chance.

        log_dice = 14 + log2(2 O / (uses + C)), mi = log2(O / E), mi3 = log2(O^3 / E), t = (O - E) / sqrt(O)

    NaN where O is 0. Source: Rychlý 2008; Church and Hanks 1990; Daille 1994; Church et al. 1991.
    """
    # Where O is 0 all measures are NaN, without a warning.
    o = np.where(near > 0, near, np.nan)
    expected = every * (words_near / words)
    return {
        "log_dice": 14 + np.log2(2 * o / (uses + every)),
        "mi": np.log2(o / expected),
        "mi3": np.log2(o**3 / expected),
        "t": (o - expected) / np.sqrt(o),
    }


def dispersion(counts: Any, sizes: Any) -> float:
    """How unevenly a word is spread over parts: 0 is even, 1 in the smallest only; NaN where there is one.

        DP = sum |counts / sum(counts) - sizes / sum(sizes)| / 2, divided by 1 - min(sizes) / sum(sizes)

    Source: Gries 2008, "Dispersions and adjusted frequencies in corpora"; Lijffijt and Gries 2012 (divisor).
    """
    counts, shares = np.asarray(counts, np.float64), np.asarray(sizes, np.float64)
    shares = shares / shares.sum()
    if len(shares) < 2:
        return float("nan")
    # Gries' DP, over its largest value.
    return float(np.abs(counts / counts.sum() - shares).sum() / 2 / (1 - shares.min()))


def _unit(store: Store, by: str) -> str:
    """The SQL of the names by which words are counted."""
    one_of("by", by, UNITS)
    if by == "lemma" and not store.one("SELECT 1 FROM form WHERE lemma != '' LIMIT 1"):
        raise InputError("by must be form: the index has no lemmas; make it with those of en, say.")
    return UNITS[by]


def _counted(store: Store, by: str, where: Sequence[str], **of: bool) -> Counter[str]:
    """How often each word is there under conditions."""
    tokens = store.tokens
    # How often each form occurs under the conditions.
    counts = np.bincount(tokens.forms[tokens.under(*limits(store, where, **of))], minlength=1)
    by_name = Counter[str]()
    names = dict(store.rows(f"SELECT f.id, {_unit(store, by)} FROM form f WHERE is_word"))
    # Several forms share a name: a lemma, or a part of speech.
    for form in np.flatnonzero(counts).tolist():
        if form in names:
            by_name[names[form]] += int(counts[form])
    return by_name


def counted(
    store: Store,
    word: str | None,
    where: Sequence[str],
    *,
    by: str,
    k: int | None,
    plot: bool,
    spelling: Spelling,
) -> Counts:
    """The counts of `Concordance.count`, but for keywords."""
    keys = plain("by", by, str).split(",")
    # "L1,R1" groups uses by their neighbours.
    if grouped := all(re.fullmatch("(?i)node|[LR][1-9]", key) for key in keys):
        if word is None:
            raise InputError(f"word must be given for by={by}: its uses are grouped.")
        hits = select(store, word, where, spelling=spelling)
    # A strip needs parts of the corpus, and uses in them.
    if plot and (grouped or by in UNITS or word is None):
        raise InputError(f"plot goes with a word by a field, as source; got by={by}.")
    if grouped:
        return groups(store, hits, keys, k=k, about=f"{word}: {len(hits.uses):,} uses by {by}")
    if by in UNITS:
        return frequencies(store, word, where, by=by, k=k, spelling=spelling)
    return by_field(store, word, where, by=by, k=k, spelling=spelling, plot=plot)


def frequencies(
    store: Store, word: str | None, where: Sequence[str], *, by: str, k: int | None, spelling: Spelling
) -> Counts:
    """The words of a corpus, or of one or of a phrase its forms, lemmas or parts of speech."""
    if word is None:
        counts = _counted(store, by, where)
    else:
        of, names = keys_of(store, select(store, word, where, spelling=spelling), "node", _unit(store, by))
        counts = Counter(dict(zip(names, np.bincount(of, minlength=len(names)).tolist(), strict=True)))
    size = _some(store, where)
    # The most first; of equals in the order of the alphabet.
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rows = tuple({by: name, "count": n, "per_million": 1e6 * n / size} for name, n in ranked[:k])
    return Counts(rows, len(ranked), _told(word, counts.total(), size, where))


def by_field(
    store: Store,
    word: str | None,
    where: Sequence[str],
    *,
    by: str,
    k: int | None,
    spelling: Spelling,
    plot: bool = False,
) -> Counts:
    """How often a word is used in the texts with each value of a field; without one, their words."""
    sizes = _sizes(store, by, where)
    size = _some(store, where)
    # A field with the name of a column of the table gets a prefix.
    name = f"meta.{by}" if by in ("count", "words", "per_million", "share") else by
    if word is None:
        rows = [{name: value, "words": n, "share": 100 * n / size} for value, n in sizes.items()]
        return Counts(_ordered(rows, "share")[:k], len(rows), _told(None, size, size, where), bar="share")
    chosen = select(store, word, where, spelling=spelling).uses
    # Uses of each document, then of each value.
    docs, uses = np.unique(store.tokens.doc_of(chosen), return_counts=True)
    counts = Counter[Any]()
    value, table = each_of(store, by)
    every = f"json_each(?) w CROSS JOIN doc d ON d.id = w.value{table}"
    for at, own in store.rows(f"SELECT DISTINCT w.key, {value} FROM {every}", [numbers(docs)]):
        counts[own] += int(uses[at])
    rows = [
        {name: value, "count": counts[value], "words": n, "per_million": 1e6 * counts[value] / n}
        for value, n in sizes.items()
    ]
    if plot:
        _plotted(store, chosen, by, where, rows, name)
    # Unevenness needs two parts at least, which share no texts, as those of a field with lists do.
    apart = len(rows) > 1 and sum(sizes.values()) == size
    spread = dispersion([row["count"] for row in rows], list(sizes.values())) if apart else None
    about = _told(word, len(chosen), size, where)
    about += "" if spread is None else f"; dispersion over {by} {spread:.2f}"
    bar = None if plot else "per_million"
    return Counts(_ordered(rows, "per_million")[:k], len(rows), about, spread, bar)


def _plotted(
    store: Store, uses: Any, by: str, where: Sequence[str], rows: list[dict[str, Any]], name: str
) -> None:
    """Into each row a strip of its words, the first at the left, higher where more of them are the uses."""
    # Documents follow each other in the strip of their value.
    condition, values = of_documents(store, where)
    column, table = each_of(store, by)
    query = f"SELECT DISTINCT d.id, {column}, d.words FROM doc d{table} WHERE {condition} ORDER BY d.id"
    begins, sizes = defaultdict[int, list[tuple[Any, int]]](list), Counter[Any]()
    for doc, value, words in store.rows(query, values):
        # Where each document begins within the strip of its value, in words.
        begins[doc].append((value, sizes[value]))
        sizes[value] += words
    tokens = store.tokens
    docs = tokens.doc_of(uses)
    # The place of a use among the words of its document.
    within = np.searchsorted(tokens.words, uses) - np.searchsorted(tokens.words, tokens.doc_first[docs - 1])
    cells: dict[Any, Counter[int]] = {value: Counter() for value in sizes}
    for doc, at in zip(docs.tolist(), within.tolist(), strict=True):
        for value, begin in begins[doc]:
            # One of 40 cells along the strip.
            cells[value][min(_CELLS - 1, _CELLS * (begin + at) // sizes[value])] += 1
    for row in rows:
        own = cells[row[name]]
        most = max(own.values(), default=1)
        # Eighths of the fullest cell, rounded up so that one use shows.
        row["plot"] = "".join("·▁▂▃▄▅▆▇█"[-(-8 * own[cell] // most)] for cell in range(_CELLS))


def keywords(
    store: Store, where: Sequence[str], against: Sequence[str], *, by: str, k: int | None, least: int = 0
) -> Counts:
    """The words that are more frequent in one part of a corpus than in another, the surest first."""
    rest, every = list(against) == [REST], _counted(store, by, ())
    if rest and not where:
        raise InputError("against must be conditions unless where is given; got rest.")
    # "rest" is all other texts: counted by subtraction.
    for side in (where, () if rest else against):
        _some(store, side)
    a = _counted(store, by, where) if where else every - _counted(store, by, against)
    b = every - a if rest else _counted(store, by, against)
    # A text on both sides would be compared with itself.
    if where and not rest and _counted(store, by, [*where, *against]):
        raise InputError("against must have no text that where has; rest stands for all others.")
    about = f"{', '.join(where) or REST} against {', '.join(against)}"
    return _compared(by, {}, a, b, k, about, least=least)


def collocates(
    store: Store,
    found: Found,
    against: Found | None = None,
    *,
    span: tuple[int, int] = (5, 5),
    by: str = "form",
    where: Sequence[str] = (),
    k: int | None = 50,
    least: int = 0,
    measure: str = "g2",
    about: str = "",
) -> Counts:
    """The words that stand more often around some uses than others, or than elsewhere under `where`."""
    names = dict(store.rows(f"SELECT f.id, {_unit(store, by)} FROM form f"))
    if not any(span):
        raise InputError(f"span must have words on one side at least; got {span}.")

    def around(uses: Found) -> tuple[Counter[str], Counter[str]]:
        near = neighbours(store, uses, *span)
        # A word near two uses counts once.
        _, at = np.unique(near.use, return_index=True)
        forms, left = near.form[at], near.distance[at] < 0
        before, after = (Counter(map(names.__getitem__, forms[side].tolist())) for side in (left, ~left))
        return before, after

    left, right = around(found)
    if against is not None:
        before, after = around(against)
        b = before + after
    else:
        # Elsewhere: all words under the conditions, without those near; conditions on single uses do not
        # hold for neighbours.
        b = _counted(store, by, where, of_use=False) - left - right
    uses = len(found.uses) if against is None else 0
    sides = {"left": left, "right": right}
    return _compared(by, sides, left + right, b, k, about, uses=uses, least=least, measure=measure)


def _compared(
    by: str,
    columns: dict[str, Counter[str]],
    a: Counter[str],
    b: Counter[str],
    k: int | None,
    about: str,
    *,
    uses: int = 0,
    least: int = 0,
    measure: str = "g2",
) -> Counts:
    """The words of two samples, those first that are surest to be more frequent in the first.

    With `uses`, of a word, how much they keep to it too.
    """
    one_of("measure", measure, MEASURES)
    # Words of the two samples.
    sizes = a.total(), b.total()
    if not all(sizes):
        raise InputError("against must leave words on both sides; one of them has none.")
    names = sorted(name for name in a.keys() | b.keys() if a[name] >= least)
    if not names:
        raise InputError(f"least must be fewer: no word is there {least} times.")
    columns = {**columns, "count": a, "other": b}
    # Two columns of counts, in the order of names.
    here, there = (np.array([each[name] for name in names], np.float64) for each in (a, b))
    g2, ratio = log_likelihood(here, there, *sizes)
    statistics = {"log_ratio": ratio, "g2": g2, "p": holm(np.array([*map(_p, g2.tolist())]))}
    if uses:
        statistics |= associations(here, here + there, sizes[0], sum(sizes), uses)
    # Sorted by the measure; NaN, which no measure should be, comes last.
    order = np.argsort(-np.nan_to_num(statistics[measure], nan=-np.inf), kind="stable")[:k].tolist()
    # JSON and tables have no NaN: it is shown as "-".
    values = {
        name: [None if math.isnan(each) else each for each in of[order].tolist()]
        for name, of in statistics.items()
    }
    rows = [
        {by: names[at]}
        | {column: of[names[at]] for column, of in columns.items()}
        | {name: of[row] for name, of in values.items()}
        for row, at in enumerate(order)
    ]
    shown = (by, *columns, *dict.fromkeys(("log_ratio", measure, "g2", "p")))
    return Counts(tuple(rows), len(names), f"{about}: {sizes[0]:,} and {sizes[1]:,} words", shown=shown)


def _p(g2: float) -> float:
    """The p-value of a log-likelihood, by chi squared with one degree of freedom."""
    # erfc(sqrt(x / 2)) is the upper tail of chi squared with one degree of freedom.
    return math.erfc(math.sqrt(abs(g2) / 2))


def groups(store: Store, found: Found, keys: Sequence[str], *, k: int | None, about: str) -> Counts:
    """How many uses have the same words at L1, R1, node, ... together, the most first."""
    columns = [keys_of(store, found, key) for key in keys]
    # The distinct columns are the groups: (keys, groups).
    distinct, counts = np.unique(np.stack([of for of, _ in columns]), axis=1, return_counts=True)
    names = [key if key == "node" else key.upper() for key in keys]
    rows = [
        {name: own[at] for name, (_, own), at in zip(names, columns, distinct[:, row].tolist(), strict=True)}
        | {"count": int(counts[row]), "percent": 100 * float(counts[row]) / len(found.uses)}
        for row in np.argsort(-counts, kind="stable")[:k].tolist()
    ]
    return Counts(tuple(rows), len(counts), about, bar="percent")


def _sizes(store: Store, by: str | None, where: Sequence[str]) -> dict[Any, int]:
    """The words of the texts with each value of a field."""
    condition, values = of_documents(store, where)
    column, table = ("1", "") if by is None else each_of(store, by)
    each = f"SELECT DISTINCT d.id, {column} name, d.words FROM doc d{table} WHERE {condition}"
    # Values without words (only marks) have no rate.
    query = f"SELECT name, sum(words) n FROM ({each}) GROUP BY 1 HAVING n > 0"
    # Also the text that CSV has for numbers in their order; the number that a date begins with is its year.
    return dict(store.rows(f"{query} ORDER BY name IS NULL, CAST(name AS REAL), name", values))


def size_of(store: Store, where: Sequence[str]) -> int:
    """The words of the texts that conditions allow."""
    return sum(_sizes(store, None, where).values())


def _some(store: Store, where: Sequence[str]) -> int:
    """As `size_of`, where there are any."""
    if not (size := size_of(store, where)):
        why = unmet(store, where) or f" None has all of {', '.join(where)}."
        raise InputError(f"where and against must leave texts.{why}")
    return size


def _ordered(rows: list[dict[str, Any]], column: str) -> tuple[dict[str, Any], ...]:
    """Numbers and dates as they follow, anything else by size; what is unknown last."""
    by = next(iter(rows[0])) if rows else ""
    # Years and numbers in their own order; others by the column.
    if all(row[by] is None or str(row[by]).lstrip("-")[:1].isdigit() for row in rows):
        return tuple(rows)
    return tuple(sorted(rows, key=lambda row: (row[by] is None, -row[column])))


def _told(word: str | None, uses: int, size: int, where: Sequence[str]) -> str:
    under = f" with {', '.join(where)}" if where else ""
    if word is None:
        return f"{uses:,} words{under}"
    return f"{word}{under}: {uses:,} of {size:,} words, {1e6 * uses / max(size, 1):,.1f} per million"
