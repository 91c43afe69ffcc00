"""Words and tokens: where each stands in the text, and which belong together."""

from __future__ import annotations

from dataclasses import dataclass


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
            "日" for each of its three bytes, "café" for "cafe". The piece itself where it stands for none.

    Example:
        >>> Token(index=1, id=8, text="Ġbank", span=(0, 4), sequence=0, word=0, type_id=0, special=False,
        ...     surface="bank").span
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
