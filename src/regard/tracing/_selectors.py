"""Which tokens are meant: an index, a slice, or a word."""

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.text import Encoding

Selector = int | slice | str
"""Some tokens: an index (negative from the end), a slice, or a word of the text ("bank", "bank#2")."""


def chosen_of(encoding: Encoding, selector: Selector | None) -> tuple[int, ...]:
    """The positions that are meant, in order; of None all.

    Raises:
        InputError: a token or word that is not there, or a slice of nothing.
    """
    count = len(encoding.tokens)
    if selector is not None and not isinstance(selector, slice):
        return encoding.find(selector)
    chosen = within(slice(None) if selector is None else selector, count)
    if not chosen:
        raise InputError(f"{selector} must pick at least one of the {count} tokens.")
    return chosen


def within(chosen: slice, count: int) -> tuple[int, ...]:
    """The numbers from 0 to count - 1 that a slice picks.

    Raises:
        InputError: bounds that are no whole numbers, or a step of 0.
    """
    try:
        return tuple(range(count)[chosen])
    except (TypeError, ValueError) as error:
        raise InputError(f"{chosen} must have whole numbers, and a step that is not 0: {error}.") from error


def positions_of(encoding: Encoding, selector: Selector | None, device: torch.device) -> Tensor | None:
    """The positions that are meant, int64; of None, which means all, None."""
    return None if selector is None else torch.tensor(chosen_of(encoding, selector), device=device)
