"""Many texts at once, without a record for each token: what a bulk job reads of a tokenizer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tokenizers

from regard.core.errors import CheckpointError, InputError
from regard.text._chat import Chat
from regard.text._library import Row, check_rows, checked, encode, failing_on, in_place
from regard.text._sentencepiece import Renumbered
from regard.text._tokens import Span, align_spans, align_words, is_written, reach
from regard.text._words import Words, shown, split_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What a tokenizer's template puts around every text.

    Attributes:
        before: the ids in front of it, such as that of "[CLS]".
        after: the ids behind it, such as that of "[SEP]".
    """

    before: tuple[int, ...]
    after: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.before) + len(self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFrame:
    """What a tokenizer's template puts around every pair of texts.

    Attributes:
        before, between, after: the ids around the first text and the second.
        types: the token types of what stands before, of the first text, between, of the second, and after.
    """

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    types: tuple[int, int, int, int, int]

    def __len__(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """The pieces of a text, without its frame, and where they stand.

    Attributes:
        ids: the pieces' rows in the model's table.
        spans: for each its start and end, in code points of the text.
        words: for each word that has pieces its start and end in the text, in order; words that a piece
            joins, as an added token "New York" does, are one.
        word_of: for each piece an index into `words`; -1 where it belongs to none.
        without_pieces: how many words of the text got none.
        unknown: the words, by their index, of which a piece stands for what the vocabulary cannot spell.

    Example:
        >>> from tokenizers import Tokenizer as Backend, models, pre_tokenizers
        >>> from regard.text import Tokenizer
        >>> backend = Backend(models.WordLevel({"?": 0, "the": 1, "bank": 2}, unk_token="?"))
        >>> backend.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> aligned, = Tokenizer.from_str(backend.to_str()).bulk.aligned(["the river bank"])
        >>> aligned.ids, aligned.words, aligned.word_of
        ([1, 0, 2], [(0, 3), (4, 9), (10, 14)], [0, 1, 2])
    """

    ids: list[int]
    spans: list[Span]
    words: list[Span]
    word_of: list[int]
    without_pieces: int
    unknown: set[int]


class Bulk:
    """A tokenizer for many texts: on all cores, and without a record for each token.

    Made by `Tokenizer.bulk`.

    Attributes:
        unknown: the id that stands for what the vocabulary cannot spell; None where there is none.

    Example:
        >>> from tokenizers import Tokenizer as Backend, models, pre_tokenizers
        >>> from regard.text import Tokenizer
        >>> backend = Backend(models.WordLevel({"?": 0, "river": 1, "bank": 2}, unk_token="?"))
        >>> backend.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> Tokenizer.from_str(backend.to_str()).bulk.pieces(["river bank", "bank"])
        [[1, 2], [2]]
    """

    __slots__ = ("_backend", "_rows", "_source", "_special", "unknown")

    def __init__(
        self,
        backend: tokenizers.Tokenizer | Renumbered,
        *,
        source: str,
        rows: int | None,
        special: Mapping[int, str],
        unknown: int | None = None,
    ) -> None:
        self.unknown = unknown
        self._backend = backend
        self._special = special
        self._source = source
        self._rows = rows

    def frame(self) -> Frame:
        """What the template puts around every single text.

        Raises:
            CheckpointError: the template is not of tokens before and after the text.
        """
        # Any text will do: the frame is what is there beside its own tokens.
        probe = self._any_text()
        row = encode(self._backend, self._source, probe, add_special_tokens=True)
        # The mask marks what the template has added.
        own = [place for place, added in enumerate(row.special_tokens_mask) if not added]
        bare = encode(self._backend, self._source, probe, add_special_tokens=False)
        # The text's own tokens must lie together, and be the same as without the template.
        if not own or list(row.ids[own[0] : own[-1] + 1]) != list(bare.ids):
            raise CheckpointError(f"{self._source}: its template changes the tokens of the text itself")
        return Frame(before=tuple(row.ids[: own[0]]), after=tuple(row.ids[own[-1] + 1 :]))

    def pair_frame(self) -> PairFrame:
        """What the template puts around every pair of texts, and their token types.

        Example:
            >>> from regard.text import train_tokenizer
            >>> tokenizer = train_tokenizer(["a river bank"], kind="wordpiece", size=30, marks="bert")
            >>> tokenizer.bulk.pair_frame()
            PairFrame(before=(2,), between=(3,), after=(3,), types=(0, 0, 0, 1, 1))
        """
        probe = self._any_text()
        row = encode(self._backend, self._source, probe, probe, add_special_tokens=True)
        ids, types, sequences, added = row.ids, row.type_ids, row.sequence_ids, row.special_tokens_mask
        # Where the tokens of the first text of a pair stand, and those of the second.
        first, second = (
            [place for place, number in enumerate(sequences) if number == text and not added[place]]
            for text in (0, 1)
        )
        # Five parts: before, first text, between, second text, after.
        parts = [(0, first[0]), (first[0], first[-1] + 1), (first[-1] + 1, second[0])]
        parts += [(second[0], second[-1] + 1), (second[-1] + 1, len(ids))]
        before, _, between, _, after = (tuple(ids[start:end]) for start, end in parts)
        # A part without tokens has no type: 0.
        of = [types[start] if start < end else 0 for start, end in parts]
        return PairFrame(
            before=before, between=between, after=after, types=(of[0], of[1], of[2], of[3], of[4])
        )

    def _any_text(self) -> str:
        """A text that can be encoded: "a", or a token where the tokenizer refuses what it does not know."""
        try:
            encode(self._backend, self._source, "a", add_special_tokens=False)
        except CheckpointError:
            vocabulary = self._backend.get_vocab(with_added_tokens=True)
            # A vocabulary of whole words may have no "a": then one of its own tokens.
            return next((text for text, id in vocabulary.items() if id not in self._special), "a")
        return "a"

    def pieces(self, texts: Sequence[str], *, first: int = 0) -> list[list[int]]:
        """For each text its ids without the frame: `encode(text, add_special_tokens=False).token_ids`.

        Args:
            texts: the texts.
            first: the number of the first, for messages.

        Raises:
            InputError: a text that `encode` would refuse; the message says which.
            CheckpointError: the tokenizer itself fails.
        """
        return [list(row.ids) for row in self._rows_of(texts, first, spans=False)]

    def aligned(self, texts: Sequence[str], *, first: int = 0) -> list[Aligned]:
        """As `pieces`, with the places of pieces and words in the texts."""
        rows = self._rows_of(texts, first, spans=True)
        return [
            _aligned(text, row, self._special, self.unknown) for text, row in zip(texts, rows, strict=True)
        ]

    def _rows_of(self, texts: Sequence[str], first: int, *, spans: bool) -> Sequence[Row]:
        for place, text in enumerate(texts, start=first):
            checked(f"texts[{place}]", text)
        # The fast call leaves offsets out; it is only for pieces.
        encode_all = self._backend.encode_batch if spans else self._backend.encode_batch_fast
        rows: Sequence[Row]
        # Words and chats are put together piece by piece, which the library's batch cannot do.
        if any(isinstance(text, Words | Chat) for text in texts):
            rows = [encode(self._backend, self._source, text, add_special_tokens=False) for text in texts]
        else:
            with failing_on(self._backend, self._source, texts):
                rows = encode_all(list(texts), add_special_tokens=False)
        for place, (text, row) in enumerate(zip(texts, rows, strict=True), start=first):
            if not row.ids:
                raise InputError(
                    f"texts[{place}] leaves no token: the tokenizer drops all of {shown(text)}; "
                    "give a text with characters that it knows"
                )
            # Ids beyond the model's table are refused here, where the text is known.
            check_rows(self._backend.id_to_token, row.ids, self._rows)
        # Offsets behind control characters are put right where spans are wanted.
        if not spans:
            return rows
        return [in_place(self._backend, row, text) for text, row in zip(texts, rows, strict=True)]


def _aligned(text: str, row: Row, special: Mapping[int, str], unknown: int | None) -> Aligned:
    spans = align_spans(text, row.tokens, row.offsets)
    words = split_words(text)
    # Pairs of words: the first and the last of those that one piece or more join.
    with_pieces: list[tuple[int, int]] = []
    word_of, unknown_words = [], set()
    ids = list(row.ids)
    for id, span, word in zip(ids, spans, align_words(text, spans, words), strict=True):
        # White space and special tokens that the text spells belong to no word.
        if word is None or is_written(special, id, text, span):
            word_of.append(-1)
            continue
        first, last = word, word
        # A piece beyond its word stands for its neighbours, too.
        if span[0] < words[word][0] or words[word][1] < span[1]:
            first, last = reach(text, span, words, word)
        # The piece shares a word with the one before: both are one entry.
        if with_pieces and first <= with_pieces[-1][1]:
            start, end = with_pieces[-1]
            with_pieces[-1] = min(start, first), max(end, last)
        else:
            with_pieces.append((first, last))
        word_of.append(len(with_pieces) - 1)
        if id == unknown:
            unknown_words.add(word_of[-1])
    return Aligned(
        ids=ids,
        spans=spans,
        words=[(words[first][0], words[last][1]) for first, last in with_pieces],
        word_of=word_of,
        without_pieces=len(words) - sum(last + 1 - first for first, last in with_pieces),
        unknown=unknown_words,
    )
