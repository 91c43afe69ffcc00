"""Files opened as what they hold, and their rows: one after the other, or of several files side by side."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from regard.core.arguments import one_of
from regard.core.errors import InputError
from regard.data._csv_source import Csv, CsvSource
from regard.data._opening import FORMATS, Opened, files, look_into
from regard.data._parquet_source import ParquetSource
from regard.data._records import TEXT, JsonSource, Record, TextSource, no_text, paragraphs


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


Unit = Literal["line", "paragraph", "file"]
"""What is a row of plain text."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of an input.

    Args:
        values: by column.
        place: where it stands, as in "line 7 of train.jsonl".
    """

    values: dict[str, Any]
    place: str

    def text(self, column: str = TEXT) -> str:
        """The text in a column, which may be empty.

        Raises:
            InputError: it holds something else; the message says where.
        """
        value = self.values[column]
        reason = no_text(f"column {column!r}", value)
        if reason is not None:
            raise InputError(f"{self.place}: {reason}.")
        return str(value)


class Rows:
    """The rows of files, in the order given: read as they are asked for, and again for each `iter`.

    Args:
        paths, format, csv, encoding, copies: as of `open_sources`.
        columns: those that are read; plain text has the one column "text".
        unit: what is a row of plain text: a line; a paragraph, which ends at a blank line; or a whole file.
            Blank lines are rows, without text; there are no blank paragraphs. Only a whole file is all in
            memory.

    Raises:
        InputError: an input cannot be read or lacks a column; while they are read, a row is broken (not
            UTF-8, not JSON, not as long as the header). The message says where.

    Example:
        >>> from pathlib import Path
        >>> from regard.data import Rows
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "texts.csv")
        >>> _ = path.write_text("year,text\\n1999,A river bank.\\n2001,A bank loan.\\n")
        >>> for row in Rows([path], ("text", "year")):
        ...     print(row.values, row.place.replace(str(path.parent), "..."))
        {'text': 'A river bank.', 'year': '1999'} line 2 of .../texts.csv
        {'text': 'A bank loan.', 'year': '2001'} line 3 of .../texts.csv
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        columns: Sequence[str] = (TEXT,),
        *,
        unit: Unit = "line",
        format: str | None = None,
        csv: Csv | None = None,
        encoding: str = "utf-8",
        copies: Path | None = None,
    ) -> None:
        one_of("unit", unit, get_args(Unit))
        self.columns = tuple(columns)
        self._unit = unit
        self._sources = open_sources(paths, format=format, csv=csv, encoding=encoding, copies=copies)
        for source in self._sources:
            source.check(self.columns)
            if unit != "line" and not isinstance(source, TextSource):
                raise InputError(
                    f"unit must be 'line' except for plain text: {source.opened.name} has rows of its own; "
                    f"got {unit!r}."
                )

    @property
    def name(self) -> str:
        """The inputs, as in messages."""
        first, *more = self._sources
        return first.opened.name + (f" and {len(more)} more" if more else "")

    def __iter__(self) -> Iterator[Row]:
        for source in self._sources:
            if isinstance(source, TextSource) and self._unit == "file":
                yield Row({TEXT: source.whole()}, source.opened.name)
            else:
                yield from self._rows(source)

    def _rows(self, source: Source) -> Iterator[Row]:
        records = source.records(self.columns)
        for record in paragraphs(records) if self._unit == "paragraph" else records:
            place = f"{source.unit} {record.line} of {source.opened.name}"
            yield Row(dict(zip(self.columns, _sound(record, place), strict=True)), place)


def _sound(record: Record, place: str) -> list[object]:
    if record.reason is not None:
        raise InputError(f"{place}: {record.reason}.")
    return record.values


class ParallelRows:
    """Rows of several inputs side by side, such as texts and their translations.

    Args:
        sides: by name, inputs of one column. The name becomes the column of its texts.

    Raises:
        InputError: there is no side, or one of several columns; while they are read, one ends before another:
            then the message has the line and both counts.

    Example:
        >>> from regard.data import ParallelRows, Rows
        >>> import tempfile, pathlib
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.en").write_text("a bank\\na river\\n")
        >>> _ = (folder / "a.de").write_text("eine Bank\\nein Fluss\\n")
        >>> rows = ParallelRows({"source": Rows([folder / "a.en"]), "target": Rows([folder / "a.de"])})
        >>> [row.values for row in rows][1]
        {'source': 'a river', 'target': 'ein Fluss'}
    """

    def __init__(self, sides: Mapping[str, Rows]) -> None:
        wide = next((name for name, rows in sides.items() if len(rows.columns) != 1), None)
        if not sides or wide is not None:
            raise InputError(f"sides must each have one column; got {wide if sides else 'no side'!r}.")
        self.columns = tuple(sides)
        self._sides = dict(sides)

    def __iter__(self) -> Iterator[Row]:
        running = [iter(rows) for rows in self._sides.values()]
        for number in count():
            rows = [next(each, None) for each in running]
            there = [row for row in rows if row is not None]
            if not there:
                return
            if len(there) < len(rows):
                raise self._unequal(number, rows, running)
            values = {
                column: next(iter(row.values.values()))
                for column, row in zip(self.columns, there, strict=True)
            }
            yield Row(values, " and ".join(row.place for row in there))

    def _unequal(self, number: int, rows: list[Row | None], running: list[Iterator[Row]]) -> InputError:
        counts = [
            number + (row is not None) + sum(1 for _ in rest) for row, rest in zip(rows, running, strict=True)
        ]
        first = next(row for row in rows if row is not None)
        told = " and ".join(
            f"{rows.name} has {found:,}" for rows, found in zip(self._sides.values(), counts, strict=True)
        )
        return InputError(
            f"{' and '.join(self.columns)} must have as many rows: {told}; {first.place} has no partner."
        )
