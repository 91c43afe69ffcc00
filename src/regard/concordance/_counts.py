"""Counts: of words, over the parts of a corpus, in one part against another, and around a word."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from regard.concordance._query import Spelling
from regard.concordance._store import Store
from regard.concordance._uses import Found, keys_of, neighbours, select
from regard.concordance._where import column_of, limits, of_documents, values_of
from regard.core.arguments import one_of
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
    "lemma": "CASE f.lemma WHEN '' THEN f.key ELSE f.lemma END",
    "pos": "f.pos",
}
"""By what words are counted."""

_BAR: Final = 24


@dataclass(frozen=True, eq=False)
class Counts(Displayable):
    """A table of counts.

    Attributes:
        rows, total: each a dictionary by column; and how many there are, with those left out.
        about: what was counted, in words.
        dispersion: of a word over a field, from 0, even, to 1, in one part only; else None.
        bar: the column that is drawn as bars too.
    """

    rows: tuple[dict[str, Any], ...]
    total: int
    about: str
    dispersion: float | None = None
    bar: str | None = None

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
        lines = [[_cell(value) for value in row.values()] for row in self.rows]
        longest = max((row[self.bar] for row in self.rows), default=0) if self.bar else 0
        for line, row in zip(lines, self.rows, strict=True):
            line += ["█" * round(_BAR * row[self.bar] / (longest or 1))] if self.bar else []
        names = [name.replace("_", " ") for name in next(iter(self.rows), {})]
        yield plain_table([*names, ""][: len(lines[0]) if lines else 0], lines, bar=self.bar is not None)
        if self.total > len(self.rows):
            yield Text(f"\n{self.total - len(self.rows):,} more rows", style="dim")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 1000 else f"{value:,.0f}"
    return "-" if value is None else f"{value:,}" if type(value) is int else excerpt(str(value), 30)


def log_likelihood(a: Any, b: Any, size_a: float, size_b: float) -> tuple[Numbers, Numbers]:
    """G2 = 2 sum O ln(O / E) over a word and all others in two samples, and log2 of the ratio of its rates.

    G2 is negative where the word is rarer in the first; for the ratio a count of 0 is taken as 0.5.

    Source: Dunning 1993, "Accurate methods for the statistics of surprise and coincidence"; Rayson and
    Garside 2000, "Comparing corpora using frequency profiling". The ratio: Hardie 2014.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    observed = np.stack([a, b, size_a - a, size_b - b])
    both, total = a + b, size_a + size_b
    others = total - both
    expected = np.stack([both * size_a, both * size_b, others * size_a, others * size_b]) / total
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(observed > 0, observed * np.log(observed / expected), 0.0)
    ratio = np.log2(np.maximum(a, 0.5) / size_a) - np.log2(np.maximum(b, 0.5) / size_b)
    return np.copysign(np.maximum(2 * terms.sum(0), 0), a * size_b - b * size_a), ratio


def dispersion(counts: Any, sizes: Any) -> float:
    """How unevenly a word is spread over parts: 0 is even, 1 in the smallest only; NaN where there is one.

        DP = sum |counts / sum(counts) - sizes / sum(sizes)| / 2, divided by 1 - min(sizes) / sum(sizes)

    Source: Gries 2008, "Dispersions and adjusted frequencies in corpora"; Lijffijt and Gries 2012 (divisor).
    """
    counts, shares = np.asarray(counts, np.float64), np.asarray(sizes, np.float64)
    shares = shares / shares.sum()
    if len(shares) < 2:
        return float("nan")
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
    counts = np.bincount(tokens.forms[tokens.under(*limits(store, where, **of))], minlength=1)
    found, names = (
        Counter[str](),
        dict(store.rows(f"SELECT f.id, {_unit(store, by)} FROM form f WHERE is_word")),
    )
    for form in np.flatnonzero(counts).tolist():
        if form in names:
            found[names[form]] += int(counts[form])
    return found


def frequencies(
    store: Store, word: str | None, where: Sequence[str], *, by: str, k: int | None, spelling: Spelling
) -> Counts:
    """The words of a corpus, or of one or of a phrase its forms, lemmas or parts of speech."""
    if word is None:
        counts = _counted(store, by, where)
    else:
        of, names = keys_of(store, select(store, word, where, spelling=spelling), "node", _unit(store, by))
        counts = Counter(dict(zip(names, np.bincount(of, minlength=len(names)).tolist(), strict=True)))
    size = sum(_sizes(store, None, where).values())
    found = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rows = tuple({by: name, "count": n, "per_million": 1e6 * n / size} for name, n in found[:k])
    return Counts(rows, len(found), _told(word, counts.total(), size, where))


def by_field(
    store: Store, word: str | None, where: Sequence[str], *, by: str, k: int | None, spelling: Spelling
) -> Counts:
    """How often a word is used in the texts with each value of a field; without one, their words."""
    sizes = _sizes(store, by, where)
    size = sum(sizes.values())
    name = f"meta.{by}" if by in ("count", "words", "per_million", "share") else by
    if word is None:
        rows = [{name: value, "words": n, "share": 100 * n / size} for value, n in sizes.items()]
        return Counts(_ordered(rows, "share")[:k], len(rows), _told(None, size, size, where), bar="share")
    chosen = select(store, word, where, spelling=spelling).uses
    docs, uses = np.unique(store.tokens.doc_of(chosen), return_counts=True)
    counts = Counter[Any]()
    for value, n in zip(values_of(store, docs, by), uses.tolist(), strict=True):
        counts[value] += n
    rows = [
        {name: value, "count": counts[value], "words": n, "per_million": 1e6 * counts[value] / n}
        for value, n in sizes.items()
    ]
    spread = dispersion([row["count"] for row in rows], list(sizes.values())) if len(rows) > 1 else None
    told = _told(word, counts.total(), size, where)
    told += "" if spread is None else f"; dispersion over {by} {spread:.2f}"
    return Counts(_ordered(rows, "per_million")[:k], len(rows), told, spread, "per_million")


def keywords(store: Store, where: Sequence[str], against: Sequence[str], *, by: str, k: int | None) -> Counts:
    """The words that are more frequent in one part of a corpus than in another, the surest first."""
    rest, every = list(against) == [REST], _counted(store, by, ())
    if rest and not where:
        raise InputError("against must be conditions unless where is given; got rest.")
    a = _counted(store, by, where) if where else every - _counted(store, by, against)
    b = every - a if rest else _counted(store, by, against)
    if where and not rest and _counted(store, by, [*where, *against]):
        raise InputError("against must have no text that where has; rest stands for all others.")
    return _compared(by, {}, a, b, k, f"{', '.join(where) or REST} against {', '.join(against)}")


def collocates(
    store: Store,
    found: Found,
    against: Found | None = None,
    *,
    span: tuple[int, int] = (5, 5),
    by: str = "form",
    where: Sequence[str] = (),
    k: int | None = 50,
    about: str = "",
) -> Counts:
    """The words that stand more often around some uses than others, or than elsewhere under `where`."""
    names = dict(store.rows(f"SELECT f.id, {_unit(store, by)} FROM form f"))

    def around(uses: Found) -> tuple[Counter[str], Counter[str]]:
        near = neighbours(store, uses, *span)
        _, at = np.unique(near.use, return_index=True)  # once, however many of the uses are near
        forms, left = near.form[at], near.distance[at] < 0
        before, after = (Counter(map(names.__getitem__, forms[side].tolist())) for side in (left, ~left))
        return before, after

    left, right = around(found)
    if against is not None:
        before, after = around(against)
        b = before + after
    else:
        b = _counted(store, by, where, of_use=False) - left - right
    return _compared(by, {"left": left, "right": right}, left + right, b, k, about)


def _compared(
    by: str, columns: dict[str, Counter[str]], a: Counter[str], b: Counter[str], k: int | None, about: str
) -> Counts:
    """The words of two samples, those first that are surest to be more frequent in the first."""
    sizes = a.total(), b.total()
    if not all(sizes):
        raise InputError("against must leave words on both sides; one of them has none.")
    names, columns = sorted(a.keys() | b.keys()), {**columns, "count": a, "other": b}
    g2, ratio = log_likelihood([a[name] for name in names], [b[name] for name in names], *sizes)
    rows = [
        {by: names[at]}
        | {column: of[names[at]] for column, of in columns.items()}
        | {"log_ratio": float(ratio[at]), "g2": float(g2[at])}
        for at in np.argsort(-g2, kind="stable")[:k].tolist()
    ]
    return Counts(tuple(rows), len(names), f"{about}: {sizes[0]:,} and {sizes[1]:,} words")


def _sizes(store: Store, by: str | None, where: Sequence[str]) -> dict[Any, int]:
    """The words of the texts with each value of a field."""
    condition, values = of_documents(store, where)
    column = "1" if by is None else column_of(store, by, "by")
    query = f"SELECT {column} name, sum(d.words) n FROM doc d WHERE {condition} GROUP BY 1 HAVING n > 0"
    return dict(store.rows(f"{query} ORDER BY name IS NULL, name", values))


def _ordered(rows: list[dict[str, Any]], column: str) -> tuple[dict[str, Any], ...]:
    """Numbers and dates as they follow, anything else by size; what is unknown last."""
    by = next(iter(rows[0])) if rows else ""
    if all(row[by] is None or str(row[by])[:1].isdigit() for row in rows):
        return tuple(rows)
    return tuple(sorted(rows, key=lambda row: (row[by] is None, -row[column])))


def _told(word: str | None, uses: int, size: int, where: Sequence[str]) -> str:
    under = f" with {', '.join(where)}" if where else ""
    if word is None:
        return f"{uses:,} words{under}"
    return f"{word}{under}: {uses:,} of {size:,} words, {1e6 * uses / max(size, 1):,.1f} per million"
