"""Means over a corpus with their bootstrap intervals, in memory that does not grow with it."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from regard.tracing.patterns._rows import Rows

# From fewer texts, single queries are drawn instead of texts; of fewer units, no interval is given.
FEWEST_TEXTS = 10
FEWEST_UNITS = 8


def query_draws(seed: int) -> np.random.Generator:
    """What draws the queries of fewer than ten texts: of each resample, a Poisson(1) count for each query.

    Example:
        >>> query_draws(0).poisson(1.0, (2, 3)).tolist()
        [[0, 0, 0], [0, 0, 0]]
    """
    return np.random.default_rng((seed, 1))


class Sums(NamedTuple):
    """Sums over the rows that count, each (heads, patterns), or with the resamples as a first axis."""

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
        mass, even, habit = (_ratio(each, self.counted) for each in self[1:])
        result: np.ndarray = mass - np.maximum(even, habit)
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class Effects:
    """What a layer's heads do over the corpus, each (heads, patterns).

    Args:
        effect: see `heads`; NaN where nothing counts.
        low, high: the ends of its interval; NaN where there are fewer than eight units.
        mass: the mean over the rows that count.
        captured: the sum over them, divided by all rows that were asked.
        queries: how many rows count.
    """

    effect: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mass: np.ndarray
    captured: np.ndarray
    queries: np.ndarray


class Bootstrap:
    """A bootstrap that sees each text once: in each of B resamples it counts Poisson(1) times.

    Drawing n of n with replacement counts each Binomial(n, 1/n) times, which is Poisson(1) for large n; and
    as a Poisson count does not depend on n, the corpus can be a stream (Chamandy et al. 2012, "Estimating
    Uncertainty for Massive Data Streams"). Drawn are texts, since the rows of a text hang together; from
    fewer than ten texts single queries, whose intervals are about these texts and no others.

    Args:
        shape: heads, patterns.
        resamples: B.
        seed: of the draws; layers with the same seed draw the same texts.
    """

    def __init__(self, shape: tuple[int, int], *, resamples: int, seed: int) -> None:
        self._of_texts = np.random.default_rng((seed, 0))
        self._of_queries = query_draws(seed)
        self._resamples = resamples
        self._sums = Sums.zeros(*shape)
        self._by_text: Sums | None = None
        self._first_texts: list[tuple[np.ndarray, Sums]] = []  # drawn and added up only once they count
        self._by_query: Sums | None = Sums.zeros(resamples, *shape)
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
        self._first_texts.append((self._of_texts.poisson(1.0, self._resamples).astype(np.float64), of_text))
        if self._texts >= FEWEST_TEXTS:
            self._by_query = None
            self._by_text = self._by_text or Sums.zeros(self._resamples, *counted.shape[::2])
            for times, sums in self._first_texts:
                for resampled, values in zip(self._by_text, sums, strict=True):
                    resampled += times[:, None, None] * values
            self._first_texts.clear()
        self._texts_with += counted.any(axis=1)
        self._asked += rows.asked.numpy()
        if self._by_query is None:
            return
        heads, queries, patterns = counted.shape
        times = self._of_queries.poisson(1.0, (self._resamples, queries)).astype(np.float64)
        for resampled, values in zip(self._by_query, each, strict=True):
            flat = values.transpose(1, 0, 2).reshape(queries, heads * patterns)
            resampled += (times @ flat).reshape(self._resamples, heads, patterns)

    def effects(self, levels: np.ndarray) -> Effects:
        """The effects; an interval holds its pattern's level of the resamples, as many below it as above."""
        total = self._sums
        drawn, units = self._by_text, self._texts_with.astype(float)
        if drawn is None:
            assert self._by_query is not None
            drawn, units = self._by_query, total.counted
        enough = units >= FEWEST_UNITS
        # A resample that drew none of the rows says nothing: of eight units, one in 3000.
        resampled = Sums(*(each[:, enough] for each in drawn)).effect()
        low, high = np.full(enough.shape, np.nan), np.full(enough.shape, np.nan)
        of_pattern = np.nonzero(enough)[1]
        for level in np.unique(levels):
            tails = [(1.0 - level) / 2.0, (1.0 + level) / 2.0]
            at = enough & (levels == level)
            low[at], high[at] = _quantiles(resampled[:, levels[of_pattern] == level], tails)
        return Effects(
            effect=total.effect(),
            low=low,
            high=high,
            mass=_ratio(total.mass, total.counted),
            captured=_ratio(total.mass, np.broadcast_to(self._asked, total.mass.shape)),
            queries=total.counted.astype(np.int64),
        )


def _quantiles(resampled: np.ndarray, tails: list[float]) -> np.ndarray:
    """Along the first axis, of what is no NaN: numpy does that column by column, a hundred times slower."""
    found: np.ndarray = np.quantile(resampled, tails, axis=0)
    some = np.isnan(resampled).any(axis=0)
    found[:, some] = np.nanquantile(resampled[:, some], tails, axis=0)
    return found


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    ratio = np.full(above.shape, np.nan)
    np.divide(above, below, out=ratio, where=below > 0)
    return ratio
