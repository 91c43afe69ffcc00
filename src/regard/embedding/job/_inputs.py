"""All inputs, as one sequence of rows, and the blocks of them that are embedded together."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.core.errors import InputError
from regard.data import Files, Opened, open_sources, unreadable
from regard.embedding.job._reading import Batch, Carried, Columns, fields, read

BLOCK_ROWS = 2048
"""The rows of a block: more are not embedded faster, and their vectors wait together to be written."""


@dataclass(frozen=True, eq=False)
class Block:
    """Rows that are embedded together: a part of one shard, which depends on the shard's rows alone.

    Args:
        shard: which shard, from 0.
        rows: all of its rows, the rejected ones too.
        closes: whether the shard ends with it.
    """

    shard: int
    rows: Batch
    closes: bool

    @cached_property
    def good(self) -> NDArray[np.int64]:
        """The places of the rows that were not rejected."""
        return np.array([place for place, text in enumerate(self.rows.texts) if text is not None], np.int64)

    @cached_property
    def texts(self) -> list[str]:
        """Those of the rows that were not rejected."""
        return [text for text in self.rows.texts if text is not None]

    def take(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[Any]]:
        """Pick rows by their places in `texts`: their numbers, and the columns that are carried along."""
        at = self.good[places]
        # From places among the good rows to rows of the block.
        return np.array(self.rows.numbers, np.int64)[at], [each.take(at) for each in self.rows.carried]

    def without(self, reasons: Mapping[int, str]) -> list[dict[str, Any]]:
        """The rows that get no vector, in order, as they stand in the quarantine file.

        They are those rejected, and those that the model refuses: for `reasons`, by their places in `texts`.
        """
        # Rejected while they were read, and while they were embedded.
        why = {place: reason for place, reason in enumerate(self.rows.reasons) if reason is not None}
        why |= {self.good[place]: reason for place, reason in reasons.items()}
        numbers, origins = self.rows.numbers, self.rows.origins
        return [_rejected(numbers[n], *origins[n], reason) for n, reason in sorted(why.items())]


def blocks(read: Iterable[Batch], *, shard_rows: int, characters: int) -> Iterator[Block]:
    """Cuts batches into blocks: at every shard's end, and before a block would hold too much text.

    A block holds so many characters (bytes of UTF-8) at most, if it holds more than one row. Where batches
    begin and end does not show in the blocks; the last one closes its shard.
    """
    held: list[Batch] = []
    count = weight = 0
    for batch in read:
        begin = 0
        for place, (number, text) in enumerate(zip(batch.numbers, batch.texts, strict=True)):
            more = 0 if text is None else _weight(text)
            # A new shard begins with this row.
            closes = count > 0 and number % shard_rows == 0
            # Cut before this row. A single long text is a block by itself.
            if closes or count == BLOCK_ROWS or (weight and weight + more > characters):
                yield _block([*held, batch.take(range(begin, place))], shard_rows, closes)
                held, begin, count, weight = [], place, 0, 0
            count += 1
            weight += more
        held.append(batch.take(range(begin, len(batch.texts))))
    if count:
        yield _block(held, shard_rows, True)


def _block(parts: list[Batch], shard_rows: int, closes: bool) -> Block:
    rows = Batch.joined(parts)
    return Block(rows.numbers[0] // shard_rows, rows, closes)


def _rejected(number: int, id: object, name: str, there: int, reason: str) -> dict[str, Any]:
    """A line of the quarantine file."""
    plain = id if id is None or isinstance(id, int | str) else str(id)
    return {"row": number, "id": plain, "input": name, "input_row": there, "reason": reason}


def _weight(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8"))


@dataclass(eq=False)
class Inputs(Files):
    """Files of texts, and perhaps stdin, in the order given.

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
        # Columns must mean the same in all files.
        self.fields = self._shared_fields()
        self._identities = [_identity(each.opened) for each in self._sources]

    def fingerprint(self) -> tuple[list[dict[str, Any]], int | None]:
        """What the inputs hold: for each its name, format, bytes and SHA-256; and the rows.

        It reads every file once, at more than a gigabyte a second; the rows are counted on the way where a
        line is a row, else None.
        """
        files: list[dict[str, Any]] = []
        rows: list[int | None] = []
        for source in self._sources:
            opened = source.opened
            # Read once over, which takes far less time than embedding.
            size, digest, lines = _digest(opened)
            files.append(
                {
                    "name": opened.label,
                    "format": opened.format,
                    "compressed": opened.packed,
                    "bytes": size,
                    "sha256": digest,
                }
            )
            # Where lines are rows, their number is known now.
            by_lines = opened.packed is None and opened.format in ("text", "jsonl") and self.unit == "line"
            rows.append(lines if by_lines else getattr(source, "rows", None))
        return files, None if None in rows else sum(filter(None, rows))

    def blocks(self, *, shard_rows: int, characters: int) -> Iterator[Block]:
        """All rows in blocks, which are cut as `blocks` says.

        Raises:
            InputError: an input cannot be read on, or is no longer what it was; or there are no rows.
        """
        block = None
        rows = read(self._sources, self.columns, self.fields)
        for block in blocks(rows, shard_rows=shard_rows, characters=characters):
            # Once a shard: a file that changes underneath gives vectors of nothing.
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
        by_source = [fields(source, self.columns) for source in self._sources]
        first = self._sources[0]
        for other, theirs in zip(self._sources[1:], by_source[1:], strict=True):
            for here, their in zip(by_source[0], theirs, strict=True):
                # A value of JSON lines that does not fit is a row's affair, not the file's.
                # Each of its values is checked anyway.
                if other.opened.format == "jsonl" and (here.as_json or str(here.type) in _OF_JSON):
                    continue
                if (here.type, here.as_json) != (their.type, their.as_json):
                    raise InputError(
                        f"column {here.name!r} must have one type: it is {here.stated} in "
                        f"{first.opened.name} and {their.stated} in {other.opened.name}."
                    )
        return by_source[0]


_OF_JSON = ("bool", "int64", "double", "string")
"""Types of columns that a value of JSON lines may fit or not."""


def _identity(opened: Opened) -> tuple[int, int] | None:
    """What changes with a file's content, at no cost: its size and when it was written."""
    if opened.path is None:
        return None
    try:
        status = opened.path.stat()
    except OSError as error:
        raise unreadable(opened.name, error) from error
    return status.st_size, status.st_mtime_ns


def _digest(opened: Opened) -> tuple[int, str, int]:
    """The size of a file in bytes, its SHA-256, and the number of its lines."""
    digest, size, lines, last = hashlib.sha256(), 0, 0, b"\n"
    with opened.reading(raw=True) as file:
        while data := file.read(1 << 20):
            digest.update(data)
            size += len(data)
            # A last line without an end counts too.
            lines += data.count(b"\n")
            last = data[-1:]
    return size, digest.hexdigest(), lines + (last != b"\n")
