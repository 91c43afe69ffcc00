"""What becomes of a text: its words, its tokens, and the way from the one to the other and back."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol, Self

from regard.core.errors import InputError
from regard.core.wording import BLANK
from regard.text._library import Row
from regard.text._select import select
from regard.text._special import SpecialIds
from regard.text._tokens import Span, Token, Word, align_spans, align_words, is_written
from regard.text._words import shown, split_words

_BROKEN = "\N{REPLACEMENT CHARACTER}"  # half a character


class _Pieces(Protocol):
    """What names ids, and reads them: a `Tokenizer`, whose file needs this one."""

    @property
    def special_ids(self) -> SpecialIds: ...

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str: ...

    def piece_of(self, id: int, /) -> str | None: ...

    def shown(self, id: int, /) -> str: ...

    def is_special(self, id: int, /) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """A text, or a pair of texts, with its tokens and its words; or tokens that were given without a text.

    Attributes:
        texts: The original text, or the two of a pair; empty for tokens without a text.
        tokens: All tokens in the order of the model's input.
        words: All words in the order of the texts.

    Example:
        >>> from tokenizers import Tokenizer as Backend, models, pre_tokenizers
        >>> from regard.text import Tokenizer
        >>> backend = Backend(models.WordLevel({"[UNK]": 0, "the": 1, "bank": 2}, unk_token="[UNK]"))
        >>> backend.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> encoding = Tokenizer.from_str(backend.to_str()).encode("the river bank")
        >>> encoding.token_ids
        (1, 0, 2)
        >>> [(word.text, word.span, word.tokens) for word in encoding.words]
        [('the', (0, 3), (0,)), ('river', (4, 9), (1,)), ('bank', (10, 14), (2,))]
        >>> encoding.find("bank")
        (2,)
    """

    texts: tuple[str, ...]
    tokens: tuple[Token, ...]
    words: tuple[Word, ...]

    @classmethod
    def from_ids(
        cls,
        ids: Iterable[int],
        tokenizer: _Pieces | None = None,
        *,
        type_ids: Sequence[int] | None = None,
    ) -> Self:
        """Tokens that were given as ids: there is no text, and so there are no words and no spans.

        Args:
            ids: Rows of the model's table, in order.
            tokenizer: Names the pieces and says which are special; without one, or where it has no piece for
                an id (tables are often longer than the vocabulary), a token is named by its id.
            type_ids: Their segments, as many; None for 0 each.

        Returns:
            The tokens, all of sequence 0. `find` takes positions and pieces.

        Raises:
            InputError: There are no ids, or one is no integer from 0 up.

        Example:
            >>> from regard.text import Encoding
            >>> encoding = Encoding.from_ids([101, 2924, 102])
            >>> encoding.token_ids, encoding.tokens[1].text, encoding.find("2924"), encoding.words
            ((101, 2924, 102), '2924', (1,), ())
        """
        tokens = []
        for index, id in enumerate(ids):
            number = _row(index, id)
            piece = str(number) if tokenizer is None else tokenizer.piece_of(number) or str(number)
            seen = piece if tokenizer is None else tokenizer.shown(number)
            tokens.append(
                Token(
                    index=index,
                    id=number,
                    text=piece,
                    span=None,
                    sequence=0,
                    word=None,
                    type_id=0 if type_ids is None else type_ids[index],
                    special=tokenizer is not None and tokenizer.is_special(number),
                    surface=seen.strip(BLANK) or seen,
                    shown=seen,
                )
            )
        if not tokens:
            raise InputError("ids is empty: give at least one token id")
        return cls(texts=(), tokens=tuple(tokens), words=())

    def shifted(self, start: Token) -> Self:
        """What a decoder reads to give this text: a start token, then all but the closing special token.

        Args:
            start: The first token; its index does not matter.

        Returns:
            The tokens one place later, with the words they belong to.

        Example:
            >>> from regard.text import Encoding
            >>> given, start = Encoding.from_ids([5, 6, 1]), Encoding.from_ids([0]).tokens[0]
            >>> given.shifted(start).token_ids  # 1 is not known to be special here
            (0, 5, 6, 1)
        """
        # The closing special token is what the decoder gives last, and never reads.
        kept = self.tokens[:-1] if self.tokens[-1].special else self.tokens
        return type(self)(
            texts=self.texts,
            tokens=(
                # The start token, then each one place later.
                replace(start, index=0),
                *(replace(token, index=token.index + 1) for token in kept),
            ),
            words=tuple(
                replace(word, tokens=tuple(index + 1 for index in word.tokens)) for word in self.words
            ),
        )

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens' rows in the embedding table: what the model is given."""
        return tuple(token.id for token in self.tokens)

    @property
    def type_ids(self) -> tuple[int, ...]:
        """The tokens' segments, for models that are told them."""
        return tuple(token.type_id for token in self.tokens)

    def find(self, selector: str | int | tuple[int, ...]) -> tuple[int, ...]:
        """The positions of the tokens that a selector names.

        * An integer is a position; a negative one counts from the end.
        * A word is looked up as written, then without regard to case, canonical form and unseen characters.
          Several words ("river bank") select the tokens of words that follow each other.
        * Where the word occurs more than once, "bank#2" chooses the second, counted over both texts.
          With a number beyond these it is looked up as it is written.
        * A pair of integers is a span in code points, such as `(16, 20)` or `word.span`; of the second text
          `(16, 20, 1)`. A text that is not found, such as "16:20", is one too.
        * A special token is selected by its exact string: "[CLS]", "[SEP]#2". Where tokens were given without
          a text, every piece is: "##ing", "Ġbank#2".

        Args:
            selector: A position, a word, several words, a span, or a special token.

        Returns:
            Token positions in order, at least one.

        Raises:
            InputError: A position out of range; a span without a token, or with a part of one; a word that
                does not occur, that occurs more than once without a choice, or of which the tokenizer left no
                token. The message lists what could be meant.

        Example:
            >>> from tokenizers import Tokenizer as Backend, models, pre_tokenizers
            >>> from regard.text import Tokenizer
            >>> backend = Backend(models.WordLevel({"[UNK]": 0, "the": 1, "bank": 2}, unk_token="[UNK]"))
            >>> backend.pre_tokenizer = pre_tokenizers.Whitespace()
            >>> encoding = Tokenizer.from_str(backend.to_str()).encode("the bank by the river Bank")
            >>> encoding.find("Bank"), encoding.find("the#2"), encoding.find("The River"), encoding.find(-1)
            ((5,), (3,), (3, 4), (5,))
            >>> encoding.find("the")
            Traceback (most recent call last):
            regard.core.errors.InputError: "the" occurs 2 times in the text: "the#1" at token 0 (the bank by
            the…), "the#2" at token 3 (the bank by the river Bank); choose one of these
        """
        return select(selector, self.texts, self.tokens, self.words)


def _row(index: int, id: object) -> int:
    try:
        # operator.index lets the integers of numpy and torch pass; a bool, never meant as one, is one to it.
        number = operator.index(id)  # type: ignore[arg-type]
    except TypeError:
        # No integer at all: the error below.
        number = -1
    if number < 0 or isinstance(id, bool):
        raise InputError(
            f"ids must be integers from 0 up, rows of the model's table; got {type(id).__name__} "
            f"{shown(repr(id))} at position {index}"
        )
    return number


def assemble(
    texts: tuple[str, ...], row: Row, written: Mapping[int, str], shown_as: Callable[[int], str]
) -> Encoding:
    """The record of a text, or of a pair of texts, from what the tokenizer made of it."""
    ids, pieces, type_ids = row.ids, list(row.tokens), row.type_ids
    # Each of these builds its list anew when it is read.
    offsets, sequences = row.offsets, row.sequence_ids
    added = [bool(flag) for flag in row.special_tokens_mask]

    spans: list[Span | None] = [None] * len(ids)
    # A token that the template added is special in any case.
    special = list(added)
    word_of: list[int | None] = [None] * len(ids)
    bounds: list[tuple[int, Span]] = []  # of each word its sequence and its span
    for sequence, text in enumerate(texts):
        # Tokens of this text that the template did not add.
        own = [i for i, number in enumerate(sequences) if number == sequence and not added[i]]
        own_spans = align_spans(text, [pieces[i] for i in own], [offsets[i] for i in own])
        # Every token has an empty span: nothing of the text is left.
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
            # Words count on over both texts.
            elif word is not None:
                word_of[i] = len(bounds) + word
        bounds.extend((sequence, span) for span in words)

    # Each id is shown once: texts repeat theirs.
    seen = {id: shown_as(id) for id in set(ids)}
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
                # The template's own tokens belong to no text.
                sequence=None if added[i] else sequences[i],
                word=word_of[i],
                type_id=type_ids[i],
                special=special[i] or spans[i] is None,
                # What stands in the text, or the piece where nothing does.
                surface=_surface(texts, sequences[i], spans[i]) or seen[ids[i]],
                shown=seen[ids[i]],
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


def _surface(texts: tuple[str, ...], sequence: int | None, span: Span | None) -> str:
    return "" if span is None or sequence is None else texts[sequence][span[0] : span[1]]


def read_back(ids: Sequence[int], tokenizer: _Pieces) -> Encoding:
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
        >>> from regard.text import Tokenizer
        >>> encoding = read_back([0, 1, 1], Tokenizer.from_str(backend.to_str()))
        >>> encoding.texts, [token.span for token in encoding.tokens], encoding.words[2].tokens
        (('the bank bank',), [(0, 3), (4, 8), (9, 13)], (2,))
    """
    # Names and roles of the pieces, without a text.
    plain = Encoding.from_ids(ids, tokenizer)
    text = tokenizer.decode(ids, skip_special=True)
    # How far the text has come with each token; what later tokens would alter is not there yet.
    ends = [0]
    for count in range(1, len(ids)):
        # Decoding may change what came before (half a character): the broken end is cut off.
        read = tokenizer.decode(ids[:count], skip_special=True).rstrip(_BROKEN)
        # Never backwards, and never beyond the whole text.
        ends.append(max(ends[-1], min(len(read), len(text))))
    ends.append(len(text))
    spans: list[Span] = []
    for place in range(len(ids)):
        start = ends[place]
        # Pieces of one character end where the text next grows.
        end = next((each for each in ends[place + 1 :] if each > start), start)
        piece = text[start:end]
        # Without the blanks at either end.
        spans.append((start + len(piece) - len(piece.lstrip()), max(start, start + len(piece.rstrip()))))
    unknown = tokenizer.special_ids.unk
    # An unknown piece stands for something in the text.
    special = [token.special and token.id != unknown for token in plain.tokens]
    spans = [
        (start, start) if alone or end < start else (start, end)
        for alone, (start, end) in zip(special, spans, strict=True)
    ]
    # A special token that is not in the text ends a word all the same.
    # Where a special token stands, the text goes on behind it as a new word.
    cuts = {ends[place] for place, alone in enumerate(special) if alone}
    bounds = [
        part
        for start, end in split_words(text)
        for part in pairwise([start, *sorted(cut for cut in cuts if start < cut < end), end])
    ]
    word_of = align_words(text, spans, bounds)
    tokens = tuple(
        replace(
            token,
            span=None if alone else span,
            sequence=None if alone else 0,
            special=alone,
            word=None if alone else word,
            # As in the text, else as the piece is shown.
            surface=text[slice(*span)] or token.surface,
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
