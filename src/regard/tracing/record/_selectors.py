"""Which tokens, layers or heads are meant: an index, a slice, a word, or several; and what is punctuation."""

import unicodedata
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.core.arguments import index_of
from regard.core.errors import InputError
from regard.text import Encoding, Token, Word

WordOrToken = int | str | tuple[int, ...]
"""A token by its index (negative from the end), or the tokens of a word of the text ("bank", "bank#2") or of
a span of it in code points, (16, 20) or "16:20"."""

Selector = int | slice | str | Sequence[WordOrToken]
"""Some tokens: an index, a slice, a word or span as a text, or a list of these: `["bank", (16, 20)]`."""

Numbers = int | slice | list[int] | tuple[int, ...] | range | None
"""Some layers, heads or neurons: one, a slice, several; negative ones count from the end; None is all."""


def chosen_of(name: str, tokens: Encoding | int, selector: Selector | None) -> tuple[int, ...]:
    """The positions that are meant, in the order given; of None all. An InputError where there are none.

    `tokens` are those of the text; or their number, of a batch, where no word has one place.
    """
    count = tokens if isinstance(tokens, int) else len(tokens.tokens)
    if selector is None or isinstance(selector, slice):
        # A slice, or None for all.
        chosen = within(name, selector or slice(None), count)
    else:
        # A text is a sequence, too, and means one word.
        several = isinstance(selector, Sequence) and not isinstance(selector, str)
        words: Sequence[WordOrToken] = selector if several else [selector]  # type: ignore[assignment,list-item]
        chosen = tuple(place for each in words for place in token_of(name, tokens, each))
    if not chosen:
        raise InputError(f"{name} must pick at least one of the {count} tokens; {selector} picks none.")
    return chosen


def token_of(name: str, tokens: Encoding | int, selector: WordOrToken) -> tuple[int, ...]:
    """The token at an index, or the tokens of a word."""
    count = tokens if isinstance(tokens, int) else len(tokens.tokens)
    if isinstance(selector, str | tuple) and not isinstance(tokens, int):
        return tokens.find(selector)
    # Words need a text, and only one of them.
    word = "" if isinstance(tokens, int) else "a word of the text, or "
    batch = " Words are looked up in one text alone: trace them one by one." if not word else ""
    return (index_of(name, selector, count, what=f"{word}a token ", hint=batch),)


def within(name: str, chosen: slice, count: int) -> tuple[int, ...]:
    """The numbers from 0 to count - 1 that a slice picks; an InputError for bounds that are no whole
    numbers.
    """
    try:
        # `range` does what a slice of numbers means, bounds and steps included.
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


def numbers_of(name: str, value: object, count: int, *, others: Sequence[str] = ()) -> tuple[Any, ...]:
    """The numbers from 0 to count - 1 that are meant, each once, in the order given; see `Numbers`.

    `others` are names that may stand for one.
    """
    if value is None:
        return tuple(range(count))
    if isinstance(value, slice):
        return unique(name, value, within(name, value, count), count)
    # One number is a list of one.
    numbers: Sequence[object] = value if isinstance(value, list | tuple | range) else [value]
    also = "".join(f', or "{other}"' for other in others) + ", or a slice or a list of these"
    chosen = tuple(
        # Some arguments take words too, such as "embeddings".
        each if isinstance(each, str) and each in others else index_of(name, each, count, also=also)
        for each in numbers
    )
    return unique(name, value, chosen, count)


def unique(name: str, value: object, chosen: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """What was chosen, checked: at least one, and each once."""
    if not chosen:
        raise InputError(f"{name} must pick at least one of {count}; {value!r} picks none.")
    if len(set(chosen)) < len(chosen):
        raise InputError(f"{name} must pick each one once; {value!r} picks one twice.")
    return chosen


def is_punctuation(token: Token, words: Sequence[Word]) -> bool:
    """Whether a token shows nothing but punctuation; the apostrophe of "isn't" is part of a word, so it is
    not.

    Of a token that came as an id, without a text (no words), its piece tells.
    """
    # A word with letters is no punctuation, whatever piece of it this is.
    if token.special or (words and token.word is not None and is_spelled(words[token.word].text)):
        return False
    seen = token.surface.strip()
    return bool(seen) and all(unicodedata.category(each).startswith("P") for each in seen)


def is_spelled(word: str) -> bool:
    """Whether a word has a letter or a digit."""
    return any(each.isalnum() for each in word)
