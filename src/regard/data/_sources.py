"""Files, folders, patterns and stdin, opened as what they hold."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from regard.core.arguments import one_of
from regard.core.errors import InputError
from regard.data._csv_source import Csv, CsvSource
from regard.data._line_sources import JsonSource, TextSource
from regard.data._lines import Record
from regard.data._opening import FORMATS, Opened, files, look_into
from regard.data._parquet_source import ParquetSource


class Source(Protocol):
    """An opened input, whose rows can be read from the beginning as often as anybody likes."""

    opened: Opened
    unit: str

    def check(self, names: Sequence[str], hint: str = "") -> None:
        """Raise an `InputError` that ends with the hint where a column is not there."""

    def records(self, names: Sequence[str], also: Sequence[str] = ()) -> Iterator[Record]:
        """All rows: the values of the columns in `names`, and of those in `also`, which a row may lack."""
        ...


def open_sources(
    paths: Sequence[str | Path],
    *,
    format: str | None = None,
    csv: Csv | None = None,
    encoding: str = "utf-8",
    copies: Path | None = None,
) -> list[Source]:
    """Opens inputs, in the order given. It reads no more than their beginnings, but copies stdin and pipes.

    Plain text, JSON lines, CSV, TSV and Parquet; all but the last also compressed by gzip, zstd, bz2 or xz.
    In JSON lines and Parquet the name of a column may be a path to a field within a field (doc.body), unless
    a column has that very name.

    Args:
        paths: the files; "-" is stdin. A folder stands for its files, and a pattern such as "*.csv" for those
            that it fits, in the order of their names.
        format: one of `FORMATS`; None goes by the name of each file and by what it holds.
        csv: how CSV and TSV are written; None is `Csv()`.
        encoding: of text, JSON lines and CSV; one whose lines end in the byte 0x0A.
        copies: the folder for copies of stdin and pipes; None is the system's for temporary files.

    Raises:
        InputError: one cannot be read, or is not what its name says.
        MissingExtraError: pyarrow is needed and not installed.
    """
    if isinstance(paths, str | Path):
        paths = [paths]
    if not paths:
        raise InputError("no file is given; give at least one, or - for stdin.")
    if [str(path) for path in paths].count("-") > 1:
        raise InputError("- can stand for one input only: stdin is read once.")
    if format is not None:
        one_of("format", format, FORMATS)
    if not _has_lines(encoding):
        raise InputError(
            f"encoding must be one that Python knows and whose lines end in the byte 0x0A, such as cp1252; "
            f"got {encoding!r}."
        )
    return [
        _source(look_into(path, format=format, encoding=encoding, copies=copies), csv or Csv())
        for path in files(map(Path, paths), format)
    ]


def _source(opened: Opened, csv: Csv) -> Source:
    if opened.format == "parquet":
        return ParquetSource(opened)
    if opened.format in ("csv", "tsv"):
        return CsvSource(opened, csv)
    return JsonSource(opened) if opened.format == "jsonl" else TextSource(opened)


def _has_lines(encoding: str) -> bool:
    try:
        return b"a\n".decode(encoding) == "a\n"
    except (LookupError, UnicodeError):
        return False
