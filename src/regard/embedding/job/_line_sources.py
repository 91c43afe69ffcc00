"""Plain text and JSON lines, row by row: one line is one row, so that row n is line n + 1."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from regard.core.errors import InputError
from regard.embedding.job._columns import Carried, Columns, infer
from regard.embedding.job._opening import Opened
from regard.embedding.job._rows import Chunk
from regard.embedding.job._texts import LONGEST, joined, problem

ROWS = 1024
"""Rows of a chunk."""

_SAMPLE = 1000

Parsed = tuple[str | None, str | None, list[object]]
"""A row: its text or None, why it is rejected or None, and the values that are carried along."""


class Lines:
    """Reads the lines of an input, counts its bytes, and of a stream takes their digest."""

    def __init__(self, file: IO[bytes], offset: int, *, stream: bool) -> None:
        self.offset = offset
        self._file = file
        self._digest = hashlib.sha256() if stream else None

    def next(self) -> bytes | None:
        """The next line with its end; None at the end of the input. Of one too long only the beginning."""
        line = self._file.readline(LONGEST + 1)
        self._count(line)
        if len(line) > LONGEST and not line.endswith(b"\n"):
            while True:
                more = self._file.readline(1 << 20)
                self._count(more)
                if not more or more.endswith(b"\n"):
                    break
        return line or None

    def digest(self) -> str | None:
        """Of a stream, the SHA-256 of what was read so far."""
        return None if self._digest is None else self._digest.hexdigest()

    def _count(self, data: bytes) -> None:
        self.offset += len(data)
        if self._digest is not None:
            self._digest.update(data)


class Gather:
    """Puts rows together to chunks."""

    def __init__(self, source: int, name: str, first: int, fields: list[Carried]) -> None:
        self._source, self._name, self._first, self._fields = source, name, first, fields
        self._clear()

    def _clear(self) -> None:
        self._texts: list[str | None] = []
        self._reasons: dict[int, str] = {}
        self._values: list[list[object]] = []
        self._ends: list[int] = []
        self._digests: list[str] = []

    def chunks(self, rows: Iterable[Parsed], lines: Lines) -> Iterator[Chunk]:
        """The rows, which are read from the lines while they are asked for."""
        for row in rows:
            self._add(row, lines.offset, lines.digest())
            if len(self._texts) == ROWS:
                yield self._take()
        if self._texts:
            yield self._take()

    def _add(self, row: Parsed, end: int, digest: str | None) -> None:
        text, reason, values = row
        if reason is None:
            bad = (field.problem(value) for field, value in zip(self._fields, values, strict=True))
            reason = next((each for each in bad if each is not None), None)
        if reason is not None:
            # Of a bad row only the id is used, where it is a good one.
            values = [
                None if field.problem(value) else value
                for field, value in zip(self._fields, values, strict=True)
            ]
            text = None
            self._reasons[len(self._texts)] = reason
        self._texts.append(text)
        self._values.append(values)
        self._ends.append(end)
        if digest is not None:
            self._digests.append(digest)

    def _take(self) -> Chunk:
        chunk = Chunk(
            source=self._source,
            name=self._name,
            first=self._first,
            texts=self._texts,
            reasons=self._reasons,
            columns=[
                field.arrow([values[place] for values in self._values])
                for place, field in enumerate(self._fields)
            ],
            ends=self._ends,
            digest=self._digests or None,
        )
        self._first += len(self._texts)
        self._clear()
        return chunk


class LineSource:
    """Plain text, or JSON lines.

    Args:
        opened: the input.
        columns: which columns are used.

    Raises:
        InputError: a column is missing.
    """

    def __init__(self, opened: Opened, columns: Columns) -> None:
        self.opened = opened
        self._columns = columns
        self._json = opened.format == "jsonl"
        if self._json:
            self.fields = _json_fields(opened, columns)
        else:
            named = columns.carried or columns.text
            if named:
                raise InputError(
                    f"{opened.name} is plain text, which has no columns, and so no {named[0]!r}; a row of it "
                    "is known by its number."
                )
            self.fields = []

    def chunks(self, source: int, offset: int, row: int, fields: list[Carried]) -> Iterator[Chunk]:
        """The rows from one on.

        Args:
            source: the number of this source, for the chunks.
            offset, row: bytes and rows before the first.
            fields: the columns that are carried along, with the types that all sources share.
        """
        with self.opened.reading(offset) as file:
            lines = Lines(file, offset, stream=self.opened.stream is not None)
            gather = Gather(source, self.opened.label, row, fields)
            yield from gather.chunks(self._rows(lines, len(fields)), lines)

    def _rows(self, lines: Lines, carried: int) -> Iterator[Parsed]:
        read: Callable[[bytes], Parsed] = self._object if self._json else self._line
        first = lines.offset == 0
        while (line := lines.next()) is not None:
            if first:
                line, first = line.removeprefix(b"\xef\xbb\xbf"), False
            if len(line) > LONGEST:
                yield None, f"the line is longer than {LONGEST:,} bytes", [None] * carried
            else:
                yield read(line)

    def _line(self, line: bytes) -> Parsed:
        try:
            text = line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            return None, _not_utf8(line, error), []
        reason = "the line holds a NUL" if "\0" in text else problem(text)
        return (text, None, []) if reason is None else (None, reason, [])

    def _object(self, line: bytes) -> Parsed:
        none: list[object] = [None] * len(self._columns.carried)
        if not line.strip():
            return None, "the line is empty", none
        try:
            found = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            return None, _not_utf8(line, error), none
        except json.JSONDecodeError as error:
            return None, f"the line is no JSON ({error.msg} at character {error.pos})", none
        except (ValueError, RecursionError) as error:
            return None, f"the line is no JSON ({error})", none
        if isinstance(found, str) and self._columns.text is None and not none:
            reason = problem(found)
            return (found, None, none) if reason is None else (None, reason, none)
        if not isinstance(found, dict):
            return None, "the line is JSON, but no object", none
        values = [found.get(name) for name in self._columns.carried]
        absent = next((name for name in self._columns.texts if name not in found), None)
        if absent is not None:
            return None, f"there is no column {absent!r}", values
        text, reason = joined([found[name] for name in self._columns.texts])
        if reason is None and self._columns.id is not None and values[0] is None:
            reason = f"the id is null or missing (column {self._columns.id!r})"
        return text if reason is None else None, reason, values


def _not_utf8(line: bytes, error: UnicodeDecodeError) -> str:
    return f"the line is not UTF-8: byte {error.start} is 0x{line[error.start]:02x}"


def _json_fields(opened: Opened, columns: Columns) -> list[Carried]:
    """The types of the columns of JSON lines, from the first rows; one that none of them has is missing."""
    objects: list[dict[str, Any]] = []
    lines = opened.head.removeprefix(b"\xef\xbb\xbf").split(b"\n", _SAMPLE)
    if not opened.whole and len(lines) <= _SAMPLE:
        del lines[-1]  # cut off
    texts = 0
    for line in lines[:_SAMPLE]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            objects.append(found)
        texts += isinstance(found, str)
    if objects or columns.carried or columns.text is not None:
        there = list(dict.fromkeys(name for each in objects for name in each))
        if objects or not texts:
            columns.check(there, opened.name)
        elif columns.carried or columns.text:
            columns.check([], opened.name)
    return [infer(name, (each.get(name) for each in objects)) for name in columns.carried]
