"""The texts that heads are counted on: those of a corpus, one at a time, or random tokens said twice."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, TypeGuard

import numpy as np
from torch import Tensor

from regard.core.arguments import check_function, whole
from regard.core.errors import InputError
from regard.models import Loaded
from regard.text import Words
from regard.tracing.record import KeepPolicy, Trace
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
    for name, given in (("texts", texts), ("targets", targets)):
        if not _is_iterable(given) and (name == "texts" or given is not None):
            raise InputError(f"{name} must be a text, or texts or token ids; got {type(given).__name__}.")
    check_function("on_refused", on_refused, "of a text's number and the reason", optional=True)
    for number, (text, target) in enumerate(_paired(texts, targets)):
        try:
            trace = _trace(loaded, text, target)
        except InputError as error:
            if on_refused is None and isinstance(texts, str):
                raise
            if on_refused is None:
                raise InputError(f"text {number}: {error}") from error
            on_refused(number, error)
            refused.append(error)
            continue
        yield number, trace


def _paired(texts: Texts, targets: Texts | None) -> Iterator[tuple[TextOrIds, TextOrIds | None]]:
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
        if other is None:
            raise InputError(
                f"targets must be a text or token ids for each text; got None for text {number}."
            )
        yield one, other  # type: ignore[misc]


_KEEPING = KeepPolicy(keep="qk")


def _trace(loaded: Loaded, text: TextOrIds, target: TextOrIds | None) -> Trace:
    text, target = Words.of(text), Words.of(target)
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
    network, tokenizer = loaded.network, loaded.tokenizer
    limits = [limit for kind in network.prefixes if (limit := network.limit(kind)) is not None]
    before, after = ([], []) if tokenizer is None else _around(loaded)
    most = min([length, *((limit - len(before) - len(after)) // 2 for limit in limits)])
    if most < 4:
        raise InputError(
            f"the model must take at least 8 tokens beside the special ones, to say 4 of them twice; "
            f"{loaded.source.name} takes {min(limits)}."
        )
    rows = network.config.vocab_size
    plain = [each for each in range(rows) if tokenizer is None or not tokenizer.is_special(each)]

    def drawn() -> list[int]:
        size = int(rng.integers(3 * most // 4, most, endpoint=True))
        once = [plain[place] for place in rng.integers(len(plain), size=size)]
        return [*before, *once, *once, *after]

    # Not a generator of its own, which would refuse nothing before it is asked for the first.
    return (drawn() for _ in range(count))


def _around(loaded: Loaded) -> tuple[list[int], list[int]]:
    """The special tokens that the tokenizer puts before and after a text."""
    tokens = loaded.require_tokenizer().encode("a").tokens
    own = [token.index for token in tokens if not token.special]
    first, last = (own[0], own[-1]) if own else (len(tokens), len(tokens))
    ids = [token.id for token in tokens]
    return ids[:first], ids[last + 1 :]
