"""A tokenizer file as a function from text to tokens, each with its word and its place in the text."""

import copy
import hashlib
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import tokenizers

from regard.core.arguments import path_of
from regard.core.errors import InputError
from regard.core.tokenizer_files import TOKENIZER
from regard.text._bulk import Bulk
from regard.text._chat import Chats
from regard.text._encoding import Encoding, assemble
from regard.text._folder import Built, build, complete
from regard.text._gguf import build_gguf
from regard.text._library import (
    check_rows,
    checked,
    encode,
    failing_as,
    keep_blanks,
    parse_backend,
    row_limit,
    surrogate,
)
from regard.text._portable import portable
from regard.text._sentencepiece import Renumbered
from regard.text._shown import Reading
from regard.text._special import SpecialIds, special_ids
from regard.text._words import shown


class Tokenizer(Chats):
    """A tokenizer of the `tokenizers` library, and where each of its tokens stands in the text.

    Made by `from_folder` or `from_str`. The pieces and ids are those of the file. Truncation and
    padding that the file stores are switched off: how long a text may be is the model's affair, and a text
    cut in silence is a wrong one. May be shared between threads, and pickled.

    Example:
        >>> from regard.text import Tokenizer
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

    __slots__ = (
        *("_backend", "_reading", "_rows", "_source", "_special", "_special_ids", "_target"),
        *("_chat_template", "_end_ids"),
    )

    def __init__(
        self,
        backend: tokenizers.Tokenizer | Renumbered,
        *,
        source: str,
        special_ids: SpecialIds | None = None,
        target: Self | None = None,
        rows: int | None = None,
        end_ids: Sequence[int] = (),
        chat_template: str | None = None,
    ) -> None:
        """Takes over `backend`, which it alters; `source` names it in messages; `rows` is as in `within`."""
        # Texts are never cut or filled up in silence.
        backend.no_truncation()
        backend.no_padding()
        keep_blanks(backend.post_processor)
        self._backend = backend
        self._source = source
        self._reading = Reading(backend)
        added = backend.get_added_tokens_decoder().items()
        # Special tokens by id, with their text; other added tokens are words like any.
        self._special = {id: token.content for id, token in added if token.special}
        self._special_ids = special_ids or SpecialIds()
        self._target = target
        self._rows = rows
        self._end_ids = tuple(end_ids)
        self._chat_template = chat_template

    @classmethod
    def from_folder(cls, folder: str | os.PathLike[str], *, tokenizer_class: str = "") -> Self | None:
        """Reads a model's tokenizer, in whatever form the folder has it.

        In this order: `tokenizer.json`; `vocab.txt` (BERT, DistilBERT, ELECTRA, MPNet); `vocab.json` with
        `merges.txt` (GPT-2, RoBERTa, BART, Qwen2, Qwen3); a SentencePiece model (T5, XLM-R, mBART,
        DeBERTa-v2 and -v3, Llama, Mistral, Gemma), or the two of Marian with their `vocab.json`. Read with
        them: `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json`.

        Args:
            folder: The model's folder.
            tokenizer_class: The class of transformers that its files are for, where `tokenizer_config.json`
                states none; a `tokenizer.json` needs none.

        Returns:
            The tokenizer; None where the folder has no file of one.

        Raises:
            InputError: `folder` is no path.
            CheckpointError: Files are damaged, incomplete, do not belong together, or are of a kind that no
                tokenizer is built from; then the message says what to add.
            MissingExtraError: The folder has a SentencePiece model, and transformers, sentencepiece or
                protobuf is not installed.

        Example:
            >>> from regard.text import Tokenizer
            >>> import pathlib, tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     none = Tokenizer.from_folder(folder, tokenizer_class="BertTokenizer")
            ...     pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "river", "bank", "##s"]
            ...     _ = pathlib.Path(folder, "vocab.txt").write_text("\\n".join(pieces))
            ...     tokenizer = Tokenizer.from_folder(folder, tokenizer_class="BertTokenizer")
            >>> none is None, tokenizer.encode("River banks").token_ids, tokenizer.special_ids.mask
            (True, (2, 5, 6, 7, 3), 4)
        """
        # A link counts that leads nowhere, too: reading then says what is wrong.
        path = path_of("folder", folder) / TOKENIZER
        is_there = path.exists()
        built = complete(path, tokenizer_class) if is_there else build(path.parent, tokenizer_class)
        return None if built is None else cls._from_built(built)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object], *, file: Path) -> Self | None:
        """Makes the tokenizer that a GGUF file describes: byte-level BPE, SentencePiece or WordPiece.

        Args:
            metadata: The file's keys and values: texts, numbers, true or false, lists.
            file: Its path, for messages.

        Returns:
            The tokenizer; None where the file has none.

        Raises:
            CheckpointError: It is of a kind that is not read, or damaged.

        Example:
            >>> from pathlib import Path
            >>> from regard.text import Tokenizer
            >>> said = {"model": "bert", "tokens": ["[CLS]", "[SEP]", "[UNK]", "▁river", "▁bank", "s"]}
            >>> said |= {"cls_token_id": 0, "seperator_token_id": 1, "unknown_token_id": 2}
            >>> metadata = {f"tokenizer.ggml.{key}": value for key, value in said.items()}
            >>> tokenizer = Tokenizer.from_gguf(metadata, file=Path("model.gguf"))
            >>> [token.text for token in tokenizer.encode("River banks").tokens]
            ['[CLS]', 'river', 'bank', '##s', '[SEP]']
        """
        built = build_gguf(metadata, file)
        return None if built is None else cls._from_built(built)

    @classmethod
    def _from_built(cls, built: Built) -> Self:
        source, special = str(built.path), built.special
        target = None if built.target is None else cls(built.target, source=source, special_ids=special)
        more: dict[str, Any] = {"end_ids": built.end_ids, "chat_template": built.chat_template}
        return cls(built.backend, source=source, special_ids=special, target=target, **more)

    @classmethod
    def from_str(
        cls, json: str, *, roles: Mapping[str, str] | None = None, chat_template: str | None = None
    ) -> Self:
        """Makes a tokenizer of the text of a `tokenizer.json`.

        Args:
            json: What `tokenizers.Tokenizer.to_str` gives; in `transformers`, `.backend_tokenizer.to_str()`.
            roles: Which tokens are `bos`, `eos`, `unk`, `sep`, `pad`, `cls` and `mask`, as far as there are
                any: `{"pad": "[PAD]"}`; the text does not say.
            chat_template: How messages become a text, in the language of jinja2; None where it has none.

        Raises:
            InputError: `json` is not a string, or `roles` names an unknown role or token.
            CheckpointError: The text is no tokenizer.

        Example:
            >>> from regard.text import Tokenizer
            >>> Tokenizer.from_str("{}")
            Traceback (most recent call last):
            regard.core.errors.CheckpointError: the JSON given is not a usable tokenizer.json: ...
        """
        if not isinstance(json, str):
            raise InputError(f"json must be the text of a tokenizer.json; got {type(json).__name__}")
        source = "the JSON given"
        backend = parse_backend(json, source)
        ids = special_ids(backend, roles or {})
        return cls(backend, source=source, special_ids=ids, chat_template=chat_template)

    @property
    def vocab_size(self) -> int:
        """How many tokens there are, added ones included. The model's table may have more rows."""
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    @property
    def highest_id(self) -> int:
        """The highest id that a token has: the model's table must have a row for it."""
        return max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1)

    def within(self, rows: int, target_rows: int | None = None) -> Self:
        """This tokenizer for a model whose table of embeddings has so many rows.

        A table may be longer than the vocabulary (padded to a round number). One that is too short for a few
        added tokens is met in published models, whose texts do not use them (Gemma 3's mark for images): then
        only a text that does use one is refused. One that is too short for the vocabulary itself is another
        model's.

        Args:
            rows: How many ids the model knows.
            target_rows: How many its decoder knows, where that has a table of its own; None for `rows`.

        Returns:
            The tokenizer, or one like it that refuses texts with tokens beyond the table.

        Raises:
            CheckpointError: A piece of the vocabulary itself has no row.

        Example:
            >>> from regard.text import Tokenizer
            >>> from tokenizers import Tokenizer as Backend, models
            >>> tokenizer = Tokenizer.from_str(Backend(models.WordLevel({"a": 0, "b": 5}, "a")).to_str())
            >>> tokenizer.within(8) is tokenizer
            True
            >>> tokenizer.within(5)
            Traceback (most recent call last):
            regard.core.errors.CheckpointError: the JSON given has tokens up to id 5, but the model's table of
            embeddings has 5 rows: ...
        """
        # A decoder's texts may be of another tokenizer, with another table.
        target = self._target
        if target is not None:
            target = target.within(rows if target_rows is None else target_rows)
        limit = row_limit(self._backend, rows, self._source)
        if limit is None and target is self._target:
            return self
        # A copy: the same tokenizer may serve other models.
        limited = copy.copy(self)
        limited._rows, limited._target = limit, target
        return limited

    def mark(self) -> str:
        """The SHA-256 of all that it does: of its file, without truncation and padding."""
        return hashlib.sha256(self._backend.to_str().encode()).hexdigest()

    def to_str(self) -> str:
        """The text of its `tokenizer.json`, which `from_str` reads.

        Raises:
            InputError: A decoder's texts are encoded in another way than others (mBART, Marian), which that
                file cannot say.
        """
        if self._target is not None or isinstance(self._backend, Renumbered):
            raise InputError(
                f"tokenizer: {self._source} encodes a decoder's texts in another way than others, which "
                "no tokenizer.json can say; copy the files of its folder instead."
            )
        return str(self._backend.to_str(pretty=True))

    @property
    def special_ids(self) -> SpecialIds:
        """The ids of `bos`, `eos`, `unk`, `sep`, `pad`, `cls` and `mask`, None where the files name none.

        A `tokenizer.json` alone names none: `from_folder` reads what stands beside it.
        """
        return self._special_ids

    @property
    def end_ids(self) -> tuple[int, ...]:
        """The ids that end what a decoder writes: `eos`, then what else a GGUF file has for it."""
        eos = self._special_ids.eos
        return self._end_ids or (() if eos is None else (eos,))

    @property
    def target(self) -> Self:
        """The tokenizer of the texts that a decoder is to give: with the other language's mark (mBART) or
        pieces (Marian); itself where texts of both sides are written alike."""
        return self if self._target is None else self._target

    def encode_target(self, text: str | None, start_id: int | None) -> Encoding:
        """What the decoder of an encoder-decoder reads to give a text: its start token, then the text.

        Args:
            text: The text; None for none, which leaves the start token alone.
            start_id: The start token; None where the closing token of the text is it (mBART's language).

        Returns:
            The tokens, without the one that closes the text: the decoder gives it, and never reads it.

        Raises:
            InputError: As `encode`; or neither a text nor a start token.

        Example:
            >>> from regard.text import Tokenizer
            >>> from tokenizers import Tokenizer as Backend, models, pre_tokenizers
            >>> backend = Backend(models.WordLevel({"<pad>": 0, "river": 1, "bank": 2}, unk_token="<pad>"))
            >>> backend.pre_tokenizer = pre_tokenizers.Whitespace()
            >>> Tokenizer.from_str(backend.to_str()).encode_target("river bank", 0).token_ids
            (0, 1, 2)
        """
        # Without a text only the start token is left.
        labels = None if text is None else self.target.encode(text)
        if start_id is None and labels is not None:
            # mBART: the language, which closes the text, also starts it.
            start_id = labels.tokens[-1].id
        if start_id is None:
            raise InputError(
                "target must be given: this model's decoder starts with a token that depends on the text."
            )
        start = Encoding.from_ids([start_id], self)
        # It belongs to no text.
        start_token = replace(start.tokens[0], sequence=None, special=True)
        return replace(start, tokens=(start_token,)) if labels is None else labels.shifted(start_token)

    def token_of(self, id: int) -> str:
        """The piece that an id stands for, as in the vocabulary.

        Raises:
            InputError: No token has this id.

        Example:
            >>> from regard.text import Tokenizer
            >>> from tokenizers import Tokenizer as Backend, models
            >>> backend = Backend(models.WordLevel({"the": 0, "bank": 1}, unk_token="the"))
            >>> Tokenizer.from_str(backend.to_str()).token_of(1)
            'bank'
        """
        try:
            number = operator.index(id)
        except TypeError:
            raise InputError(f"id must be an integer; got {type(id).__name__} {shown(repr(id))}") from None
        piece = self.piece_of(number)
        if piece is None:
            raise InputError(
                f"id {number} is not in the vocabulary of {self.vocab_size} tokens; ids count from 0"
            )
        return piece

    def piece_of(self, id: int) -> str | None:
        """The piece that an id stands for, as `token_of`, but None where there is none: a model's table is
        often longer than the vocabulary."""
        # 32 bits: what the library counts in; it raises of its own accord beyond.
        return self._backend.id_to_token(id) if 0 <= id < 2**32 else None

    def shown(self, id: int) -> str:
        """How an id's piece is shown: "␣bank", "↵", "<0xE6>" for a part of a character; the id where there is
        none."""
        return self._reading(id, self.piece_of(id))

    def id_of(self, token: str) -> int:
        """The id of a piece.

        Args:
            token: The piece exactly as in the vocabulary ("bank", "##ing", "[CLS]", "Ġbank"), or as text,
                where one piece alone is shown so: " bank".

        Raises:
            InputError: The vocabulary has no such piece.

        Example:
            >>> from regard.text import Tokenizer
            >>> from tokenizers import Tokenizer as Backend, models
            >>> backend = Backend(models.WordLevel({"the": 0, "bank": 1}, unk_token="the"))
            >>> Tokenizer.from_str(backend.to_str()).id_of("bank")
            1
        """
        if not isinstance(token, str):
            raise InputError(f"token must be a string; got {type(token).__name__}")
        number = self._backend.token_to_id(token) if surrogate(token) is None else None
        if number is None:
            # Not a piece: perhaps the way in which one is shown.
            asked = token.replace(" ", "␣")
            pieces = {piece: id for piece, id in self._backend.get_vocab().items() if self.shown(id) == asked}
            if len(pieces) == 1:
                return next(iter(pieces.values()))
            way = "a piece exactly as it stands there, or let encode() give the pieces of a text"
            way = f"{' or '.join(map(shown, pieces))}, which are shown so" if pieces else way
            raise InputError(
                f"{shown(token)} is not in the vocabulary of {self.vocab_size} tokens; write {way}"
            )
        return int(number)

    def is_special(self, id: int) -> bool:
        """Whether an id is that of a special token, such as "[CLS]"."""
        return id in self._special

    def decode(self, ids: Iterable[int], *, skip_special: bool = False) -> str:
        """The text that ids stand for, as the tokenizer joins pieces.

        Args:
            ids: Rows of the vocabulary, in order.
            skip_special: Whether special tokens are left out.

        Returns:
            The text. Not always the one that was encoded: case, accents or blanks may be lost.

        Raises:
            InputError: No token has one of the ids.

        Example:
            >>> from regard.text import Tokenizer
            >>> from tokenizers import Tokenizer as Backend, decoders, models
            >>> backend = Backend(models.WordPiece({"[UNK]": 0, "fish": 1, "##ing": 2}, unk_token="[UNK]"))
            >>> backend.decoder = decoders.WordPiece()
            >>> Tokenizer.from_str(backend.to_str()).decode([1, 2, 1])
            'fishing fish'
        """
        rows = list(ids)
        for id in rows:
            # Each id is checked by itself, so that the message names it.
            self.token_of(id)
        numbers = [operator.index(id) for id in rows]
        with failing_as(f"{self._source}: the tokenizer failed on the ids"):
            return str(self._backend.decode(numbers, skip_special_tokens=skip_special))

    def portable(self, limit: int | None = None) -> dict[str, Any]:
        """All of it as values for JSON, which the page's JavaScript reads; `limit` is the model's, in tokens.

        Raises:
            InputError: It has a component that JavaScript does not; the message names it.
        """
        return portable(self._backend, self._source, rows=self._rows, limit=limit)

    @property
    def _unknown(self) -> int | None:
        """The id for what the vocabulary cannot spell, as the model itself names it, else as the files do."""
        # The model of the library knows best what it gives for unknown words.
        piece = getattr(getattr(self._backend, "model", None), "unk_token", None)
        return self._special_ids.unk if piece is None else self._backend.token_to_id(piece)

    @property
    def bulk(self) -> Bulk:
        """Many texts at once: see `regard.text.Bulk`."""
        return Bulk(
            self._backend, source=self._source, rows=self._rows, special=self._special, unknown=self._unknown
        )

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
            >>> from regard.text import Tokenizer
            >>> from tokenizers import Tokenizer as Backend, models, pre_tokenizers
            >>> backend = Backend(models.WordLevel({"?": 0, "river": 1, "bank": 2}, unk_token="?"))
            >>> backend.pre_tokenizer = pre_tokenizers.Whitespace()
            >>> tokenizer = Tokenizer.from_str(backend.to_str())
            >>> tokens = tokenizer.encode("river", "the bank").tokens
            >>> [(token.text, token.span, token.sequence) for token in tokens]
            [('river', (0, 5), 0), ('?', (0, 3), 1), ('bank', (4, 8), 1)]
        """
        texts: tuple[str, ...] = (checked("text", text),)
        if pair is not None:
            texts = (*texts, checked("pair", pair))
        row = encode(self._backend, self._source, text, pair, add_special_tokens=add_special_tokens)
        check_rows(self.piece_of, row.ids, self._rows)
        return assemble(texts, row, self._special, self.shown)
