"""A card for every head: which pattern it follows over a text, a corpus or repeated tokens, how strongly."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Annotated, Any, TypedDict, TypeGuard, Unpack

import numpy as np
from torch import Tensor

from regard.core.arguments import BelowOne, Natural, check_fields, check_function, numbers, whole, wholes
from regard.core.errors import InputError
from regard.models import Kind, Loaded
from regard.text import Words
from regard.tracing.patterns._counter import Counter
from regard.tracing.patterns._patterns import HeadPattern, default_patterns
from regard.tracing.patterns._rule import RULE
from regard.tracing.patterns._table import HeadTable
from regard.tracing.record import KeepPolicy, Trace, check_trace
from regard.tracing.run import TraceOfRun

TextOrIds = str | Sequence[str] | Sequence[int] | Tensor | Mapping[str, Any]
"""A text, or a list of its words; or token ids in place of one; or all that a tokenizer gave for it."""

Texts = str | Iterable[TextOrIds]
"""One text, or several, or token ids in their place."""


def traces_of(
    loaded: Loaded,
    texts: Texts,
    targets: Texts | None,
    on_refused: Callable[[int, InputError], None] | None,
    refused: list[InputError],
) -> Iterator[tuple[int, Trace]]:
    """The trace of each text that the model can take, with the text's number."""
    if not isinstance(loaded, Loaded):
        raise InputError(f"loaded must be a model, as model.loaded; got {type(loaded).__name__}.")
    # Checked before the first text is read.
    for name, argument in (("texts", texts), ("targets", targets)):
        if not _is_iterable(argument) and (name == "texts" or argument is not None):
            raise InputError(f"{name} must be a text, or texts or token ids; got {type(argument).__name__}.")
    check_function("on_refused", on_refused, "of a text's number and the reason", optional=True)
    for place, (text, target) in enumerate(_paired(texts, targets)):
        try:
            trace = _trace(loaded, text, target)
        except InputError as error:
            # A single text has no number to be named by.
            if on_refused is None and isinstance(texts, str):
                raise
            if on_refused is None:
                raise InputError(f"texts[{place}]: {error}") from error
            on_refused(place, error)
            refused.append(error)
            continue
        yield place, trace


def _paired(texts: Texts, targets: Texts | None) -> Iterator[tuple[TextOrIds, TextOrIds | None]]:
    """Each text with its target; as many of the one as of the other."""
    # Neither None nor a text may stand for a missing one.
    missing = object()
    listed: Iterable[TextOrIds] = [texts] if isinstance(texts, str) else texts
    if targets is None:
        for text in listed:
            yield text, None
        return
    others: Iterable[TextOrIds] = [targets] if isinstance(targets, str) else targets
    for place, (one, other) in enumerate(zip_longest(listed, others, fillvalue=missing)):
        if one is missing or other is missing:
            fewer = "texts" if one is missing else "targets"
            raise InputError(f"targets must be one for each text; {fewer} ended after {place}.")
        if other is None:
            raise InputError(f"targets must be a text or token ids for each text; targets[{place}] is None.")
        yield one, other  # type: ignore[misc]


_KEEPING = KeepPolicy(keep="qk")


def _trace(loaded: Loaded, text: TextOrIds, target: TextOrIds | None) -> Trace:
    # Lists of words become texts.
    text, target = Words.if_listed(text), Words.if_listed(target)
    if isinstance(text, str) and (target is None or isinstance(target, str)):
        return TraceOfRun.of_text(loaded, text, target=target, keeping=_KEEPING)
    if _are_ids(text) and (target is None or _are_ids(target)):
        return TraceOfRun.of_ids(loaded, text, target, keeping=_KEEPING)
    if _are_ids(target):
        raise InputError("a target must be a text where the text is one; got token ids.")
    raise InputError(
        "texts must be texts, or sequences of token ids with targets of ids; got "
        f"{type(text).__name__}{'' if target is None else f' with {type(target).__name__}'}."
    )


def _are_ids(given: object) -> TypeGuard[Sequence[int] | Tensor | Mapping[str, Any]]:
    return isinstance(given, Sequence | Tensor | Mapping) and not isinstance(given, str | bytes)


def _is_iterable(given: object) -> bool:
    try:
        iter(given)  # type: ignore[call-overload]
    except TypeError:  # of a tensor of one number, too
        return False
    return True


def repeated_tokens(loaded: Loaded, count: int, *, length: int = 50, seed: int = 0) -> Iterator[list[int]]:
    """Sequences of random tokens, each followed by itself: the usual test for induction heads.

    In sentences few tokens come back; here every one does, and as the tokens are random, nothing but the
    repetition tells what comes next (Olsson et al. 2022, arXiv 2209.11895, "repeated random tokens"). The
    number of tokens that are repeated is drawn anew for each sequence, from 3/4 of `length` to `length`, so
    that a copy does not always lie equally far back. Special tokens that the model's tokenizer puts around a
    text stand around each sequence.

    Args:
        loaded: the model.
        count: how many sequences.
        length: tokens that are repeated, at most; less where the model takes fewer than twice as many.
        seed: of the draws.

    Raises:
        InputError: no sequence is asked for, or the model takes too few tokens.

    Example:
        >>> import regard
        >>> [ids] = repeated_tokens(regard.load().loaded, 1, length=4)
        >>> len(ids), ids[0], ids[-1], ids[1:4] == ids[5:8] or ids[1:5] == ids[5:9]
        (10, 101, 102, True)
    """
    count = whole("count", count, least=1)
    length = whole("length", length, least=4)
    rng = np.random.default_rng(whole("seed", seed, least=0))
    # Without a tokenizer there are no special tokens to leave out.
    network, tokenizer = loaded.network, loaded.tokenizer
    limits = [limit for kind in network.prefixes if (limit := network.limit(kind)) is not None]
    before, after = ([], []) if tokenizer is None else _around(loaded)
    # Twice the length, and the special tokens, must fit.
    most = min([length, *((limit - len(before) - len(after)) // 2 for limit in limits)])
    if most < 4:
        raise InputError(
            f"the model must take at least 8 tokens beside the special ones, to say 4 of them twice; "
            f"{loaded.source.name} takes {min(limits)}."
        )
    rows = network.config.vocab_size
    plain = [each for each in range(rows) if tokenizer is None or not tokenizer.is_special(each)]

    def drawn() -> list[int]:
        # Lengths vary by a quarter, so that a fixed distance is no induction.
        size = int(rng.integers(3 * most // 4, most, endpoint=True))
        once = [plain[place] for place in rng.integers(len(plain), size=size)]
        # Each sequence is followed by itself.
        return [*before, *once, *once, *after]

    # Not a generator of its own, which would refuse nothing before it is asked for the first.
    return (drawn() for _ in range(count))


def _around(loaded: Loaded) -> tuple[list[int], list[int]]:
    """The special tokens that the tokenizer puts before and after a text."""
    tokens = loaded.require_tokenizer().encode("a").tokens
    # Where the text's own tokens stand within the template.
    own = [token.index for token in tokens if not token.special]
    first, last = (own[0], own[-1]) if own else (len(tokens), len(tokens))
    ids = [token.id for token in tokens]
    return ids[:first], ids[last + 1 :]


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
        >>> from regard.tracing import heads
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
        # Why there is nothing, or what was wrong with the first.
        why = f"{len(refused)} were passed over, the first because {refused[0]}" if refused else "got none."
        raise InputError(f"texts must hold at least one that the model can take; {why}")
    return replace(table, refused=len(refused))


def heads_of_trace(trace: Trace, **options: Unpack[HeadOptions]) -> HeadTable:
    """Find what every head does in this trace's text: see `regard.tracing.heads`.

    Args:
        trace: the text; queries and keys are enough.
        options: see `HeadOptions`.

    Example:
        >>> from regard.tracing import heads_of_trace
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
    threshold: BelowOne = RULE.threshold
    level: Annotated[float, numbers("between 0 and 1", lambda level: 0 < level < 1)] = RULE.level
    resamples: Annotated[int, wholes(2, _MOST_RESAMPLES)] = RULE.resamples
    seed: Natural = RULE.seed

    def __post_init__(self) -> None:
        check_function("patterns", self.patterns, "from a kind of attention to its patterns")
        check_fields(self)
        # Two resamples beyond each end at least, or the interval would be all of them.
        fewest = math.ceil(2.0 / (1.0 - self.level))
        if fewest > _MOST_RESAMPLES:
            raise InputError(
                f"level must be at most {1.0 - 2.0 / _MOST_RESAMPLES:g}, for {_MOST_RESAMPLES} resamples; "
                f"got {self.level!r}."
            )
        if self.resamples < fewest:
            raise InputError(
                f"resamples must be at least {fewest} for intervals of {self.level:g}; got {self.resamples}."
            )

    def table(self, traces: Iterable[tuple[int, Trace]], *, with_target: bool) -> HeadTable | None:
        """Count traces as they come, and make the cards of what was counted; None where none came."""
        counters: list[Counter] = []
        model, texts, tokens = "", 0, 0
        for text, trace in traces:
            # The first text says which kinds of attention there are.
            if not counters:
                model, kinds = trace.model, self._kinds(trace, with_target)
                counters = [self._counter(trace, kind) for kind in kinds]
            for counter in counters:
                counter.add(text, trace)
            texts += 1
            # Two kinds may share a stack, whose tokens count once.
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
        # Without targets, only the encoder has read something.
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
