"""From tokens that a model wrote back to their text, with each token's and each word's place in it."""

from collections.abc import Sequence
from dataclasses import replace

from regard.text._encoding import Encoding
from regard.text._tokenizer import Tokenizer
from regard.text._tokens import Span, Word, align_words
from regard.text._words import split_words

_BROKEN = "\N{REPLACEMENT CHARACTER}"  # half a character


def read_back(ids: Sequence[int], tokenizer: Tokenizer) -> Encoding:
    """The text that tokens spell, with the same tokens and its words.

    What a model writes need not be what the tokenizer would make of the text ("ban" and "k" for "bank"), so
    that the text cannot be encoded again. A token's span is what the decoded text grows by with it; the
    pieces of one character share its span.

    Args:
        ids: Rows of the model's table, in order.
        tokenizer: Which decodes them.

    Returns:
        As `Tokenizer.encode` gives it, of the decoded text; special tokens are in no text.

    Raises:
        InputError: There are no ids, or one is no integer from 0 up.

    Example:
        >>> from tokenizers import Tokenizer as Backend, models, pre_tokenizers
        >>> backend = Backend(models.WordLevel({"the": 0, "bank": 1}, "the"))
        >>> backend.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> encoding = read_back([0, 1, 1], Tokenizer.from_str(backend.to_str()))
        >>> encoding.texts, [token.span for token in encoding.tokens], encoding.words[2].tokens
        (('the bank bank',), [(0, 3), (4, 8), (9, 13)], (2,))
    """
    plain = Encoding.from_ids(ids, tokenizer)
    text = tokenizer.decode(ids, skip_special=True)
    # How far the text has come with each token; what later tokens would alter is not there yet.
    ends = [0]
    for count in range(1, len(ids)):
        read = tokenizer.decode(ids[:count], skip_special=True).rstrip(_BROKEN)
        ends.append(max(ends[-1], min(len(read), len(text))))
    ends.append(len(text))
    spans: list[Span] = []
    for place in range(len(ids)):
        start = ends[place]
        end = next((each for each in ends[place + 1 :] if each > start), start)
        piece = text[start:end]
        spans.append((start + len(piece) - len(piece.lstrip()), max(start, start + len(piece.rstrip()))))
    unknown = tokenizer.special_ids.unk
    special = [token.special and token.id != unknown for token in plain.tokens]
    spans = [
        (start, start) if alone or end < start else (start, end)
        for alone, (start, end) in zip(special, spans, strict=True)
    ]
    bounds = split_words(text)
    word_of = align_words(text, spans, bounds)
    tokens = tuple(
        replace(
            token,
            span=None if alone else span,
            sequence=None if alone else 0,
            special=alone,
            word=None if alone else word,
            surface=text[slice(*span)] or token.text,
        )
        for token, alone, span, word in zip(plain.tokens, special, spans, word_of, strict=True)
    )
    words = tuple(
        Word(
            index=index,
            text=text[slice(*span)],
            span=span,
            sequence=0,
            tokens=tuple(token.index for token in tokens if token.word == index),
        )
        for index, span in enumerate(bounds)
    )
    return Encoding(texts=(text,), tokens=tokens, words=words)
