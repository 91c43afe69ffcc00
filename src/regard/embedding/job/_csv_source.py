"""CSV and TSV with a header, record by record."""

import csv
from collections.abc import Iterator

from regard.core.errors import InputError
from regard.core.extras import pyarrow
from regard.embedding.job._columns import Carried, Columns
from regard.embedding.job._line_sources import Gather, Lines, Parsed
from regard.embedding.job._opening import Opened
from regard.embedding.job._rows import Chunk
from regard.embedding.job._texts import LONGEST, joined


class CsvSource:
    """CSV, as RFC 4180 and spreadsheets write it; a field may hold line ends. Lines with nothing are no rows.

    Args:
        opened: the input.
        columns: which columns are used; an empty field of them is an empty text.
        delimiter: between fields; None is a comma, for TSV a tab.

    Raises:
        InputError: there is no header, or a column is missing.
    """

    def __init__(self, opened: Opened, columns: Columns, delimiter: str | None) -> None:
        self.opened = opened
        self._columns = columns
        self._delimiter = delimiter or ("\t" if opened.format == "tsv" else ",")
        pa, _ = pyarrow()
        self.fields = [Carried(name, pa.string()) for name in columns.carried]
        self._header = self._read_header(opened)
        try:
            columns.check(self._header, opened.name)
        except InputError as error:
            other = next((each for each in ";\t|," if each in "".join(self._header[:1])), None)
            if len(self._header) == 1 and other is not None:
                raise InputError(f"{error} Or do fields end at {other!r}? Say so with --delimiter.") from None
            raise
        self._texts = [self._header.index(name) for name in columns.texts]
        self._carried = [self._header.index(name) for name in columns.carried]

    def _read_header(self, opened: Opened) -> list[str]:
        head = opened.head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
        try:
            with _long_fields():
                lines = (f"{line}\n" for line in head.split("\n"))
                rows = csv.reader(lines, delimiter=self._delimiter, strict=True)
                return next(row for row in rows if row)
        except (csv.Error, StopIteration) as error:
            raise InputError(
                f"{opened.name} should be CSV, and has no header that can be read ({error or 'it is blank'})."
            ) from error

    def chunks(self, source: int, offset: int, row: int, fields: list[Carried]) -> Iterator[Chunk]:
        """As of a `LineSource`; the header is no row."""
        with self.opened.reading(offset) as file:
            lines = Lines(file, offset, stream=self.opened.stream is not None)
            yield from Gather(source, self.opened.label, row, fields).chunks(self._rows(lines), lines)

    def _rows(self, lines: Lines) -> Iterator[Parsed]:
        feed = _Feed(lines)
        reader = csv.reader(feed, delimiter=self._delimiter, strict=True)
        header = lines.offset == 0
        while True:
            feed.begin()
            record: list[str] = []
            reason: str | None = None
            try:
                with _long_fields():
                    record = next(reader)
            except StopIteration:
                break
            except csv.Error as error:
                reason = f"the record is no CSV ({error})"
            reason = reason or feed.reason
            if reason is None and not record:
                continue
            if header:
                header = False
                continue
            yield self._parsed(record, reason)

    def _parsed(self, record: list[str], reason: str | None) -> Parsed:
        none: list[object] = [None] * len(self._carried)
        if reason is not None:
            return None, reason, none
        if len(record) != len(self._header):
            return None, f"the record has {len(record)} fields, the header {len(self._header)}", none
        values: list[object] = [record[place] for place in self._carried]
        text, reason = joined([record[place] for place in self._texts])
        if reason is None and self._columns.id is not None and values[0] == "":
            reason = f"the id is empty (column {self._columns.id!r})"
        return text if reason is None else None, reason, values


class _Feed:
    """Lines for csv.reader, which takes as many as a record has, and not one more."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._first = lines.offset == 0
        self.begin()

    def begin(self) -> None:
        """A new record begins."""
        self.reason: str | None = None

    def __iter__(self) -> "_Feed":
        return self

    def __next__(self) -> str:
        line = self._lines.next()
        if line is None:
            raise StopIteration
        if self._first:
            line, self._first = line.removeprefix(b"\xef\xbb\xbf"), False
        if len(line) > LONGEST:
            self.reason = f"a line is longer than {LONGEST:,} bytes"
            return "\n"
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = f"byte {error.start} of a line is 0x{line[error.start]:02x}"
            self.reason = f"the record is not UTF-8: {byte}"
            return line.decode("utf-8", "replace")


class _long_fields:
    """csv's limit of a field belongs to the whole process: it is put back."""

    def __enter__(self) -> None:
        self._before = csv.field_size_limit(LONGEST)

    def __exit__(self, *error: object) -> None:
        csv.field_size_limit(self._before)
