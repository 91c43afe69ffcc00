"""The texts of a corpus on their way through a model, one at a time."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, TypeGuard

from torch import Tensor

from regard.core.arguments import check_function
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
