"""From the rows of a tokenizer to tokens and words, each with its place in the text."""

from collections.abc import Mapping

from regard.core.errors import InputError
from regard.text._encoding import Encoding
from regard.text._library import Row
from regard.text._spans import Span, align_spans, align_words, is_written
from regard.text._tokens import Token, Word
from regard.text._words import shown, split_words


def assemble(texts: tuple[str, ...], row: Row, written: Mapping[int, str]) -> Encoding:
    """The record of a text, or of a pair of texts, from what the tokenizer made of it."""
    ids, pieces, type_ids = row.ids, list(row.tokens), row.type_ids
    # Each of these builds its list anew when it is read.
    offsets, sequences = row.offsets, row.sequence_ids
    added = [bool(flag) for flag in row.special_tokens_mask]

    spans: list[Span | None] = [None] * len(ids)
    special = list(added)
    word_of: list[int | None] = [None] * len(ids)
    bounds: list[tuple[int, Span]] = []  # of each word its sequence and its span
    for sequence, text in enumerate(texts):
        own = [i for i, number in enumerate(sequences) if number == sequence and not added[i]]
        own_spans = align_spans(text, [pieces[i] for i in own], [offsets[i] for i in own])
        if not any(start < end for start, end in own_spans):
            raise InputError(
                f"{('text', 'pair')[sequence]} leaves no token: the tokenizer drops all of "
                f"{shown(text)}; give a text with characters that it knows"
            )
        words = split_words(text)
        for i, (start, end), word in zip(own, own_spans, align_words(text, own_spans, words), strict=True):
            spans[i] = start, end
            if is_written(written, ids[i], text, (start, end)):
                special[i] = True
                pieces[i] = written[ids[i]]  # one that takes the blank before it is reported with the blank
            elif word is not None:
                word_of[i] = len(bounds) + word
        bounds.extend((sequence, span) for span in words)

    tokens_of: list[list[int]] = [[] for _ in bounds]
    for i, word in enumerate(word_of):
        if word is not None:
            tokens_of[word].append(i)
    return Encoding(
        texts=texts,
        tokens=tuple(
            Token(
                index=i,
                id=ids[i],
                text=pieces[i],
                span=spans[i],
                sequence=None if added[i] else sequences[i],
                word=word_of[i],
                type_id=type_ids[i],
                special=special[i] or spans[i] is None,
                surface=_surface(texts, pieces[i], sequences[i], spans[i]),
            )
            for i in range(len(ids))
        ),
        words=tuple(
            Word(
                index=index,
                text=texts[sequence][span[0] : span[1]],
                span=span,
                sequence=sequence,
                tokens=tuple(tokens_of[index]),
            )
            for index, (sequence, span) in enumerate(bounds)
        ),
    )


def _surface(texts: tuple[str, ...], piece: str, sequence: int | None, span: Span | None) -> str:
    if span is None or sequence is None or span[0] == span[1]:
        return piece
    return texts[sequence][span[0] : span[1]]
