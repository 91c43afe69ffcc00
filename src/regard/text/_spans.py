"""Where each token stands in the original text, and in which word.

`tokenizers` keeps track of the characters that its normaliser changes, but what it reports differs with the
kind of tokenizer: a piece may take the blank before it or not, lose the accents that were stripped, or claim
the first letter for a blank that was never there. Here they are brought to one rule.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import regex  # type: ignore[import-untyped, unused-ignore]

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
    if covered and not stripped:
        return start, end
    if piece[:1] in _BLANK_SIGNS and not piece.strip(piece[0]) and not covered.startswith(piece[0]):
        return start, start
    if len(stripped) == len(covered):
        return start, end
    start = end - len(covered.lstrip())
    return start, start + len(stripped)


def _take_marks(text: str, spans: list[Span]) -> None:
    """Extends each span over the combining marks after it that no token covers."""
    limit = len(text)  # where the next token's span starts
    shared_end = grown_end = -1  # the next token's end, before and after
    for position in range(len(spans) - 1, -1, -1):
        start, end = spans[position]
        if start == end or text[start:end].isspace():
            limit = start
            continue
        if end == shared_end:
            grown = grown_end
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
        while first < len(words) and words[first][1] <= start:
            first += 1
        best, most = None, 0
        if text[start:end].isspace():
            chosen.append(None)
            continue
        for index in range(first, len(words)):
            word_start, word_end = words[index]
            if word_start >= end:
                break
            shared = min(end, word_end) - max(start, word_start)
            if shared > most:
                best, most = index, shared
        chosen.append(best)
    return chosen


def reach(text: str, span: Span, words: Sequence[Span], word: int) -> tuple[int, int]:
    """The first and the last of the words that a token stands for: of those that it touches, all that have a
    letter or a digit; of punctuation alone, all. `word` is one that it touches, as `align_words` gives it.
    """
    first = last = word
    while first and words[first - 1][1] > span[0]:
        first -= 1
    while last + 1 < len(words) and words[last + 1][0] < span[1]:
        last += 1
    touched = range(first, last + 1)
    solid = [each for each in touched if any(map(str.isalnum, text[slice(*words[each])]))] or touched
    return solid[0], solid[-1]


def is_written(special: Mapping[int, str], id: int, text: str, span: Span) -> bool:
    """Whether a token is a special one that the text spells out, as "[MASK]".

    "[UNK]" is among the special tokens, but stands for a word unless the text says "[UNK]".
    """
    return id in special and text[slice(*span)].casefold() == special[id].casefold()
