"""All inputs, as one sequence of rows that can be read from any shard on."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from regard.core.errors import InputError
from regard.embedding.job._columns import Carried, Columns
from regard.embedding.job._csv_source import CsvSource
from regard.embedding.job._line_sources import LineSource
from regard.embedding.job._opening import FORMATS, Opened, identity, look_into, unreadable
from regard.embedding.job._parquet_source import ParquetSource
from regard.embedding.job._rows import Block, Chunk, Position, blocks


class _Source(Protocol):
    opened: Opened
    fields: list[Carried]

    def chunks(self, source: int, offset: int, row: int, fields: list[Carried]) -> Iterator[Chunk]: ...


class Inputs:
    """Files of texts, and perhaps stdin, in the order given.

    Plain text (one text a line), JSON lines, CSV and TSV with a header, and Parquet; all but the last also
    compressed by gzip, zstd, bz2 or xz. Opening them reads no more than their beginnings.

    Args:
        paths: the files; "-" is stdin.
        columns: which columns are used.
        format: one of `FORMATS`; None goes by the name of each file and by what it holds.
        delimiter: between the fields of CSV.

    Raises:
        InputError: one cannot be read, is not what its name says, or lacks a column; or they do not fit.
        MissingExtraError: pyarrow is not installed.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "texts.csv")
        >>> _ = path.write_text("year,text\\n1999,A river bank.\\n2001,A bank loan.\\n")
        >>> inputs = Inputs([path], Columns(keep=("year",)))
        >>> [block.texts for block in inputs.blocks(shard_rows=8192, characters=1000)]
        [['A river bank.', 'A bank loan.']]
    """

    def __init__(
        self,
        paths: Sequence[Path],
        columns: Columns,
        *,
        format: str | None = None,
        delimiter: str | None = None,
    ) -> None:
        if not paths:
            raise InputError("IN must name at least one file; - is stdin.")
        if format is not None and format not in FORMATS:
            raise InputError(f"--format must be one of {', '.join(FORMATS)}; got {format!r}.")
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
            raise InputError(f"--delimiter must be one character, no quote or line end; got {delimiter!r}.")
        self.columns = columns
        self.sources: list[_Source] = []
        for path in paths:
            opened = look_into(path, format=format)
            if opened.path is None and any(each.opened.path is None for each in self.sources):
                raise InputError("IN can name one stream only, such as stdin.")
            self.sources.append(_source(opened, columns, delimiter))
        self.fields = self._shared_fields()
        self._identities = [_identity(each.opened) for each in self.sources]

    @property
    def stream(self) -> int | None:
        """The number of the source that can be read but once; None where there is none."""
        return next((n for n, each in enumerate(self.sources) if each.opened.path is None), None)

    def rows(self) -> int | None:
        """How many rows there are, where that is known without reading them: in Parquet files."""
        counts = [getattr(each, "rows", None) for each in self.sources]
        return None if None in counts else sum(counts)  # type: ignore[arg-type]

    def fingerprint(self) -> tuple[list[dict[str, Any]], int | None]:
        """What the inputs hold: for each its name, format, bytes and SHA-256, None of a stream; and the rows.

        It reads every file once, at more than a gigabyte a second; the rows are counted on the way where a
        line is a row, else None.
        """
        found, rows = [], 0
        for source in self.sources:
            opened = source.opened
            stated: dict[str, Any] = {
                "name": opened.label,
                "format": opened.format,
                "compressed": opened.packed,
            }
            if opened.path is None:
                found.append({**stated, "bytes": None, "sha256": None})
                rows = -1
                continue
            size, digest, lines = _digest(opened)
            found.append({**stated, "bytes": size, "sha256": digest})
            counted = getattr(source, "rows", None)
            if counted is None and opened.packed is None and opened.format in ("text", "jsonl"):
                counted = lines
            rows = -1 if counted is None or rows < 0 else rows + counted
        return found, None if rows < 0 else rows

    def blocks(
        self,
        *,
        shard_rows: int,
        characters: int,
        shard: int = 0,
        known: tuple[int, Position] | None = None,
    ) -> Iterator[Block]:
        """The rows in blocks.

        Args:
            shard_rows, characters: as `regard.embedding.job._rows.blocks` takes them.
            shard: the first one wanted.
            known: a shard at or before it, and where that one begins; None is the beginning of the input.

        Raises:
            InputError: an input cannot be read on, or is no longer what it was.
        """
        begin, position = known or (0, Position(0, 0, 0))
        for block in blocks(
            self._chunks(position),
            first=begin * shard_rows,
            shard_rows=shard_rows,
            characters=characters,
            has_id=self.columns.id is not None,
        ):
            if block.closes:
                self.check_unchanged()
            if block.shard >= shard:
                yield block

    def check_unchanged(self) -> None:
        """Refuse to go on with a file that somebody writes to.

        Raises:
            InputError: its size or its time of writing has changed since it was opened.
        """
        for source, before in zip(self.sources, self._identities, strict=True):
            if _identity(source.opened) != before:
                raise InputError(f"{source.opened.name} was changed while it was read.")

    def read_through(self, source: int) -> tuple[int, str]:
        """The bytes of a stream that nothing is wanted of, and their SHA-256."""
        opened = self.sources[source].opened
        digest, size = hashlib.sha256(), 0
        with opened.reading(0) as file:
            while data := file.read(1 << 20):
                size += len(data)
                digest.update(data)
        return size, digest.hexdigest()

    def _chunks(self, position: Position) -> Iterator[Chunk]:
        offset, row = position.offset, position.row
        for number in range(position.source, len(self.sources)):
            yield from self.sources[number].chunks(number, offset, row, self.fields)
            offset = row = 0

    def _shared_fields(self) -> list[Carried]:
        """The columns that are carried along, of the same type in every source."""
        first = self.sources[0]
        for other in self.sources[1:]:
            for here, there in zip(first.fields, other.fields, strict=True):
                # A value of JSON lines that does not fit is a row's affair, not the file's.
                if other.opened.format == "jsonl" and (here.as_json or str(here.type) in _OF_JSON):
                    continue
                if (here.type, here.as_json) != (there.type, there.as_json):
                    raise InputError(
                        f"column {here.name!r} must have one type: it is {here.stated} in "
                        f"{first.opened.name} and {there.stated} in {other.opened.name}."
                    )
        return first.fields


_OF_JSON = ("bool", "int64", "double", "string")


def _source(opened: Opened, columns: Columns, delimiter: str | None) -> _Source:
    if opened.format == "parquet":
        return ParquetSource(opened, columns)
    if opened.format in ("csv", "tsv"):
        return CsvSource(opened, columns, delimiter)
    return LineSource(opened, columns)


def _identity(opened: Opened) -> tuple[int, int] | None:
    try:
        return None if opened.path is None else identity(opened.path)
    except OSError as error:
        raise unreadable(opened.name, error) from error


def _digest(opened: Opened) -> tuple[int, str, int]:
    """The bytes of a file as it lies there, their SHA-256, and its lines."""
    assert opened.path is not None
    digest, size, lines, last = hashlib.sha256(), 0, 0, b"\n"
    try:
        with opened.path.open("rb") as file:
            while data := file.read(1 << 20):
                digest.update(data)
                size += len(data)
                lines += data.count(b"\n")
                last = data[-1:]
    except OSError as error:
        raise unreadable(opened.name, error) from error
    return size, digest.hexdigest(), lines + (last != b"\n")
