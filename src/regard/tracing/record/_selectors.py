"""Which tokens are meant: an index, a slice, or a word."""

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.text import Encoding
from regard.tracing.record._passage import counted

Selector = int | slice | str
"""Some tokens: an index (negative from the end), a slice, or a word of the text ("bank", "bank#2")."""


def chosen_of(name: str, encoding: Encoding, selector: Selector | None) -> tuple[int, ...]:
    """The positions that are meant, in order; of None all.

    Args:
        name: of the argument, for the message.
        encoding: the tokens.
        selector: which.

    Raises:
        InputError: a token or word that is not there, or a slice of nothing.
    """
    count = len(encoding.tokens)
    if selector is not None and not isinstance(selector, slice):
        return token_of(name, encoding, selector)
    chosen = within(name, slice(None) if selector is None else selector, count)
    if not chosen:
        raise InputError(f"{name} must pick at least one of the {count} tokens; {selector} picks none.")
    return chosen


def token_of(name: str, encoding: Encoding, selector: int | str) -> tuple[int, ...]:
    """The token at an index, or the tokens of a word.

    Raises:
        InputError: there is none.
    """
    count = len(encoding.tokens)
    if isinstance(selector, str):
        return encoding.find(selector)
    index = counted(selector, count)
    if index is None:
        raise InputError(
            f"{name} must be a word of the text, or a token from 0 to {count - 1}, or negative to count from "
            f"the end; got {selector!r}."
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
