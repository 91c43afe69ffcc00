"""Means over a corpus with their bootstrap intervals, in memory that does not grow with it."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from regard.tracing.patterns._rows import Rows

# From fewer texts, single queries are drawn instead of texts; of fewer units, no interval is given.
FEWEST_TEXTS = 10
FEWEST_UNITS = 8


# Not the stream that texts are drawn from: static/live/naming.js draws these alone.
def query_draws(seed: int) -> np.random.Generator:
    """Draws a Poisson(1) count for each query of each resample, where there are fewer than ten texts."""
    return np.random.default_rng((seed, 1))


class Sums(NamedTuple):
    """Sums over the rows that count, each (heads, patterns), or with the resamples as a last axis."""

    counted: np.ndarray
    mass: np.ndarray
    even: np.ndarray
    habit: np.ndarray

    @classmethod
    def zeros(cls, *shape: int) -> "Sums":
        """Before the first row."""
        return cls(*(np.zeros(shape) for _ in cls._fields))

    def effect(self) -> np.ndarray:
        """Mean of mass, less the larger of the means of `even` and `habit`; NaN where nothing counts."""
        return _ratio(self.mass - np.maximum(self.even, self.habit), self.counted)


@dataclass(frozen=True, kw_only=True, eq=False)
class Effects:
    """What a layer's heads do over the corpus, each (heads, patterns)."""

    effect: np.ndarray  # see `heads`; NaN where nothing counts
    low: np.ndarray  # the ends of its interval; NaN where there are fewer than eight units
    high: np.ndarray
    mass: np.ndarray  # the mean over the rows that count
    captured: np.ndarray  # the sum over them, divided by all rows that were asked
    queries: np.ndarray  # how many rows count


class Draws:
    """How often each text, and each query of it, counts in each resample: the same for every layer."""

    def __init__(self, *, resamples: int, seed: int) -> None:
        self.resamples = resamples
        self._of_texts = np.random.default_rng((seed, 0))
        self._of_queries = query_draws(seed)
        self._text = 0
        self._last = np.zeros(0), np.zeros(0)

    def of(self, text: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
        """Of a text, numbered from 1: (B,) for itself, and (queries, B), empty once texts are drawn.

        A layer asks for one text after the other; all layers for one text before any for the next.
        """
        if text != self._text:
            units = queries if text < FEWEST_TEXTS else 0
            of_text = self._of_texts.poisson(1.0, self.resamples)
            of_queries = self._of_queries.poisson(1.0, (self.resamples, units)).T
            self._text, self._last = text, (of_text.astype(np.float64), of_queries.astype(np.float64))
        return self._last


class Bootstrap:
    """A bootstrap that sees each text once: in each of B resamples it counts Poisson(1) times.

    Drawing n of n with replacement counts each Binomial(n, 1/n) times, which is Poisson(1) for large n; and
    as a Poisson count does not depend on n, the corpus can be a stream (Chamandy et al. 2012, "Estimating
    Uncertainty for Massive Data Streams"). Drawn are texts, since the rows of a text hang together; from
    fewer than ten texts single queries, whose intervals are about these texts and no others.

    `shape` is (heads, patterns); all layers share the draws.
    """

    def __init__(self, shape: tuple[int, int], draws: Draws) -> None:
        self._draws = draws
        self._sums = Sums.zeros(*shape)
        self._by_text: Sums | None = None
        self._first_texts: list[tuple[np.ndarray, Sums]] = []  # added up only once they count
        self._by_query: Sums | None = Sums.zeros(*shape, draws.resamples)
        self._texts_with = np.zeros(shape, dtype=np.int64)
        self._asked = np.zeros(shape[1])
        self._texts = 0

    @property
    def unit(self) -> str:
        """What is drawn: "text" or "query"."""
        return "query" if self._by_text is None else "text"

    def add(self, rows: Rows) -> None:
        """Take in a text."""
        self._texts += 1
        counted = rows.counted.double().numpy()
        each = [counted, *(getattr(rows, name).double().numpy() * counted for name in Sums._fields[1:])]
        of_text = Sums(*(values.sum(axis=1) for values in each))
        for total, values in zip(self._sums, of_text, strict=True):
            total += values
        times, times_of_queries = self._draws.of(self._texts, counted.shape[1])
        self._first_texts.append((times, of_text))
        if self._texts >= FEWEST_TEXTS:
            self._by_query = None
            self._by_text = self._by_text or Sums.zeros(*self._texts_with.shape, self._draws.resamples)
            for times, sums in self._first_texts:
                for resampled, values in zip(self._by_text, sums, strict=True):
                    resampled += values[..., None] * times
            self._first_texts.clear()
        self._texts_with += counted.any(axis=1)
        self._asked += rows.asked.numpy()
        if self._by_query is None:
            return
        for resampled, values in zip(self._by_query, each, strict=True):
            of_pattern = values.transpose(0, 2, 1)
            # Under most patterns the same rows count in every head.
            alike = (of_pattern == of_pattern[0]).all(axis=(0, 2))
            if not alike.any():
                resampled += of_pattern @ times_of_queries
                continue
            resampled[:, alike] += of_pattern[0, alike] @ times_of_queries
            resampled[:, ~alike] += of_pattern[:, ~alike] @ times_of_queries

    def effects(self, levels: np.ndarray) -> Effects:
        """The effects; an interval holds its pattern's level of the resamples, as many below it as above."""
        total = self._sums
        drawn, units = self._by_text, self._texts_with.astype(float)
        if drawn is None:
            assert self._by_query is not None
            drawn, units = self._by_query, total.counted
        enough = units >= FEWEST_UNITS
        # A resample that drew none of the rows says nothing: of eight units, one in 3000.
        resampled = np.sort(Sums(*(each[enough] for each in drawn)).effect(), axis=1)
        low, high = np.full(enough.shape, np.nan), np.full(enough.shape, np.nan)
        of_level = np.broadcast_to(levels, enough.shape)[enough]
        low[enough] = _quantile(resampled, (1.0 - of_level) / 2.0)
        high[enough] = _quantile(resampled, (1.0 + of_level) / 2.0)
        return Effects(
            effect=total.effect(),
            low=low,
            high=high,
            mass=_ratio(total.mass, total.counted),
            captured=_ratio(total.mass, np.broadcast_to(self._asked, total.mass.shape)),
            queries=total.counted.astype(np.int64),
        )


def _quantile(ordered: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The wanted quantile of each sorted row, without its NaN, which stand last.

    As numpy's nanquantile, which goes row by row and takes a hundred times as long.
    """
    last = np.count_nonzero(~np.isnan(ordered), axis=1) - 1
    place = last * at
    below = np.floor(place).astype(np.int64)
    rows = np.arange(len(ordered))
    low, high = ordered[rows, below], ordered[rows, np.minimum(below + 1, last)]
    found: np.ndarray = low + (high - low) * (place - below)
    return found


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    ratio = np.full(above.shape, np.nan)
    np.divide(above, below, out=ratio, where=below > 0)
    return ratio
