"""Words and tokens: where each stands in the text, and which belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import regex  # type: ignore[import-untyped, unused-ignore]

from regard.core.wording import BLANK, visible
from regard.text._shown import is_part


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A word of the text, as Unicode bounds it or as it was given, whatever the tokenizer makes of it.

    Attributes:
        index: Its place among the words of the encoding, from 0; the second text counts on after the first.
        text: The word as it stands in the text: `texts[sequence][start:end]`.
        span: Its start and end in code points of its text.
        sequence: 0 for the first text, 1 for the second of a pair.
        tokens: The positions of its tokens, in order. Empty where the tokenizer dropped the word, or where a
            token that covers it belongs to a neighbour of which it covers more.

    Example:
        >>> from regard.text import Word
        >>> Word(index=4, text="bank", span=(16, 20), sequence=0, tokens=(5,)).text
        'bank'
    """

    index: int
    text: str
    span: tuple[int, int]
    sequence: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One token: a row of the model's input.

    Attributes:
        index: Its position in the encoding, from 0.
        id: Its row in the model's table of learned embeddings.
        text: The piece as in the vocabulary: "bank", "##ing", "Ġbank", "▁bank".
        span: Start and end in code points of its text, without the blanks at its ends. Pieces of one
            character share a span; a blank that the tokenizer put in itself has an empty one; None where the
            template added the token, or there is no text.
        sequence: 0 for the first text, 1 for the second of a pair, None where the template added the token.
        word: The index of the word with which it shares the most code points; None for special tokens, white
            space and what prints nothing.
        type_id: The segment that the model is told (BERT: 0 for the first text, 1 for the second).
        special: Added by the template ("[CLS]"), or a special token that was written out in the text
            ("[MASK]"). "[UNK]" for an unknown word is not special: it stands for that word.
        surface: The characters of the text that it stands for, for people to read: "bank" for "Ġbank",
            "日" for each of its three bytes, "café" for "cafe". Its `shown` where it stands for none.
        shown: The piece for people to read, as `Tokenizer.shown` gives it: "␣bank" for "Ġbank", "<0xE6>" for
            a byte of "日".

    Example:
        >>> from regard.text import Token
        >>> Token(index=1, id=8, text="Ġbank", span=(0, 4), sequence=0, word=0, type_id=0, special=False,
        ...     surface="bank", shown="␣bank").span
        (0, 4)
    """

    index: int
    id: int
    text: str
    span: tuple[int, int] | None
    sequence: int | None
    word: int | None
    type_id: int
    special: bool
    surface: str
    shown: str

    @property
    def label(self) -> str:
        """Its name in tables and pictures of a text: what stands there, of "##ing" and "<0xE6>" the piece."""
        if self.span is None:
            return self.shown
        if is_part(self.shown):
            return self.shown.strip(BLANK)
        return self.text if self.text.startswith("##") else visible(self.surface)


Span = tuple[int, int]

_MARKS: Final = regex.compile(r"(?V1)\p{M}*+")
_FIRST_MARK: Final = "\u0300"

# How vocabularies write a blank: SentencePiece and byte-level BPE.
_BLANK_SIGNS: Final = ("▁", "Ġ")


def align_spans(text: str, pieces: Sequence[str], offsets: Sequence[Span]) -> list[Span]:
    """The spans of the tokens of one text, in code points of that text.

    * White space at the ends of a span is cut off, unless the token is nothing but white space.
    * Combining marks that no token carries (an uncased BERT strips accents) go to the token that ends before
      them, as they belong to its last letter. Where several tokens share that letter, they share the marks.
    * A token for a blank that the tokenizer put in itself stands for no character: its span is empty.
    * Starts and ends never decrease from one token to the next. Several tokens may share a span (the bytes of
      one emoji), and a token may overlap the next (bytes of one letter on either side).

    From the pieces as in the vocabulary and their offsets in code points, as `tokenizers` gives them.
    """
    spans: list[Span] = []
    last_start = last_end = 0
    for piece, (start, end) in zip(pieces, offsets, strict=True):
        # Offsets beyond the text would come from a template; they are cut off.
        start, end = _trim(text, piece, min(start, len(text)), min(end, len(text)))
        # A normaliser that moves characters about could break the order; nothing that reads spans could cope.
        last_start = start if start > last_start else last_start
        last_end = end if end > last_end else last_end
        spans.append((last_start, last_end))
    _take_marks(text, spans)
    return spans


def _trim(text: str, piece: str, start: int, end: int) -> Span:
    covered = text[start:end]
    stripped = covered.strip()
    # Only white space: such a token keeps all of it.
    if covered and not stripped:
        return start, end
    # A blank that the tokenizer put in, which the text does not have.
    if piece[:1] in _BLANK_SIGNS and not piece.strip(piece[0]) and not covered.startswith(piece[0]):
        return start, start
    if len(stripped) == len(covered):
        return start, end
    # White space at either end is not the token's.
    start = end - len(covered.lstrip())
    return start, start + len(stripped)


def _take_marks(text: str, spans: list[Span]) -> None:
    """Extends each span over the combining marks after it that no token covers."""
    limit = len(text)  # where the next token's span starts
    shared_end = grown_end = -1  # the next token's end, before and after
    # From the last to the first: a span grows up to the next token.
    for position in range(len(spans) - 1, -1, -1):
        start, end = spans[position]
        if start == end or text[start:end].isspace():
            limit = start
            continue
        # Tokens that end together, as bytes of one character, grow together.
        if end == shared_end:
            grown = grown_end
        # Marks begin at U+0300: a quick look before the expression.
        elif end < limit and text[end] >= _FIRST_MARK:
            grown = int(_MARKS.match(text, end, limit).end())
        else:
            grown = end
        spans[position] = start, grown
        limit, shared_end, grown_end = start, end, grown


def align_words(text: str, spans: Sequence[Span], words: Sequence[Span]) -> list[int | None]:
    """For each span the word with which it shares the most code points, the first of equals, as an index.

    Spans never decrease, words do not overlap. None where a token touches no word (control characters) or is
    only white space (which a number may hold: the narrow blank of "1 000" in French).
    """
    chosen: list[int | None] = []
    first = 0
    for start, end in spans:
        # Words that end before this token are done with: later tokens begin no earlier.
        while first < len(words) and words[first][1] <= start:
            first += 1
        best, most = None, 0
        if text[start:end].isspace():
            chosen.append(None)
            continue
        for index in range(first, len(words)):
            word_start, word_end = words[index]
            # Words are in order: none after this one touches the token.
            if word_start >= end:
                break
            shared = min(end, word_end) - max(start, word_start)
            # Strictly more, so that the first of equals stays.
            if shared > most:
                best, most = index, shared
        chosen.append(best)
    return chosen


def reach(text: str, span: Span, words: Sequence[Span], word: int) -> tuple[int, int]:
    """The first and the last of the words that a token stands for: of those that it touches, all that have a
    letter or a digit; of punctuation alone, all. `word` is one that it touches, as `align_words` gives it.
    """
    first = last = word
    # Outwards from the word that is known, as far as the span goes.
    while first and words[first - 1][1] > span[0]:
        first -= 1
    while last + 1 < len(words) and words[last + 1][0] < span[1]:
        last += 1
    touched = range(first, last + 1)
    # Letters and digits before punctuation: "bank." is about "bank".
    solid = [each for each in touched if any(map(str.isalnum, text[slice(*words[each])]))] or touched
    return solid[0], solid[-1]


def is_written(special: Mapping[int, str], id: int, text: str, span: Span) -> bool:
    """Whether a token is a special one that the text spells out, as "[MASK]".

    "[UNK]" is among the special tokens, but stands for a word unless the text says "[UNK]".
    """
    # Without case: an uncased tokenizer finds "[mask]" too.
    return id in special and text[slice(*span)].casefold() == special[id].casefold()
