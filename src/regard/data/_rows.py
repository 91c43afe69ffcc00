"""Files opened as what they hold, and their rows: one after the other, or of several files side by side."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from regard.core.errors import InputError
from regard.data._csv_source import CsvSource
from regard.data._files import Files
from regard.data._opening import Opened, look_into, paths_of
from regard.data._parquet_source import ParquetSource
from regard.data._records import TEXT, JsonSource, Record, TextSource, no_text


class Source(Protocol):
    """An opened input, whose rows can be read from the beginning as often as anybody likes."""

    opened: Opened
    unit: str

    def check(self, names: Sequence[str], hint: str = "") -> None:
        """Raise an `InputError` that ends with the hint where a column is not there."""

    def records(
        self, names: Sequence[str], also: Sequence[str] = (), *, rest: bool = False
    ) -> Iterator[Record]:
        """All rows: the values of the columns in `names`, and of those in `also`, which a row may lack.

        With `rest` they have all other columns too.
        """
        ...


_KINDS: Mapping[str, Callable[[Opened], Source]] = {
    "text": TextSource,
    "jsonl": JsonSource,
    "parquet": ParquetSource,
}


def open_sources(files: Files) -> list[Source]:
    """Opens files, in the order given. It reads no more than their beginnings, but copies stdin and pipes.

    Raises:
        InputError: one cannot be read, is not what its name says, or has rows of its own beside a `unit`.
        MissingExtraError: pyarrow is needed and not installed.
    """
    # All are looked into before the first is read.
    opened = [look_into(path, files) for path in paths_of(files)]
    for file in opened:
        # Only plain text has no rows of its own.
        if files.unit != "line" and file.format != "text":
            raise InputError(
                f"unit must be 'line' except for plain text: {file.name} has rows of its own; "
                f"got {files.unit!r}."
            )
    return [_KINDS.get(each.format, CsvSource)(each) for each in opened]


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


@dataclass(eq=False)
class Rows(Files):
    """The rows of files, in the order given: read as they are asked for, and again for each `iter`.

    Args:
        paths: the files; "-" is stdin. A folder stands for its files, and a pattern such as "*.csv" for those
            that it fits, in the order of their names.
        columns: those that are read; plain text has the one column "text".
        format: "text", "jsonl", "csv", "tsv" or "parquet"; None goes by the name of each file and by what it
            holds.
        csv: how CSV and TSV are written.
        encoding: of text, JSON lines and CSV; one whose lines end in the byte 0x0A.
        unit: what is a row of plain text: a line; a paragraph, which ends at a blank line; or a whole file.
            Blank lines are rows, without text; there are no blank paragraphs. Only a whole file is all in
            memory.
        copies: the folder for copies of stdin and pipes; None is the system's for temporary files.

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

    columns: Sequence[str] = (TEXT,)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._sources = open_sources(self)
        for source in self._sources:
            source.check(self.columns)

    @property
    def name(self) -> str:
        """The inputs, as in messages."""
        first, *more = self._sources
        return first.opened.name + (f" and {len(more)} more" if more else "")

    def __iter__(self) -> Iterator[Row]:
        for source in self._sources:
            for record in source.records(self.columns):
                place = f"{source.unit} {record.line} of {source.opened.name}"
                if record.reason is not None:
                    raise InputError(f"{place}: {record.reason}.")
                values = dict(zip(self.columns, record.values, strict=True))
                # A whole file needs no number.
                yield Row(values, source.opened.name if self.unit == "file" else place)


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
        # Row by row beside each other, in constant memory.
        running = [iter(rows) for rows in self._sides.values()]
        for number in count():
            rows = [next(each, None) for each in running]
            present = [row for row in rows if row is not None]
            if not present:
                return
            # One side has ended: the texts do not belong together.
            if len(present) < len(rows):
                raise self._unequal(number, rows, running)
            values = {
                column: next(iter(row.values.values()))
                for column, row in zip(self.columns, present, strict=True)
            }
            yield Row(values, " and ".join(row.place for row in present))

    def _unequal(self, number: int, rows: list[Row | None], running: list[Iterator[Row]]) -> InputError:
        # The rest is counted, so that the message names both numbers.
        counts = [
            number + (row is not None) + sum(1 for _ in rest) for row, rest in zip(rows, running, strict=True)
        ]
        first = next(row for row in rows if row is not None)
        lengths = " and ".join(
            f"{rows.name} has {count:,}" for rows, count in zip(self._sides.values(), counts, strict=True)
        )
        return InputError(
            f"{' and '.join(self.columns)} must have as many rows: {lengths}; {first.place} has no partner."
        )
