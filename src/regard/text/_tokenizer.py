"""A tokenizer file as a function from text to tokens, each with its word and its place in the text."""

import itertools
import operator
import os
from pathlib import Path
from typing import Self

import tokenizers
from tokenizers import processors

from regard.core.errors import CheckpointError, InputError
from regard.text._encoding import Encoding, Token, Word
from regard.text._spans import Span, align_spans, align_words
from regard.text._words import shown, split_words


class Tokenizer:
    """A tokenizer of the `tokenizers` library, and where each of its tokens stands in the text.

    Made by `from_file` or `from_str`. The pieces and ids are those of the file. Truncation and padding that
    the file stores are switched off: how long a text may be is the model's affair, and a text cut in silence
    is a wrong one. May be shared between threads, and pickled.

    Example:
        >>> from tokenizers import Tokenizer as Backend, models, normalizers, pre_tokenizers
        >>> vocabulary = {"[UNK]": 0, "don": 1, "'": 2, "t": 3, "fish": 4, "##ing": 5}
        >>> backend = Backend(models.WordPiece(vocabulary, unk_token="[UNK]"))
        >>> backend.normalizer = normalizers.BertNormalizer()
        >>> backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        >>> tokenizer = Tokenizer.from_str(backend.to_str())
        >>> encoding = tokenizer.encode("Don't  fishing")
        >>> [(token.text, token.span, token.word) for token in encoding.tokens]
        [('don', (0, 3), 0), ("'", (3, 4), 0), ('t', (4, 5), 0), ('fish', (7, 11), 1), ('##ing', (11, 14), 1)]
        >>> encoding.find("fishing")
        (3, 4)
    """

    __slots__ = ("_backend", "_source", "_special")

    def __init__(self, backend: tokenizers.Tokenizer, *, source: str) -> None:
        """Takes over `backend`, which it alters; `source` names it in messages."""
        backend.no_truncation()
        backend.no_padding()
        _keep_blanks(backend.post_processor)
        self._backend = backend
        self._source = source
        self._special = {
            token_id: added.content.casefold()
            for token_id, added in backend.get_added_tokens_decoder().items()
            if added.special
        }

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Reads a `tokenizer.json`.

        Args:
            path: The file.

        Returns:
            The tokenizer, without the truncation and padding that the file may store.

        Raises:
            CheckpointError: The file is missing, cannot be read, or is no tokenizer.

        Example:
            >>> import tempfile
            >>> from tokenizers import Tokenizer as Backend, models
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     Backend(models.WordLevel({"bank": 0}, unk_token="bank")).save(f"{folder}/tokenizer.json")
            ...     Tokenizer.from_file(f"{folder}/tokenizer.json").vocab_size
            1
        """
        if not isinstance(path, str | os.PathLike):
            raise InputError(f"path must be the path of a tokenizer.json; got {type(path).__name__}")
        file = Path(path)
        if file.is_dir():
            raise CheckpointError(
                f"{file} is a folder, not a tokenizer.json: give the path of the file in it"
            )
        try:
            json = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise CheckpointError(
                f"{file} does not exist: give the path of a tokenizer.json, as tokenizers writes it"
            ) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CheckpointError(
                f"{file} cannot be read as a tokenizer.json: {_one_line(reason)}"
            ) from error
        return cls._parsed(json, str(file))

    @classmethod
    def from_str(cls, json: str) -> Self:
        """Makes a tokenizer of the text of a `tokenizer.json`.

        Args:
            json: What `tokenizers.Tokenizer.to_str` gives; in `transformers`, `.backend_tokenizer.to_str()`.

        Returns:
            The tokenizer, without the truncation and padding that the text may store.

        Raises:
            InputError: `json` is not a string.
            CheckpointError: The text is no tokenizer.

        Example:
            >>> Tokenizer.from_str("{}")
            Traceback (most recent call last):
            regard.core.errors.CheckpointError: the JSON given is not a usable tokenizer.json: ...
        """
        if not isinstance(json, str):
            raise InputError(f"json must be the text of a tokenizer.json; got {type(json).__name__}")
        return cls._parsed(json, "the JSON given")

    @classmethod
    def _parsed(cls, json: str, source: str) -> Self:
        try:
            backend = tokenizers.Tokenizer.from_str(json)
        # The library raises bare Exceptions, and TypeError for what is not Unicode.
        except Exception as error:
            raise CheckpointError(
                f"{source} is not a usable tokenizer.json: {_one_line(error)}; fetch it again, or write it "
                "with the tokenizers library"
            ) from error
        return cls(backend, source=source)

    @property
    def vocab_size(self) -> int:
        """How many tokens there are, added ones included. The model's table may have more rows."""
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    @property
    def highest_id(self) -> int:
        """The highest id that a token has: the model's table must have a row for it."""
        return max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1)

    def token_of(self, id: int) -> str:
        """The piece that an id stands for.

        Args:
            id: A row of the vocabulary.

        Returns:
            The piece as in the vocabulary.

        Raises:
            InputError: No token has this id.

        Example:
            >>> from tokenizers import Tokenizer as Backend, models
            >>> backend = Backend(models.WordLevel({"the": 0, "bank": 1}, unk_token="the"))
            >>> Tokenizer.from_str(backend.to_str()).token_of(1)
            'bank'
        """
        try:
            number = operator.index(id)
        except TypeError:
            raise InputError(f"id must be an integer; got {type(id).__name__} {shown(repr(id))}") from None
        # 32 bits: what the library counts in; it raises of its own accord beyond.
        piece = self._backend.id_to_token(number) if 0 <= number < 2**32 else None
        if piece is None:
            raise InputError(
                f"id {number} is not in the vocabulary of {self.vocab_size} tokens; ids count from 0"
            )
        return str(piece)

    def id_of(self, token: str) -> int:
        """The id of a piece.

        Args:
            token: The piece exactly as in the vocabulary: "bank", "##ing", "[CLS]".

        Returns:
            Its row in the model's table.

        Raises:
            InputError: The vocabulary has no such piece.

        Example:
            >>> from tokenizers import Tokenizer as Backend, models
            >>> backend = Backend(models.WordLevel({"the": 0, "bank": 1}, unk_token="the"))
            >>> Tokenizer.from_str(backend.to_str()).id_of("bank")
            1
        """
        if not isinstance(token, str):
            raise InputError(f"token must be a string; got {type(token).__name__}")
        number = self._backend.token_to_id(token) if _surrogate(token) is None else None
        if number is None:
            raise InputError(
                f"{shown(token)} is not in the vocabulary of {self.vocab_size} tokens; "
                "write a piece exactly as it stands there, or let encode() give the pieces of a text"
            )
        return int(number)

    def encode(self, text: str, pair: str | None = None, *, add_special_tokens: bool = True) -> Encoding:
        """The tokens of a text, or of a pair of texts.

        Args:
            text: The text.
            pair: A second text, which the model reads together with the first.
            add_special_tokens: Whether the file's template is applied ("[CLS]" … "[SEP]").

        Returns:
            The tokens and the words. Never cut, never padded.

        Raises:
            InputError: A text is not a string, is empty or only white space, holds half a surrogate pair, or
                leaves no token.
            CheckpointError: The tokenizer itself fails, as where it has no token for unknown words.

        Example:
            >>> from tokenizers import Tokenizer as Backend, models, pre_tokenizers
            >>> backend = Backend(models.WordLevel({"?": 0, "river": 1, "bank": 2}, unk_token="?"))
            >>> backend.pre_tokenizer = pre_tokenizers.Whitespace()
            >>> tokenizer = Tokenizer.from_str(backend.to_str())
            >>> tokens = tokenizer.encode("river", "the bank").tokens
            >>> [(token.text, token.span, token.sequence) for token in tokens]
            [('river', (0, 5), 0), ('?', (0, 3), 1), ('bank', (4, 8), 1)]
        """
        texts: tuple[str, ...] = (_checked("text", text),)
        if pair is not None:
            texts = (*texts, _checked("pair", pair))
        try:
            backend = self._backend.encode(text, pair, add_special_tokens=add_special_tokens)
        except Exception as error:
            raise CheckpointError(
                f"{self._source}: the tokenizer failed on the text: {_one_line(error)}"
            ) from error
        return self._encoding(texts, backend)

    def _encoding(self, texts: tuple[str, ...], backend: tokenizers.Encoding) -> Encoding:
        ids, pieces, type_ids = backend.ids, backend.tokens, backend.type_ids
        # Each of these builds its list anew when it is read.
        offsets, sequences = backend.offsets, backend.sequence_ids
        added = [bool(flag) for flag in backend.special_tokens_mask]

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
            for i, (start, end), word in zip(
                own, own_spans, align_words(text, own_spans, words), strict=True
            ):
                spans[i] = start, end
                # "[UNK]" is among the special tokens, but stands for a word unless the text says "[UNK]".
                if ids[i] in self._special and text[start:end].casefold() == self._special[ids[i]]:
                    special[i] = True
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


def _keep_blanks(processor: object) -> None:
    """Has a byte-level post-processor report the blanks at a token's ends.

    It cuts them off by itself, but leaves a token of blanks with an empty span, sometimes in the wrong place.
    """
    if isinstance(processor, processors.ByteLevel | processors.RobertaProcessing):
        processor.trim_offsets = False
    elif isinstance(processor, processors.Sequence):
        # It has an index, but neither a length nor an iterator.
        for index in itertools.count():
            try:
                part = processor[index]
            except IndexError:
                break
            _keep_blanks(part)


def _checked(argument: str, text: str) -> str:
    if not isinstance(text, str):
        raise InputError(f"{argument} must be a string; got {type(text).__name__}")
    if not text.strip():
        raise InputError(
            f"{argument} is empty: there is no word to look at in {shown(text)}; give at least one character "
            "that is not white space"
        )
    surrogate = _surrogate(text)
    if surrogate is not None:
        raise InputError(
            f"{argument} is not valid Unicode: position {surrogate} holds half of a surrogate pair "
            f"(U+{ord(text[surrogate]):04X}); decode the bytes anew, or remove it"
        )
    return text


def _surrogate(text: str) -> int | None:
    """The position of the first lone surrogate; UTF-8, and so the library, has no form for it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start
    return None


def _one_line(reason: object) -> str:
    return " ".join(str(reason).split())
