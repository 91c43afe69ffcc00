"""Rows on their way from the sources to the model: chunks as they are read, blocks as they are embedded."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from regard.core.extras import pyarrow

BLOCK_ROWS = 2048
"""Of a block: more are embedded no faster, and their vectors wait together to be written."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Chunk:
    """Some rows of one source, as they were read.

    Args:
        name: of the source.
        first: the number of the first row in its source.
        texts: one a row; None where the row is rejected.
        reasons: by place in `texts`, why a row is rejected.
        columns: an Arrow array for each column that is carried along, the id first where there is one.
    """

    name: str
    first: int
    texts: list[str | None]
    reasons: dict[int, str]
    columns: list[Any]


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
        """The rows that get no vector, in order: those that were rejected, and those that the model refuses.

        Args:
            reasons: why the model refuses a text, by its place.
            has_id: whether the first column is the id.
        """
        refused = [
            rejected_row(
                self.rows[place],
                *self.origins[place],
                self.columns[0][place].as_py() if has_id else None,
                reason,
            )
            for place, reason in reasons.items()
        ]
        return sorted([*self.rejected, *refused], key=lambda row: int(row["row"]))


def blocks(chunks: Iterable[Chunk], *, shard_rows: int, characters: int, has_id: bool) -> Iterator[Block]:
    """Cuts chunks into blocks: at every shard's end, and before a block would hold too much text.

    Where chunks begin and end does not show in the blocks.

    Args:
        chunks: all, in order.
        shard_rows: rows a shard.
        characters: bytes of UTF-8 that a block holds at most, if it holds more than one row.
        has_id: whether the first column is the id.

    Returns:
        The blocks; the last one closes its shard.
    """
    cutter = _Cutter(shard_rows, characters, has_id)
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
        yield replace(held, closes=True)


class _Cutter:
    def __init__(self, shard_rows: int, characters: int, has_id: bool) -> None:
        self._row = 0  # the number of the next row
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
            whole, taken = len(good) == stop - start, np.array(good, np.int64)
            pieces.append(
                [each.slice(start, stop - start) if whole else each.take(taken) for each in chunk.columns]
            )
        block = Block(
            shard=shard,
            rows=rows,
            origins=origins,
            texts=texts,
            columns=[pyarrow()[0].concat_arrays(same) for same in zip(*pieces, strict=True)],
            rejected=rejected,
            count=count,
            closes=closes,
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
