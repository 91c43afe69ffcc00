"""Rows on their way from the sources to the model: chunks as they are read, blocks as they are embedded."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from regard.core.extras import pyarrow
from regard.embedding.job._chunks import Chunk

BLOCK_ROWS = 2048
"""Of a block: more are embedded no faster, and their vectors wait together to be written."""


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
