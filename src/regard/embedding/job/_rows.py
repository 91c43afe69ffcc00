"""Rows on their way from the sources to the model: chunks as they are read, blocks as they are embedded."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from regard.core.extras import pyarrow


class Position(NamedTuple):
    """A place between two rows of the input.

    Args:
        source: which of the sources, from 0.
        offset: bytes of the unpacked text before it, or rows of a Parquet file.
        row: rows of this source before it.
    """

    source: int
    offset: int
    row: int


START = Position(0, 0, 0)

BLOCK_ROWS = 2048
"""Of a block: more are embedded no faster, and their vectors wait together to be written."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Chunk:
    """Some rows of one source, as they were read.

    Args:
        source: which of the sources.
        name: what it is called.
        first: the number of the first row in its source.
        texts: one a row; None where the row is rejected.
        reasons: by place in `texts`, why a row is rejected.
        columns: an Arrow array for each column that is carried along, the id first where there is one.
        ends: the source's offset after each row.
        digest: of a stream, the SHA-256 of all that was read up to each row's end; else None.
    """

    source: int
    name: str
    first: int
    texts: list[str | None]
    reasons: dict[int, str]
    columns: list[Any]
    ends: Sequence[int]
    digest: list[str] | None = None


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
        ends: whether the input ends with it.
        next: where the row after it begins.
        digest: of a stream, the SHA-256 of all that was read up to here; else None.
    """

    shard: int
    rows: list[int]
    origins: list[tuple[str, int]]
    texts: list[str]
    columns: list[Any]
    rejected: list[dict[str, Any]]
    count: int
    closes: bool
    ends: bool
    next: Position
    digest: str | None


def blocks(
    chunks: Iterable[Chunk], *, first: int, shard_rows: int, characters: int, has_id: bool
) -> Iterator[Block]:
    """Cuts chunks into blocks: at every shard's end, and before a block would hold too much text.

    Where chunks begin and end does not show in the blocks.

    Args:
        chunks: in order, from the beginning of a shard.
        first: the number of the first row.
        shard_rows: rows a shard.
        characters: bytes of UTF-8 that a block holds at most, if it holds more than one row.
        has_id: whether the first column is the id.

    Returns:
        The blocks; the last one is marked as the end of the input.
    """
    cutter = _Cutter(first, shard_rows, characters, has_id)
    held: Block | None = None
    for chunk in chunks:
        for block in cutter.cut(chunk):
            if held is not None:
                yield held
            held = block
    rest = cutter.rest()
    if rest is not None:
        if held is not None:
            yield held
        held = rest
    if held is not None:
        yield replace(held, closes=True, ends=True)


class _Cutter:
    def __init__(self, row: int, shard_rows: int, characters: int, has_id: bool) -> None:
        self._row = row  # the number of the next row
        self._shard_rows, self._characters, self._has_id = shard_rows, characters, has_id
        self._parts: list[tuple[Chunk, int, int]] = []
        self._weight = self._count = 0

    def _is_full(self, weight: int) -> bool:
        return self._count == BLOCK_ROWS or (self._weight > 0 and self._weight + weight > self._characters)

    def cut(self, chunk: Chunk) -> Iterator[Block]:
        start = 0
        for place, text in enumerate(chunk.texts):
            weight = 0 if text is None else _weight(text)
            if self._is_full(weight):
                self._add(chunk, start, place)
                start = place
                yield self._block(closes=False)
            self._weight += weight
            self._count += 1
            self._row += 1
            if self._row % self._shard_rows == 0:
                self._add(chunk, start, place + 1)
                start = place + 1
                yield self._block(closes=True)
        self._add(chunk, start, len(chunk.texts))

    def rest(self) -> Block | None:
        return self._block(closes=True) if self._parts else None

    def _add(self, chunk: Chunk, start: int, stop: int) -> None:
        if stop > start:
            self._parts.append((chunk, start, stop))

    def _block(self, *, closes: bool) -> Block:
        pa, _ = pyarrow()
        count = sum(stop - start for _, start, stop in self._parts)
        number = self._row - count
        # A cut before a row comes when the row itself is not yet counted; one at a shard's end, when it is.
        shard = number // self._shard_rows
        rows: list[int] = []
        origins: list[tuple[str, int]] = []
        texts: list[str] = []
        rejected: list[dict[str, Any]] = []
        pieces: list[list[Any]] = []
        for chunk, start, stop in self._parts:
            good = []
            for place in range(start, stop):
                text = chunk.texts[place]
                if text is None:
                    rejected.append(self._rejected(chunk, place, number))
                else:
                    good.append(place)
                    rows.append(number)
                    origins.append((chunk.name, chunk.first + place + 1))
                    texts.append(text)
                number += 1
            whole = len(good) == stop - start
            taken = pa.array(good, pa.int64())
            pieces.append(
                [each.slice(start, stop - start) if whole else each.take(taken) for each in chunk.columns]
            )
        chunk, _, stop = self._parts[-1]
        block = Block(
            shard=shard,
            rows=rows,
            origins=origins,
            texts=texts,
            columns=[pa.concat_arrays(same) for same in zip(*pieces, strict=True)],
            rejected=rejected,
            count=count,
            closes=closes,
            ends=False,
            next=Position(chunk.source, chunk.ends[stop - 1], chunk.first + stop),
            digest=None if chunk.digest is None else chunk.digest[stop - 1],
        )
        self._parts, self._weight, self._count = [], 0, 0
        return block

    def _rejected(self, chunk: Chunk, place: int, number: int) -> dict[str, Any]:
        found = chunk.columns[0][place].as_py() if self._has_id else None
        return rejected_row(number, chunk.name, chunk.first + place + 1, found, chunk.reasons[place])


def rejected_row(number: int, source: str, in_source: int, id: object, reason: str) -> dict[str, Any]:
    """A line of the quarantine file."""
    plain = id if id is None or isinstance(id, int | str) else str(id)
    return {"row": number, "id": plain, "input": source, "input_row": in_source, "reason": reason}


def _weight(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8"))
