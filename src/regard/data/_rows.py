"""Rows of chosen columns, one after the other, each with its place."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from regard.core.arguments import one_of
from regard.core.errors import InputError
from regard.data._columns import TEXT
from regard.data._csv_source import Csv
from regard.data._line_sources import TextSource
from regard.data._lines import Record
from regard.data._paragraphs import paragraphs
from regard.data._sources import Source, open_sources
from regard.data._texts import no_text

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
