"""Marian: pieces by SentencePiece, ids by a table of their own."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tokenizers
from tokenizers import AddedToken

from regard.core.errors import CheckpointError
from regard.core.json import read_object
from regard.core.tokenizer_files import TARGET_TABLE
from regard.text._library import Row
from regard.text._sentencepiece import convert
from regard.text._settings import Settings
from regard.text._special import Roles, around, roles_of, template


class Renumbered:
    """A tokenizer whose pieces have other ids than its own: Marian's `source.spm` and `vocab.json`.

    A piece that the table lacks is unknown. Pieces that only the other language has are in the vocabulary,
    but a text is not cut into them.
    """

    def __init__(self, backend: tokenizers.Tokenizer, table: Mapping[str, int], unknown: str) -> None:
        self._backend = backend
        self._table = dict(table)
        self._pieces = {number: piece for piece, number in self._table.items()}
        self._unknown = self._table[unknown]

    @property
    def post_processor(self) -> object:
        return self._backend.post_processor

    def to_str(self) -> str:
        return json.dumps([self._backend.to_str(), self._table, self._unknown])

    def no_truncation(self) -> None:
        self._backend.no_truncation()

    def no_padding(self) -> None:
        self._backend.no_padding()

    def encode(self, *texts: Any, **how: bool) -> Row:
        return self._renumbered(self._backend.encode(*texts, **how))

    def encode_batch(self, texts: Sequence[Any], **how: bool) -> list[Row]:
        return [self._renumbered(row) for row in self._backend.encode_batch(texts, **how)]

    encode_batch_fast = encode_batch  # the pieces are read, so nothing can be left out

    def _renumbered(self, row: Any) -> Row:
        return SimpleNamespace(
            # By the piece: a character that the model does not know is one still if the table has it.
            ids=[self._table.get(piece, self._unknown) for piece in row.tokens],
            tokens=row.tokens,
            type_ids=row.type_ids,
            offsets=row.offsets,
            word_ids=row.word_ids,
            sequence_ids=row.sequence_ids,
            special_tokens_mask=row.special_tokens_mask,
        )

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        special = self.get_added_tokens_decoder() if skip_special_tokens else {}
        pieces = [self._pieces.get(number, "") for number in ids if number not in special]
        return str(self._backend.decoder.decode(pieces)) if pieces else ""

    def get_vocab(self, with_added_tokens: bool = True) -> dict[str, int]:
        return dict(self._table)

    def get_vocab_size(self, with_added_tokens: bool = True) -> int:
        return len(self._table)

    def get_added_tokens_decoder(self) -> dict[int, AddedToken]:
        added = self._backend.get_added_tokens_decoder().values()
        return {self._table[token.content]: token for token in added if token.content in self._table}

    def id_to_token(self, id: int) -> str | None:
        return self._pieces.get(id)

    def token_to_id(self, token: str) -> int | None:
        return self._table.get(token)


def build_marian(folder: Path, settings: Settings, *, target: bool) -> tuple[Renumbered, Roles]:
    """Marian's tokenizer of source texts, or of target texts: another model, perhaps another table."""
    path = folder / ("target.spm" if target else "source.spm")
    separate = target and settings.flag("separate_vocabs", False)
    table_path = folder / (TARGET_TABLE if separate else "vocab.json")
    for each in (path, table_path):
        if not each.is_file():
            raise CheckpointError(
                f"{each} is missing: a Marian tokenizer is of two .spm files and vocab.json"
            )
    table: dict[str, Any] = read_object(table_path)
    if sorted(table.values(), key=str) != sorted(set(table.values()), key=str) or not all(
        type(number) is int and number >= 0 for number in table.values()
    ):
        raise CheckpointError(f"{table_path} must give each piece an id of its own; fetch it again")
    roles = roles_of(settings, {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"})
    for role in ("unk", "eos"):
        if role not in roles or roles[role].content not in table:
            raise CheckpointError(f"{table_path} has no {role} token; fetch it again")
    unknown = roles["unk"].content
    backend = convert(path, settings, None, {"unk_token": unknown})
    codes = [piece for piece in table if piece.startswith(">>") and piece.endswith("<<")]
    special = [token for token in roles.values() if token.content in table]
    for token in special:
        token.special = True
    backend.add_tokens([*special, *(AddedToken(code, special=True, normalized=False) for code in codes)])
    eos = roles["eos"].content
    backend.post_processor = template(backend, *around([], [eos], apart=False), settings)
    return Renumbered(backend, table, unknown), roles
