"""What is counted of one kind of attention, text by text: means, their intervals, and the cards of heads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from regard.core.arguments import index_of
from regard.models import Kind
from regard.tracing.patterns._card import HeadCard, HeadExample, HeadFinding
from regard.tracing.patterns._patterns import HeadPattern, KeyPattern, Sides
from regard.tracing.patterns._rows import (
    EXAMPLES,
    Rows,
    TextPatterns,
    Visible,
    look_at_mask,
    measure,
    same_view,
)
from regard.tracing.record import AttentionTrace, Trace

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

    def of_text(self, text: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
        """The draws of a text, numbered from 1: (B,) of itself, and (queries, B), empty once texts are drawn.

        A layer asks for one text after the other; all layers for one text before any for the next.
        """
        # The next text; layers of the same text get the same draws.
        if text != self._text:
            # Queries are only drawn while there are fewer than ten texts.
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
        # Draws are shared by all layers, so that the same texts count in each.
        self._draws = draws
        self._sums = Sums.zeros(*shape)
        # None until there are ten texts.
        self._by_text: Sums | None = None
        # Kept apart until they count.
        self._first_texts: list[tuple[np.ndarray, Sums]] = []
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
        # (heads, queries, patterns): the rows that count, and what they give.
        each = [counted, *(getattr(rows, name).double().numpy() * counted for name in Sums._fields[1:])]
        of_text = Sums(*(values.sum(axis=1) for values in each))
        for total, values in zip(self._sums, of_text, strict=True):
            total += values
        # How often this text counts in each resample, and each of its queries.
        times, times_of_queries = self._draws.of_text(self._texts, counted.shape[1])
        self._first_texts.append((times, of_text))
        # From ten texts on, whole texts are drawn: rows of one text are not independent.
        if self._texts >= FEWEST_TEXTS:
            self._by_query = None
            self._by_text = self._by_text or Sums.zeros(*self._texts_with.shape, self._draws.resamples)
            # What was kept of the first texts counts now.
            for times, sums in self._first_texts:
                for resampled, values in zip(self._by_text, sums, strict=True):
                    resampled += values[..., None] * times
            self._first_texts.clear()
        self._texts_with += counted.any(axis=1)
        self._asked += rows.asked.numpy()
        if self._by_query is None:
            return
        for resampled, values in zip(self._by_query, each, strict=True):
            # (heads, patterns, queries) @ (queries, B)
            of_pattern = values.transpose(0, 2, 1)
            # Under most patterns the same rows count in every head.
            alike = (of_pattern == of_pattern[0]).all(axis=(0, 2))
            if not alike.any():
                resampled += of_pattern @ times_of_queries
                continue
            # One product instead of one a head.
            resampled[:, alike] += of_pattern[0, alike] @ times_of_queries
            resampled[:, ~alike] += of_pattern[:, ~alike] @ times_of_queries

    def effects(self, levels: np.ndarray) -> Effects:
        """The effects; an interval holds its pattern's level of the resamples, as many below it as above."""
        total = self._sums
        # Texts are the units, or queries where there are few texts.
        drawn, units = self._by_text, self._texts_with.astype(float)
        if drawn is None:
            assert self._by_query is not None
            drawn, units = self._by_query, total.counted
        enough = units >= FEWEST_UNITS
        # A resample that drew none of the rows says nothing: of eight units, one in 3000.
        resampled = np.sort(Sums(*(each[enough] for each in drawn)).effect(), axis=1)
        low, high = np.full(enough.shape, np.nan), np.full(enough.shape, np.nan)
        of_level = np.broadcast_to(levels, enough.shape)[enough]
        # As much below the interval as above.
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
    # Linear between the two neighbours, as numpy's default.
    below = np.floor(place).astype(np.int64)
    rows = np.arange(len(ordered))
    low, high = ordered[rows, below], ordered[rows, np.minimum(below + 1, last)]
    quantiles: np.ndarray = low + (high - low) * (place - below)
    return quantiles


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    ratio = np.full(above.shape, np.nan)
    np.divide(above, below, out=ratio, where=below > 0)
    return ratio


class Examples:
    """For each layer, head and pattern the rows that give most to the pattern's keys, of several texts.

    A text's second row comes after every text's first. Of equal ones the first stays. Only texts that are
    still somebody's example are kept. `shapes` are each layer's heads and patterns.
    """

    def __init__(self, shapes: list[tuple[int, int]]) -> None:
        rooms = [(*shape, EXAMPLES) for shape in shapes]
        # -1 where there is no example yet.
        self._mass = [np.full(room, -1.0) for room in rooms]
        # text, query, key, and which of its text's rows it is
        self._where = [np.full((*room, 4), -1, dtype=np.int64) for room in rooms]
        # By text: the tokens of its queries and of its keys, as people read them.
        self._tokens: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def add(self, layer: int, text: int, rows: Rows) -> None:
        """Take in one layer of a text."""
        query = rows.best_query.numpy()
        heads, patterns = (np.arange(size) for size in query.shape[:2])
        # The mass of each candidate row: (heads, patterns, EXAMPLES).
        mass = rows.mass.numpy()[heads[:, None, None], query.clip(0), patterns[:, None]]
        rank = np.broadcast_to(np.arange(query.shape[2]), query.shape)
        where = np.stack([np.full_like(query, text), query, rows.best_key.numpy(), rank], axis=-1)
        masses = np.concatenate([self._mass[layer], np.where(query >= 0, mass, -1.0)], axis=-1)
        places = np.concatenate([self._where[layer], where], axis=-2)
        # A mass is at most 1, so that rank goes before it; what is no row goes last.
        key = np.where(masses < 0, np.inf, 2.0 * places[..., 3] - masses)
        order = np.argsort(key, axis=-1, kind="stable")[..., :EXAMPLES]
        self._mass[layer] = np.take_along_axis(masses, order, axis=-1)
        self._where[layer] = np.take_along_axis(places, order[..., None], axis=-2)

    def end_text(self, text: int, sides: Sides) -> None:
        """Keep the tokens of a text that has become an example, and of no other."""
        tokens = tuple(token.label for token in sides.queries)
        shared = sides.kind != "cross"
        # Queries and keys share their tokens, except in cross-attention.
        self._tokens[text] = tokens, tokens if shared else tuple(token.label for token in sides.keys)
        used = {
            int(each)
            for mass, where in zip(self._mass, self._where, strict=True)
            for each in np.unique(where[..., 0][mass >= 0])
        }
        self._tokens = {number: kept for number, kept in self._tokens.items() if number in used}

    def of_head(self, layer: int, head: int, pattern: int) -> tuple[HeadExample, ...]:
        """The examples, one of each text before the second of any, the strongest first."""
        examples = []
        masses, places = self._mass[layer][head, pattern], self._where[layer][head, pattern]
        for mass, (text, query, key, _) in zip(masses.tolist(), places.tolist(), strict=True):
            if mass < 0:
                continue
            tokens, keys = self._tokens[text]
            examples.append(HeadExample(text=text, tokens=tokens, keys=keys, query=query, key=key, mass=mass))
        return tuple(examples)


_NUMBERS = ("effect", "low", "high", "mass", "captured")


class Counter:
    """What has been counted of one kind of attention, layer by layer; or of one layer or head only."""

    def __init__(
        self,
        trace: Trace,
        kind: Kind,
        patterns: Sequence[HeadPattern],
        *,
        layer: int | None,
        head: int | None,
        resamples: int,
        seed: int,
    ) -> None:
        self.kind, self.patterns = kind, tuple(patterns)
        # Variants of a pattern share its name.
        self.names = [each.name for each in self.patterns]
        self.details = [each.detail for each in self.patterns]
        self.of_key = [number for number, each in enumerate(self.patterns) if isinstance(each, KeyPattern)]
        # Where no attention was kept, reading the first layer says so.
        kept = list(trace.layers_of(kind)) or [0]
        self.layers = kept if layer is None else [trace.layer_index(layer, kind)]
        shapes = [
            (trace.attention_of(each, kind).inputs.num_heads, len(self.patterns)) for each in self.layers
        ]
        self.heads = [self._chosen(head, count) for count, _ in shapes]
        draws = Draws(resamples=resamples, seed=seed)
        self.counted = [Bootstrap(shape, draws) for shape in shapes]
        self.examples = Examples(shapes)
        self.parts: list[torch.Tensor | float] = [0.0] * len(shapes)
        self.part_names: list[list[str]] = []

    @property
    def unit(self) -> str:
        """What the bootstrap draws."""
        return self.counted[0].unit

    def add(self, number: int, trace: Trace) -> None:
        """Count a text."""
        sides = Sides.of_trace(trace, self.kind)
        asked = TextPatterns.of_text(sides, self.patterns)
        # Parts of key patterns have the same names in every text.
        if not self.part_names:
            of_key = [each for each in self.patterns if isinstance(each, KeyPattern)]
            self.part_names = [list(each.parts(sides)) for each in of_key]
        seen: tuple[AttentionTrace, Visible] | None = None
        for place, layer in enumerate(self.layers):
            traced = trace.attention_of(layer, self.kind)
            # Layers of one text usually share a mask: it is looked at once.
            if seen is None or not same_view(seen[0].inputs, traced.inputs):
                seen = traced, look_at_mask(traced.inputs, asked)
            with torch.no_grad():  # a bias may be learned
                rows: Rows = measure(traced.inputs, asked, seen[1])
            self.counted[place].add(rows)
            self.examples.add(place, number, rows)
            # Summed over texts; the first is the number 0.
            self.parts[place] = self.parts[place] + rows.parts.double()
        self.examples.end_text(number, sides)

    def cards(self, threshold: float, level: float) -> Iterator[HeadCard]:
        """The cards of these layers and heads."""
        for place, layer in enumerate(self.layers):
            effects = self.counted[place].effects(self._levels(level))
            # Named patterns first, then the largest effect; NaN is the last.
            order = np.lexsort((-effects.effect, ~(effects.low > threshold))).tolist()
            numbers = {name: getattr(effects, name).tolist() for name in (*_NUMBERS, "queries")}
            for head in self.heads[place]:
                strongest: dict[str, int] = {}
                for number in order[head]:
                    # The strongest variant stands for its name.
                    strongest.setdefault(self.names[number], number)
                findings = tuple(
                    HeadFinding(
                        pattern=name,
                        detail=self._detail(place, head, number),
                        queries=int(numbers["queries"][head][number]),
                        **{each: numbers[each][head][number] for each in _NUMBERS},
                    )
                    for name, number in strongest.items()
                )
                best = findings[0]
                yield HeadCard(
                    kind=self.kind,
                    layer=layer,
                    head=head,
                    # Named only where the whole interval is above the threshold.
                    pattern=best.pattern if best.low > threshold else "none",
                    findings=findings,
                    examples=self.examples.of_head(place, head, order[head][0]),
                )

    @staticmethod
    def _chosen(head: int | None, count: int) -> Sequence[int]:
        if head is None:
            return range(count)
        return (index_of("head", head, count),)

    def _levels(self, level: float) -> np.ndarray:
        """Each pattern's level: by chance the best of n variants exceeds a bound n times as often as one."""
        return np.array([1.0 - (1.0 - level) / self.names.count(name) for name in self.names])

    def _detail(self, place: int, head: int, number: int) -> str:
        """The part of a key pattern that gets most, where it gets more than the others together."""
        if number not in self.of_key:
            return self.details[number]
        parts = self.parts[place]
        assert isinstance(parts, torch.Tensor)
        at = self.of_key.index(number)
        shares = torch.split(parts[head], [len(names) for names in self.part_names])[at].tolist()
        most = max(range(len(shares)), key=shares.__getitem__)
        return self.part_names[at][most] if shares[most] > sum(shares) / 2 else ""
