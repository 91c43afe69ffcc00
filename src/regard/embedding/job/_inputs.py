"""All inputs, as one sequence of rows, and the blocks of them that are embedded together."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from regard.core.errors import InputError
from regard.core.extras import pyarrow
from regard.data import Files, Opened, open_sources, unreadable
from regard.embedding.job._chunks import Carried, Chunk, Columns, chunks, fields

BLOCK_ROWS = 2048
"""The rows of a block: more are not embedded faster, and their vectors wait together to be written."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """Rows that are embedded together: a part of one shard, which depends on the shard's rows alone.

    Args:
        shard: which shard, from 0.
        rows: the numbers, through all sources, of the rows in `texts`.
        origins: of the same rows, the name of the source and the number in it, from 1.
        texts: of the rows that were not rejected.
        columns: an Arrow array for each column that is carried along, of the same rows.
        rejected: the others, as they stand in the quarantine file.
        count: how many rows were read, the rejected ones too.
        closes: whether the shard ends with it.
    """

    shard: int
    rows: list[int]
    origins: list[tuple[str, int]]
    texts: list[str]
    columns: list[Any]
    rejected: list[dict[str, Any]]
    count: int
    closes: bool

    def without(self, reasons: Mapping[int, str], *, has_id: bool) -> list[dict[str, Any]]:
        """The rows that get no vector, in order: those rejected, and those that the model refuses."""
        refused = [
            _rejected(
                self.rows[place],
                self.origins[place],
                self.columns[0][place].as_py() if has_id else None,
                reason,
            )
            for place, reason in reasons.items()
        ]
        return sorted([*self.rejected, *refused], key=lambda row: int(row["row"]))


def blocks(chunks: Iterable[Chunk], *, shard_rows: int, characters: int, has_id: bool) -> Iterator[Block]:
    """Cuts chunks into blocks: at every shard's end, and before a block would hold too much text.

    A block holds so many characters (bytes of UTF-8) at most, if it holds more than one row. Where chunks
    begin and end does not show in the blocks; the last one closes its shard.
    """
    held: list[tuple[Chunk, int]] = []
    first = weight = 0
    for chunk in chunks:
        for place, text in enumerate(chunk.texts):
            more = 0 if text is None else _weight(text)
            closes = bool(held) and (first + len(held)) % shard_rows == 0
            if closes or len(held) == BLOCK_ROWS or (weight and weight + more > characters):
                yield _block(held, first, first // shard_rows, closes, has_id)
                first += len(held)
                held, weight = [], 0
            held.append((chunk, place))
            weight += more
    if held:
        yield _block(held, first, first // shard_rows, True, has_id)


def _block(held: list[tuple[Chunk, int]], first: int, shard: int, closes: bool, has_id: bool) -> Block:
    rows: list[int] = []
    origins: list[tuple[str, int]] = []
    texts: list[str] = []
    rejected: list[dict[str, Any]] = []
    for number, (chunk, place) in enumerate(held, first):
        text, origin = chunk.texts[place], (chunk.name, chunk.first + place + 1)
        if text is not None:
            rows.append(number)
            origins.append(origin)
            texts.append(text)
        else:
            id = chunk.columns[0][place].as_py() if has_id else None
            rejected.append(_rejected(number, origin, id, chunk.reasons[place]))
    pieces = []
    if held[0][0].columns:
        # Arrow takes many rows of a chunk in one call: row by row that would be slow.
        for chunk, same in groupby(held, key=itemgetter(0)):
            good = np.array([place for _, place in same if chunk.texts[place] is not None], np.int64)
            pieces.append([column.take(good) for column in chunk.columns])
    return Block(
        shard=shard,
        rows=rows,
        origins=origins,
        texts=texts,
        columns=[pyarrow()[0].concat_arrays(same) for same in zip(*pieces, strict=True)],
        rejected=rejected,
        count=len(held),
        closes=closes,
    )


def _rejected(number: int, origin: tuple[str, int], id: object, reason: str) -> dict[str, Any]:
    """A line of the quarantine file."""
    plain = id if id is None or isinstance(id, int | str) else str(id)
    return {"row": number, "id": plain, "input": origin[0], "input_row": origin[1], "reason": reason}


def _weight(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8"))


@dataclass(eq=False)
class Inputs(Files):
    """Files of texts, and perhaps stdin, in the order given. Plain text is one text a line.

    Args:
        paths, format, csv, encoding, unit, copies: as of `regard.data.Rows`.
        columns: which columns are used.

    Raises:
        InputError: one cannot be read, is not what its name says, or lacks a column; or they do not fit.
        MissingExtraError: pyarrow is not installed.

    Example:
        >>> from pathlib import Path
        >>> from regard.embedding.job import Columns, Inputs
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "texts.csv")
        >>> _ = path.write_text("year,text\\n1999,A river bank.\\n2001,A bank loan.\\n")
        >>> inputs = Inputs([path], Columns(keep=("year",)))
        >>> [block.texts for block in inputs.blocks(shard_rows=8192, characters=1000)]
        [['A river bank.', 'A bank loan.']]
    """

    columns: Columns

    def __post_init__(self) -> None:
        super().__post_init__()
        self._sources = open_sources(self)
        self.fields = self._shared_fields()
        self._identities = [_identity(each.opened) for each in self._sources]

    def fingerprint(self) -> tuple[list[dict[str, Any]], int | None]:
        """What the inputs hold: for each its name, format, bytes and SHA-256; and the rows.

        It reads every file once, at more than a gigabyte a second; the rows are counted on the way where a
        line is a row, else None.
        """
        found: list[dict[str, Any]] = []
        rows: list[int | None] = []
        for source in self._sources:
            opened = source.opened
            size, digest, lines = _digest(opened)
            found.append(
                {
                    "name": opened.label,
                    "format": opened.format,
                    "compressed": opened.packed,
                    "bytes": size,
                    "sha256": digest,
                }
            )
            by_lines = opened.packed is None and opened.format in ("text", "jsonl") and self.unit == "line"
            rows.append(lines if by_lines else getattr(source, "rows", None))
        return found, None if None in rows else sum(filter(None, rows))

    def blocks(self, *, shard_rows: int, characters: int) -> Iterator[Block]:
        """All rows in blocks, which are cut as `blocks` says.

        Raises:
            InputError: an input cannot be read on, or is no longer what it was; or there are no rows.
        """
        block = None
        read = (chunk for each in self._sources for chunk in chunks(each, self.columns, self.fields))
        has_id = self.columns.id is not None
        for block in blocks(read, shard_rows=shard_rows, characters=characters, has_id=has_id):
            if block.closes:
                self.check_unchanged()
            yield block
        if block is None:
            raise InputError("IN holds no rows; give a file with texts.")

    def check_unchanged(self) -> None:
        """Refuse to go on with a file whose size or time of writing has changed since it was opened."""
        for source, before in zip(self._sources, self._identities, strict=True):
            if _identity(source.opened) != before:
                raise InputError(f"{source.opened.name} was changed while it was read.")

    def _shared_fields(self) -> list[Carried]:
        """The columns that are carried along, of the same type in every source."""
        found = [fields(source, self.columns) for source in self._sources]
        first = self._sources[0]
        for other, theirs in zip(self._sources[1:], found[1:], strict=True):
            for here, there in zip(found[0], theirs, strict=True):
                # A value of JSON lines that does not fit is a row's affair, not the file's.
                if other.opened.format == "jsonl" and (here.as_json or str(here.type) in _OF_JSON):
                    continue
                if (here.type, here.as_json) != (there.type, there.as_json):
                    raise InputError(
                        f"column {here.name!r} must have one type: it is {here.stated} in "
                        f"{first.opened.name} and {there.stated} in {other.opened.name}."
                    )
        return found[0]


_OF_JSON = ("bool", "int64", "double", "string")
"""Types of columns that a value of JSON lines may fit or not."""


def _identity(opened: Opened) -> tuple[int, int] | None:
    """What changes with a file's content, at no cost: its size and when it was written."""
    if opened.path is None:
        return None
    try:
        found = opened.path.stat()
    except OSError as error:
        raise unreadable(opened.name, error) from error
    return found.st_size, found.st_mtime_ns


def _digest(opened: Opened) -> tuple[int, str, int]:
    """The size of a file in bytes, its SHA-256, and the number of its lines."""
    digest, size, lines, last = hashlib.sha256(), 0, 0, b"\n"
    with opened.reading(raw=True) as file:
        while data := file.read(1 << 20):
            digest.update(data)
            size += len(data)
            lines += data.count(b"\n")
            last = data[-1:]
    return size, digest.hexdigest(), lines + (last != b"\n")
