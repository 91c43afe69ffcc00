"""Which tokens are meant: an index, a slice, or a word."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.text import Encoding
from regard.tracing.record._passage import counted

Selector = int | slice | str | Sequence[int | str]
"""Some tokens: an index (negative from the end), a slice, a word of the text ("bank", "bank#2"), or a list of
indexes and words."""


def chosen_of(name: str, tokens: Encoding | int, selector: Selector | None) -> tuple[int, ...]:
    """The positions that are meant, in the order given; of None all.

    Args:
        name: of the argument, for the message.
        tokens: of the text; or how many there are, of a batch, where no word has one place.
        selector: which.

    Raises:
        InputError: a token or word that is not there, or none at all.
    """
    count = tokens if isinstance(tokens, int) else len(tokens.tokens)
    if selector is None or isinstance(selector, slice):
        chosen = within(name, selector or slice(None), count)
    else:
        several = isinstance(selector, Sequence) and not isinstance(selector, str)
        given: Sequence[int | str] = selector if several else [selector]  # type: ignore[assignment,list-item]
        chosen = tuple(place for each in given for place in token_of(name, tokens, each))
    if not chosen:
        raise InputError(f"{name} must pick at least one of the {count} tokens; {selector} picks none.")
    return chosen


def token_of(name: str, tokens: Encoding | int, selector: int | str) -> tuple[int, ...]:
    """The token at an index, or the tokens of a word.

    Raises:
        InputError: there is none.
    """
    count = tokens if isinstance(tokens, int) else len(tokens.tokens)
    if isinstance(selector, str) and not isinstance(tokens, int):
        return tokens.find(selector)
    index = counted(selector, count)
    if index is None:
        word = "" if isinstance(tokens, int) else "a word of the text, or "
        batch = " Words are looked up in one text alone: trace them one by one." if not word else ""
        raise InputError(
            f"{name} must be {word}a token from 0 to {count - 1}, or negative to count from the end; got "
            f"{selector!r}.{batch}"
        )
    return (index,)


def within(name: str, chosen: slice, count: int) -> tuple[int, ...]:
    """The numbers from 0 to count - 1 that a slice picks.

    Raises:
        InputError: bounds that are no whole numbers, or a step of 0.
    """
    try:
        return tuple(range(count)[chosen])
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name}: {chosen} must have whole numbers, and a step that is not 0: {error}."
        ) from error


def positions_of(
    name: str, encoding: Encoding, selector: Selector | None, device: torch.device
) -> Tensor | None:
    """The positions that are meant, int64; of None, which means all, None."""
    return None if selector is None else torch.tensor(chosen_of(name, encoding, selector), device=device)
