"""A card for every head: which pattern it follows over a text or a corpus, how strongly, and where."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest

import numpy as np
import torch

from regard.core.errors import InputError
from regard.models import Loaded
from regard.tracing._heads._asked import Asked
from regard.tracing._heads._bootstrap import Bootstrap, Effects
from regard.tracing._heads._examples import Examples
from regard.tracing._heads._patterns import HeadPattern, KeyPattern, Sides, default_patterns
from regard.tracing._heads._rows import Rows, measure
from regard.tracing._heads._seen import Seen, look_at_mask, same_view
from regard.tracing._keep import Keeping
from regard.tracing._passage import AttentionTrace
from regard.tracing._run import trace_ids, trace_text
from regard.tracing._trace import Kind, Trace
from regard.views import HeadCard, HeadFinding, HeadTable

TextOrIds = str | Sequence[int]
"""A text, or token ids in place of one."""

Patterns = Callable[[Kind], Sequence[HeadPattern]]
"""What a kind of attention is tried on."""


def heads(
    loaded: Loaded,
    texts: str | Iterable[TextOrIds],
    *,
    targets: str | Iterable[TextOrIds] | None = None,
    kind: Kind | None = None,
    layer: int | None = None,
    head: int | None = None,
    patterns: Patterns = default_patterns,
    threshold: float = 0.1,
    level: float = 0.95,
    resamples: int = 400,
    seed: int = 0,
    on_refused: Callable[[int, InputError], None] | None = None,
) -> HeadTable:
    """Say what every head does: which tokens it looks for, how strongly, how surely, and where.

    For every pattern, such as "previous", each query i has a set S(i) of keys. Over the queries for which
    S(i) is neither empty nor all that they may see,

        mass   = mean of sum_{j in S(i)} weights[i, j]
        even   = mean of |S(i)| / (number of keys that i may see)            attention that is spread evenly
        habit  = mean of sum_{j in S(i)} (mean of weights[i', j], i' != i)     the head's other rows, at S(i)
        effect = mass - max(even, habit)

    so that neither a broad head nor one that reads the same tokens whoever asks seems to look for anything.
    For the delimiter sink and for broadcast, whose S is the same for every query, there is no habit.

    A pattern is named where the lower end of its effect's interval exceeds the threshold; of several, the one
    with the largest effect. Special tokens are no queries.

    The interval is a bootstrap over texts, or, from fewer than ten, over queries: with fewer than eight of
    these none is given, and nothing is named. Of a pattern with several variants (the strides) the best is
    reported, and the interval is as much wider: 1 - (1 - level) / variants. A text is forgotten as soon as it
    has been counted: memory does not grow with the corpus.

    Args:
        loaded: the model.
        texts: a text, or texts, or token ids in their place; read once, so that a generator will do.
        targets: what the decoder beside an encoder reads, one for each text; without them only the encoder's
            heads are looked at.
        kind: "encoder", "decoder" or "cross"; by default each that there is.
        layer, head: only these.
        patterns: gives the patterns of a kind: `default_patterns`, or a function of your own.
        threshold: what the lower end must exceed, 0 to 1.
        level: what share of the resamples an interval holds.
        resamples, seed: of the bootstrap; the same seed gives the same intervals.
        on_refused: what is called with the number of a text that the model cannot take, and the reason; the
            text is then passed over, and counted in `refused`. By default the reason is raised.

    Returns:
        A card for each head, kind by kind.

    Raises:
        InputError: an argument out of range, no text that the model can take, or decoder heads without
            targets.

    Example:
        >>> import regard
        >>> table = heads(regard.load().loaded, "The cat sat on the mat, and the dog lay on the rug.")
        >>> card = table[0, 2]
        >>> card.pattern, card.best.low > 0.9, table[2, 11].pattern, table[2, 11].second.name
        ('previous', True, 'previous', 'delimiter sink first')
    """
    reading = _Reading(loaded, targets is not None, on_refused)
    return table_of(
        reading.traces(texts, targets),
        kind=kind,
        layer=layer,
        head=head,
        patterns=patterns,
        threshold=threshold,
        level=level,
        resamples=resamples,
        seed=seed,
        reading=reading,
    )


class _Reading:
    """The texts on their way through the model, and those that it could not take.

    Args:
        loaded: the model.
        with_target: whether a decoder beside an encoder reads anything.
        on_refused: see `heads`.
    """

    def __init__(
        self, loaded: Loaded | None, with_target: bool, on_refused: Callable[[int, InputError], None] | None
    ) -> None:
        self._loaded, self._on_refused = loaded, on_refused
        self.with_target = with_target
        self.refused = 0
        self._first_reason: InputError | None = None

    def traces(
        self, texts: str | Iterable[TextOrIds], targets: str | Iterable[TextOrIds] | None
    ) -> Iterator[tuple[int, Trace]]:
        """The trace of each text that the model can take, with the text's number."""
        assert self._loaded is not None
        for number, (text, target) in enumerate(_paired(texts, targets)):
            try:
                trace = _trace(self._loaded, text, target)
            except InputError as error:
                if self._on_refused is None and isinstance(texts, str):
                    raise
                if self._on_refused is None:
                    raise InputError(f"text {number}: {error}") from error
                self._on_refused(number, error)
                self.refused += 1
                self._first_reason = self._first_reason or error
                continue
            yield number, trace

    def nothing(self) -> InputError:
        """What is said where there is no trace."""
        told = f"{self.refused} were passed over, the first because {self._first_reason}"
        return InputError(
            "texts must hold at least one that the model can take; "
            f"{told if self._first_reason is not None else 'got none.'}"
        )


def heads_of_trace(
    trace: Trace,
    *,
    kind: Kind | None = None,
    layer: int | None = None,
    head: int | None = None,
    patterns: Patterns = default_patterns,
    threshold: float = 0.1,
    level: float = 0.95,
    resamples: int = 400,
    seed: int = 0,
) -> HeadTable:
    """Say what every head does in one traced text: see `heads`.

    Args:
        trace: the text; queries and keys are enough.
        kind, layer, head, patterns, threshold, level, resamples, seed: as in `heads`.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("The cat sat on the mat, and the dog lay on the rug.")
        >>> heads_of_trace(trace, layer=0, head=2)[0, 2].pattern
        'previous'
    """
    decoder = trace.decoder
    # A decoder that read its start token alone has nothing to show.
    reading = _Reading(None, decoder is None or len(decoder.tokens) > 1, None)
    return table_of(
        [(0, trace)],
        kind=kind,
        layer=layer,
        head=head,
        patterns=patterns,
        threshold=threshold,
        level=level,
        resamples=resamples,
        seed=seed,
        reading=reading,
    )


def table_of(
    traces: Iterable[tuple[int, Trace]],
    *,
    kind: Kind | None,
    layer: int | None,
    head: int | None,
    patterns: Patterns,
    threshold: float,
    level: float,
    resamples: int,
    seed: int,
    reading: _Reading,
) -> HeadTable:
    """Count traces as they come, and make the cards of what was counted."""
    _check(threshold, level, resamples)
    counters: list[_Counter] = []
    model, texts, tokens = "", 0, 0
    for number, trace in traces:
        if not counters:
            model, kinds = trace.model, _kinds(trace, kind, reading.with_target)
            counters = [_Counter(trace, each, patterns(each), layer, resamples, seed) for each in kinds]
        for counter in counters:
            counter.add(number, trace)
        texts += 1
        stacks = {id(side): side for each in kinds for side in trace.sides(each)}
        tokens += sum(len(stack.tokens) for stack in stacks.values())
    if not counters:
        raise reading.nothing()
    return HeadTable(
        model=model,
        cards=tuple(card for counter in counters for card in counter.cards(head, threshold, level)),
        texts=texts,
        tokens=tokens,
        refused=reading.refused,
        threshold=threshold,
        level=level,
        unit=counters[0].unit,
        seed=seed,
        resamples=resamples,
    )


def _check(threshold: float, level: float, resamples: int) -> None:
    if not 0.0 <= threshold < 1.0:
        raise InputError(f"threshold must be from 0 to below 1, a share of attention; got {threshold!r}.")
    if not 0.0 < level < 1.0:
        raise InputError(f"level must be between 0 and 1, such as 0.95; got {level!r}.")
    if resamples < 2.0 / (1.0 - level):
        raise InputError(
            f"resamples must be at least {math.ceil(2.0 / (1.0 - level))} for intervals of {level:g}; "
            f"got {resamples!r}."
        )


def _paired(
    texts: str | Iterable[TextOrIds], targets: str | Iterable[TextOrIds] | None
) -> Iterator[tuple[TextOrIds, TextOrIds | None]]:
    """Each text with its target; as many of the one as of the other."""
    missing = object()
    listed: Iterable[TextOrIds] = [texts] if isinstance(texts, str) else texts
    if targets is None:
        for text in listed:
            yield text, None
        return
    others: Iterable[TextOrIds] = [targets] if isinstance(targets, str) else targets
    for number, (one, other) in enumerate(zip_longest(listed, others, fillvalue=missing)):
        if one is missing or other is missing:
            fewer = "texts" if one is missing else "targets"
            raise InputError(f"targets must be one for each text; {fewer} ended after {number}.")
        yield one, other  # type: ignore[misc]


_KEEPING = Keeping(keep="qk")


def _trace(loaded: Loaded, text: TextOrIds, target: TextOrIds | None) -> Trace:
    if isinstance(text, str):
        if target is not None and not isinstance(target, str):
            raise InputError("a target must be a text where the text is one; got token ids.")
        return trace_text(loaded, text, target=target, keeping=_KEEPING)
    if isinstance(text, int) or isinstance(target, str):
        raise InputError("texts must be texts, or sequences of token ids with targets of ids.")
    return trace_ids(loaded, text, target, keeping=_KEEPING)


def _kinds(trace: Trace, kind: Kind | None, with_target: bool) -> tuple[Kind, ...]:
    both = trace.encoder is not None and trace.decoder is not None
    if kind is not None:
        if both and kind in ("decoder", "cross") and not with_target:
            raise InputError(
                f'targets must be given for kind="{kind}": without one the decoder reads only a start token.'
            )
        return (trace.kind(kind),)
    return ("encoder",) if both and not with_target else trace.kinds


class _Counter:
    """One kind of attention: what has been counted of each of its layers."""

    def __init__(
        self,
        trace: Trace,
        kind: Kind,
        patterns: Sequence[HeadPattern],
        layer: int | None,
        resamples: int,
        seed: int,
    ) -> None:
        if not patterns:
            raise InputError(f'patterns must give at least one pattern of kind "{kind}"; got none.')
        self.kind, self.patterns = kind, tuple(patterns)
        # Where no attention was kept, reading the first layer says so.
        kept = list(trace.layers_of(kind)) or [0]
        self.layers = kept if layer is None else [trace.layer_index(layer, kind)]
        shapes = [
            (trace.attention_of(each, kind).inputs.num_heads, len(self.patterns)) for each in self.layers
        ]
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

    def cards(self, head: int | None, threshold: float, level: float) -> Iterator[HeadCard]:
        """The cards of these layers, of all heads or of one."""
        for place, layer in enumerate(self.layers):
            effects = self.counted[place].effects(self._levels(level))
            count = len(effects.effect)
            if head is not None and not -count <= head < count:
                raise InputError(
                    f"head must be from 0 to {count - 1}, or negative to count from the end; got {head}."
                )
            for each in range(count) if head is None else [head % count]:
                yield self._card(place, layer, each, effects, threshold)

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
