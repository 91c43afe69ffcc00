"""What is counted of one kind of attention, text by text, and the cards that are made of it."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from regard.core.errors import InputError
from regard.models import Kind
from regard.tracing.patterns._asked import Asked
from regard.tracing.patterns._bootstrap import Bootstrap, Effects
from regard.tracing.patterns._examples import Examples
from regard.tracing.patterns._patterns import HeadPattern, KeyPattern, Sides
from regard.tracing.patterns._rows import Rows, measure
from regard.tracing.patterns._seen import Seen, look_at_mask, same_view
from regard.tracing.patterns._table import HeadCard, HeadFinding
from regard.tracing.record import AttentionTrace, Trace, counted


class Counter:
    """One kind of attention: what has been counted of each of its layers.

    Args:
        trace: the first text.
        kind: of attention.
        patterns: which are looked for.
        layer, head: only these.
        resamples, seed: of the bootstrap.

    Raises:
        InputError: a layer or head that is not there.
    """

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
        # Where no attention was kept, reading the first layer says so.
        kept = list(trace.layers_of(kind)) or [0]
        self.layers = kept if layer is None else [trace.layer_index(layer, kind)]
        shapes = [
            (trace.attention_of(each, kind).inputs.num_heads, len(self.patterns)) for each in self.layers
        ]
        self.heads = [self._chosen(head, count) for count, _ in shapes]
        self.counted = [Bootstrap(shape, resamples=resamples, seed=seed) for shape in shapes]
        self.examples = Examples(shapes)
        self.parts: list[torch.Tensor | float] = [0.0] * len(shapes)
        self.part_names: list[list[str]] = []

    @property
    def unit(self) -> str:
        """What the bootstrap draws."""
        return self.counted[0].unit

    def add(self, number: int, trace: Trace) -> None:
        """Count a text."""
        sides = Sides.of(trace, self.kind)
        asked = Asked.of(sides, self.patterns)
        if not self.part_names:
            of_key = [each for each in self.patterns if isinstance(each, KeyPattern)]
            self.part_names = [list(each.parts(sides)) for each in of_key]
        seen: tuple[AttentionTrace, Seen] | None = None
        for place, layer in enumerate(self.layers):
            traced = trace.attention_of(layer, self.kind)
            if seen is None or not same_view(seen[0].inputs, traced.inputs):
                seen = traced, look_at_mask(traced.inputs, asked)
            with torch.no_grad():  # a bias may be learned
                rows: Rows = measure(traced.inputs, asked, seen[1])
            self.counted[place].add(rows)
            self.examples.add(place, number, rows)
            self.parts[place] = self.parts[place] + rows.parts.double()
        self.examples.end_text(number, sides)

    def cards(self, threshold: float, level: float) -> Iterator[HeadCard]:
        """The cards of these layers and heads."""
        for place, layer in enumerate(self.layers):
            effects = self.counted[place].effects(self._levels(level))
            for head in self.heads[place]:
                yield self._card(place, layer, head, effects, threshold)

    @staticmethod
    def _chosen(head: int | None, count: int) -> Sequence[int]:
        if head is None:
            return range(count)
        index = counted(head, count)
        if index is None:
            raise InputError(
                f"head must be from 0 to {count - 1}, or negative to count from the end; got {head!r}."
            )
        return (index,)

    def _levels(self, level: float) -> np.ndarray:
        """For each pattern: by chance the best of n variants exceeds a bound n times as often as one."""
        names = [pattern.name for pattern in self.patterns]
        return np.array([1.0 - (1.0 - level) / names.count(name) for name in names])

    def _card(self, place: int, layer: int, head: int, effects: Effects, threshold: float) -> HeadCard:
        variants = [
            (self._finding(place, head, number, effects), number) for number in range(len(self.patterns))
        ]

        def order(variant: tuple[HeadFinding, int]) -> tuple[bool, float]:
            finding = variant[0]
            return not finding.low > threshold, math.inf if math.isnan(finding.effect) else -finding.effect

        variants.sort(key=order)
        strongest: dict[str, tuple[HeadFinding, int]] = {}
        for finding, number in variants:
            strongest.setdefault(finding.pattern, (finding, number))
        findings = [finding for finding, _ in strongest.values()]
        best, number = variants[0]
        return HeadCard(
            kind=self.kind,
            layer=layer,
            head=head,
            pattern=best.pattern if best.low > threshold else "none",
            findings=tuple(findings),
            examples=self.examples.of(place, head, number),
        )

    def _finding(self, place: int, head: int, number: int, effects: Effects) -> HeadFinding:
        pattern = self.patterns[number]
        at = (head, number)
        return HeadFinding(
            pattern=pattern.name,
            detail=self._detail(place, head, pattern),
            effect=float(effects.effect[at]),
            low=float(effects.low[at]),
            high=float(effects.high[at]),
            mass=float(effects.mass[at]),
            captured=float(effects.captured[at]),
            queries=int(effects.queries[at]),
        )

    def _detail(self, place: int, head: int, pattern: HeadPattern) -> str:
        """Of a key pattern the part that gets most, where it gets more than the others together."""
        if not isinstance(pattern, KeyPattern):
            return pattern.detail
        of_key = [each for each in self.patterns if isinstance(each, KeyPattern)]
        sizes = [len(names) for names in self.part_names]
        at = next(index for index, each in enumerate(of_key) if each is pattern)
        parts = self.parts[place]
        assert isinstance(parts, torch.Tensor)
        shares = parts[head, sum(sizes[:at]) : sum(sizes[: at + 1])].tolist()
        most = max(range(len(shares)), key=shares.__getitem__)
        return self.part_names[at][most] if shares[most] > sum(shares) / 2 else ""
