"""All inputs, as one sequence of rows that can be read from any shard on."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from regard.core.errors import InputError
from regard.embedding.job._columns import Carried, Columns
from regard.embedding.job._csv_source import CsvSource
from regard.embedding.job._line_sources import LineSource
from regard.embedding.job._opening import FORMATS, Opened, files, look_into, unreadable
from regard.embedding.job._parquet_source import ParquetSource
from regard.embedding.job._rows import Block, Chunk, blocks


class _Source(Protocol):
    opened: Opened
    fields: list[Carried]

    def chunks(self, fields: list[Carried]) -> Iterator[Chunk]: ...


class Inputs:
    """Files of texts, and perhaps stdin, in the order given.

    Plain text (one text a line), JSON lines, CSV and TSV with a header, and Parquet; all but the last also
    compressed by gzip, zstd, bz2 or xz. Opening them reads no more than their beginnings; but stdin and pipes
    are copied to a temporary file, so that all inputs can be read from their beginning again.

    Args:
        paths: the files; "-" is stdin. A folder stands for its files, and a pattern such as "*.csv" for those
            that it fits, in the order of their names.
        columns: which columns are used.
        format: one of `FORMATS`; None goes by the name of each file and by what it holds.
        delimiter: between the fields of CSV.
        encoding: of text, JSON lines and CSV; one whose lines end in the byte 0x0A.
        copies: the folder for copies of stdin and pipes; None is the system's for temporary files.

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
        encoding: str = "utf-8",
        copies: Path | None = None,
    ) -> None:
        if not paths:
            raise InputError("IN must name at least one file; - is stdin.")
        if [str(path) for path in paths].count("-") > 1:
            raise InputError("- can stand for one input only: stdin is read once.")
        if format is not None and format not in FORMATS:
            raise InputError(f"--format must be one of {', '.join(FORMATS)}; got {format!r}.")
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
            raise InputError(f"--delimiter must be one character, no quote or line end; got {delimiter!r}.")
        if not _has_lines(encoding):
            raise InputError(
                f"--encoding must be one that Python knows and whose lines end in the byte 0x0A, such as "
                f"cp1252; got {encoding!r}."
            )
        self.columns, self.delimiter, self.encoding = columns, delimiter, encoding
        self.sources: list[_Source] = []
        for path in files(paths, format):
            opened = look_into(path, format=format, encoding=encoding, copies=copies)
            self.sources.append(_source(opened, columns, delimiter))
        self.fields = self._shared_fields()
        self._identities = [_identity(each.opened) for each in self.sources]

    def fingerprint(self) -> tuple[list[dict[str, Any]], int | None]:
        """What the inputs hold: for each its name, format, bytes and SHA-256; and the rows.

        It reads every file once, at more than a gigabyte a second; the rows are counted on the way where a
        line is a row, else None.
        """
        found: list[dict[str, Any]] = []
        rows: list[int | None] = []
        for source in self.sources:
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
            by_lines = opened.packed is None and opened.format in ("text", "jsonl")
            rows.append(lines if by_lines else getattr(source, "rows", None))
        return found, None if None in rows else sum(filter(None, rows))

    def blocks(self, *, shard_rows: int, characters: int) -> Iterator[Block]:
        """All rows in blocks, which are cut as `regard.embedding.job._rows.blocks` says.

        Raises:
            InputError: an input cannot be read on, or is no longer what it was; or there are no rows.
        """
        block = None
        chunks = (chunk for source in self.sources for chunk in source.chunks(self.fields))
        has_id = self.columns.id is not None
        for block in blocks(chunks, shard_rows=shard_rows, characters=characters, has_id=has_id):
            if block.closes:
                self.check_unchanged()
            yield block
        if block is None:
            raise InputError("IN holds no rows; give a file with texts.")

    def check_unchanged(self) -> None:
        """Refuse to go on with a file that somebody writes to.

        Raises:
            InputError: its size or its time of writing has changed since it was opened.
        """
        for source, before in zip(self.sources, self._identities, strict=True):
            if _identity(source.opened) != before:
                raise InputError(f"{source.opened.name} was changed while it was read.")

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
    """What changes with a file's content, at no cost: its size and when it was written."""
    if opened.path is None:
        return None
    try:
        found = opened.path.stat()
    except OSError as error:
        raise unreadable(opened.name, error) from error
    return found.st_size, found.st_mtime_ns


def _digest(opened: Opened) -> tuple[int, str, int]:
    """The bytes of a file as it lies there, their SHA-256, and its lines."""
    digest, size, lines, last = hashlib.sha256(), 0, 0, b"\n"
    with opened.reading(raw=True) as file:
        while data := file.read(1 << 20):
            digest.update(data)
            size += len(data)
            lines += data.count(b"\n")
            last = data[-1:]
    return size, digest.hexdigest(), lines + (last != b"\n")


def _has_lines(encoding: str) -> bool:
    try:
        return b"a\n".decode(encoding) == "a\n"
    except (LookupError, UnicodeError):
        return False
