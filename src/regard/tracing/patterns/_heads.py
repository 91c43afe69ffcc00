"""A card for every head: which pattern it follows over a text or a corpus, how strongly, and where."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

from regard.core.arguments import check_function, number, whole
from regard.core.errors import InputError
from regard.models import Kind, Loaded
from regard.tracing.patterns._counter import Counter
from regard.tracing.patterns._patterns import HeadPattern, default_patterns
from regard.tracing.patterns._reading import Texts, traces_of
from regard.tracing.patterns._table import HeadTable
from regard.tracing.record import Trace, check_trace

Patterns = Callable[[Kind], Sequence[HeadPattern]]
"""What a kind of attention is tried on."""


class HeadOptions(TypedDict, total=False):
    """Keywords that `heads`, `heads_of_trace`, `Model.heads` and `Trace.heads` share.

    Keys:
        kind: "encoder", "decoder" or "cross"; by default each that there is.
        layer, head: only these.
        patterns: gives the patterns of a kind: `default_patterns`, or a function of your own.
        threshold: what the lower end of an interval must exceed for a pattern to be named, 0 to 1; 0.1.
        level: what share of the resamples an interval holds; 0.95.
        resamples: of the bootstrap, enough for two in either tail, and 100,000 at the most; 400.
        seed: of the bootstrap; the same seed gives the same intervals; 0.
    """

    kind: Kind | None
    layer: int | None
    head: int | None
    patterns: Patterns
    threshold: float
    level: float
    resamples: int
    seed: int


def heads(
    loaded: Loaded,
    texts: Texts,
    *,
    targets: Texts | None = None,
    on_refused: Callable[[int, InputError], None] | None = None,
    **options: Unpack[HeadOptions],
) -> HeadTable:
    """Find what every head does: which pattern it follows, how strongly, how surely, and where.

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
        on_refused: what is called with the number of a text that the model cannot take, and the reason; the
            text is then passed over, and counted in `refused`. By default the reason is raised.
        options: `kind`, `layer`, `head`, `patterns`, `threshold`, `level`, `resamples`, `seed`: see
            `HeadOptions`.

    Returns:
        A card for each head, kind by kind.

    Raises:
        InputError: an argument of another type or out of range, no text that the model can take, decoder
            heads without targets, or a layer that only some kinds have, where no kind is said.

    Example:
        >>> import regard
        >>> table = heads(regard.load().loaded, "The cat sat on the mat, and the dog lay on the rug.")
        >>> card = table[0, 2]
        >>> card.pattern, card.best.low > 0.9, table[2, 11].pattern, table[2, 11].second.name
        ('previous', True, 'previous', 'delimiter sink first')
    """
    wanted = _Search(**options)
    refused: list[InputError] = []
    traces = traces_of(loaded, texts, targets, on_refused, refused)
    table = wanted.table(traces, with_target=targets is not None)
    if table is None:
        told = f"{len(refused)} were passed over, the first because {refused[0]}" if refused else "got none."
        raise InputError(f"texts must hold at least one that the model can take; {told}")
    return replace(table, refused=len(refused))


def heads_of_trace(trace: Trace, **options: Unpack[HeadOptions]) -> HeadTable:
    """Find what every head does in this trace's text: see `regard.tracing.heads`.

    Args:
        trace: the text; queries and keys are enough.
        options: see `HeadOptions`.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("The cat sat on the mat, and the dog lay on the rug.")
        >>> heads_of_trace(trace, layer=0, head=2)[0, 2].pattern
        'previous'
    """
    wanted = _Search(**options)
    decoder = check_trace("trace", trace).decoder
    # A decoder that read its start token alone has nothing to show.
    table = wanted.table([(0, trace)], with_target=decoder is None or len(decoder.tokens) > 1)
    assert table is not None, "there is a text"
    return table


# More would hold gigabytes.
_MOST_RESAMPLES = 100_000


@dataclass(frozen=True)
class _Search:
    """What is looked for, and in which heads: see `HeadOptions`."""

    kind: Kind | None = None
    layer: int | None = None
    head: int | None = None
    patterns: Patterns = default_patterns
    threshold: float = 0.1
    level: float = 0.95
    resamples: int = 400
    seed: int = 0

    def __post_init__(self) -> None:
        check_function("patterns", self.patterns, "from a kind of attention to its patterns")
        if not 0.0 <= number("threshold", self.threshold) < 1.0:
            raise InputError(
                f"threshold must be from 0 to below 1, a share of attention; got {self.threshold!r}."
            )
        if not 0.0 < number("level", self.level) < 1.0:
            raise InputError(f"level must be between 0 and 1, such as 0.95; got {self.level!r}.")
        fewest = math.ceil(2.0 / (1.0 - self.level))
        if fewest > _MOST_RESAMPLES:
            raise InputError(
                f"level must be at most {1.0 - 2.0 / _MOST_RESAMPLES:g}, for {_MOST_RESAMPLES} resamples; "
                f"got {self.level!r}."
            )
        if whole("resamples", self.resamples, least=2, most=_MOST_RESAMPLES) < fewest:
            raise InputError(
                f"resamples must be at least {fewest} for intervals of {self.level:g}; got {self.resamples}."
            )
        whole("seed", self.seed, least=0)

    def table(self, traces: Iterable[tuple[int, Trace]], *, with_target: bool) -> HeadTable | None:
        """Count traces as they come, and make the cards of what was counted; None where none came."""
        counters: list[Counter] = []
        model, texts, tokens = "", 0, 0
        for text, trace in traces:
            if not counters:
                model, kinds = trace.model, self._kinds(trace, with_target)
                counters = [self._counter(trace, kind) for kind in kinds]
            for counter in counters:
                counter.add(text, trace)
            texts += 1
            stacks = {id(side): side for kind in kinds for side in trace.sides(kind)}
            tokens += sum(len(stack.tokens) for stack in stacks.values())
        if not counters:
            return None
        return HeadTable(
            model=model,
            cards=tuple(card for each in counters for card in each.cards(self.threshold, self.level)),
            texts=texts,
            tokens=tokens,
            refused=0,
            threshold=self.threshold,
            level=self.level,
            unit=counters[0].unit,
            seed=self.seed,
            resamples=self.resamples,
        )

    def _kinds(self, trace: Trace, with_target: bool) -> Sequence[Kind]:
        both = trace.encoder is not None and trace.decoder is not None
        if self.kind is not None:
            if both and self.kind in ("decoder", "cross") and not with_target:
                raise InputError(
                    f'targets must be given for kind="{self.kind}": without one the decoder reads only a '
                    "start token."
                )
            return (trace.kind(self.kind),)
        if both and not with_target:
            return ("encoder",)
        there = [kind for kind in trace.kinds if self._has_layers(trace, kind)]
        if there and len(there) < len(trace.kinds):
            # A table of some kinds would look like one of all.
            missing = " and ".join(f'"{kind}"' for kind in trace.kinds if kind not in there)
            listed = " or ".join(f'"{kind}"' for kind in there)
            what = "none of the layers kept" if self.layer is None else f"no layer {self.layer}"
            raise InputError(f"kind must be {listed}: {missing} has {what}.")
        return trace.kinds

    def _has_layers(self, trace: Trace, kind: Kind) -> bool:
        """Whether what is asked for is there; of no layer in particular, any that was kept."""
        if self.layer is None:
            return bool(trace.layers_of(kind))
        try:
            trace.layer_index(self.layer, kind)
        except InputError:
            return False
        return True

    def _counter(self, trace: Trace, kind: Kind) -> Counter:
        patterns = self.patterns(kind)
        if (
            not isinstance(patterns, Sequence)
            or not patterns
            or not all(isinstance(each, HeadPattern) for each in patterns)
        ):
            raise InputError(
                f'patterns must give a list of patterns of kind "{kind}", at least one; got {patterns!r}.'
            )
        return Counter(
            trace,
            kind,
            patterns,
            layer=self.layer,
            head=self.head,
            resamples=int(self.resamples),
            seed=int(self.seed),
        )
