"""The words of a text, found in the text alone.

No tokenizer takes part: the same text has the same words under every model, so that a word can be named,
counted and compared between models whose pieces differ.
"""

import itertools
import unicodedata
from typing import Final

import regex  # type: ignore[import-untyped, unused-ignore]

from regard.core.errors import InputError
from regard.text._boundaries import boundaries
from regard.text._given import Words

INVISIBLE: Final = r"[\p{White_Space}\p{Cc}\p{DI}[\p{Cf}--\p{PCM}]]"
"""What prints nothing. The prepended marks (the Arabic number sign, ...) are format characters that print."""

_UNSEEN_HEAD: Final = regex.compile(rf"(?V1){INVISIBLE}*+")

_IGNORABLE: Final = regex.compile(r"(?V1)\p{DI}+")
_BLANKS: Final = regex.compile(r"(?V1)\p{White_Space}+")
_UNPRINTABLE: Final = regex.compile(r"(?V1)[\p{Cc}\p{Cs}\p{Bidi_Control}]")

_SHOWN_AT_MOST: Final = 60


def split_words(text: str) -> list[tuple[int, int]]:
    r"""The words of a text: the segments between Unicode word boundaries that have something to see.

    The boundaries are the default ones of UAX #29. A punctuation mark is a word of its own, "don't" is one
    word, an emoji of several code points is one, and so is each Chinese character. Thai, Lao, Khmer and
    Burmese, which write no blanks, come out in parts of a syllable: their words need a dictionary. White
    space, control characters, zero-width spaces and whatever else prints nothing are no words, nor the start
    of one.

    Args:
        text: Any string, the empty one too; of `Words` it is the given ones.

    Returns:
        For each word its start and end, in code points, `text[start:end]` being the word. In order, without
        overlap, none empty.

    Raises:
        InputError: `text` is not a string.

    Example:
        >>> text = "Don't flood\tthe bank."
        >>> split_words(text)
        [(0, 5), (6, 11), (12, 15), (16, 20), (20, 21)]
        >>> [text[start:end] for start, end in split_words(text)]
        ["Don't", 'flood', 'the', 'bank', '.']
    """
    if not isinstance(text, str):
        raise InputError(f"text must be a string to be split into words; got {type(text).__name__}")
    if isinstance(text, Words):
        return list(text.spans)
    words = []
    for start, end in itertools.pairwise(boundaries(text)):
        # A mark after a blank is joined to the blank: the word begins at the mark.
        seen = _UNSEEN_HEAD.match(text, start, end).end()
        if seen == end:
            continue
        # The narrow blank that groups digits joins letters too: "word<U+202F>;" must not end in it.
        while text[end - 1].isspace():
            end -= 1
        words.append((seen, end))
    return words


def fold(text: str) -> str:
    r"""The form in which spellings of one word are equal: without case, canonical, without unseen characters,
    with straight apostrophes.
    """
    canonical = unicodedata.normalize("NFD", str(_IGNORABLE.sub("", text))).casefold()
    return unicodedata.normalize("NFC", canonical).replace("’", "'")


def single_spaced(text: str) -> str:
    """The text with every run of white space made one blank, and none at its ends."""
    return str(_BLANKS.sub(" ", text)).strip()


def shown(text: str) -> str:
    r"""The text as it can stand in a message: one line, in quotes, shortened, without control characters."""
    line = single_spaced(text)
    if len(line) > _SHOWN_AT_MOST:
        line = line[: _SHOWN_AT_MOST - 1] + "…"
    line = _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), line)
    return f'"{line}"'
