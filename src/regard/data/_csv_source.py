"""CSV and TSV with a header, record by record."""

import csv
from collections import deque
from collections.abc import Iterator, Sequence

from regard.core.errors import InputError
from regard.data._columns import check_columns
from regard.data._lines import BOM, LONGEST, Record, lines, too_long, undecodable
from regard.data._opening import Opened

# Beyond so many lines a record whose every line reads as one is taken for several.
_LINES = 20
_STRAY = "a quotation mark in the line is not closed, or not at the end of its field"


class CsvSource:
    """CSV, as RFC 4180 and spreadsheets write it; a field may hold line ends. Lines with nothing are no rows.

    A quotation mark that is never closed, or closed by another stray one, would swallow all records between.
    So of a record of several lines that cannot be read, or does not have the header's fields, only the first
    line is rejected, and reading goes on with the second. The same is done where such a record is good, but
    has more than 20 lines and each of them reads as a record of its own.

    Args:
        opened: the input.
        delimiter: between fields; None is a comma, for TSV a tab.
    """

    unit = "line"

    def __init__(self, opened: Opened, delimiter: str | None) -> None:
        self.opened = opened
        self._delimiter = delimiter or ("\t" if opened.format == "tsv" else ",")
        self._header = self._read_header(opened)

    def check(self, names: Sequence[str], hint: str = "") -> None:
        """Refuse columns that the header does not name.

        Raises:
            InputError: it has no such column.
        """
        other = next((each for each in ";\t|," if each in "".join(self._header[:1])), None)
        if len(self._header) == 1 and other is not None:
            hint = f"{hint} Or do fields end at {other!r}? Say so with --delimiter.".lstrip()
        check_columns(self.opened.name, self._header, names, hint)

    def _read_header(self, opened: Opened) -> list[str]:
        head = opened.head.removeprefix(BOM).decode(opened.encoding, "surrogateescape")
        try:
            with _long_fields():
                rows = csv.reader(
                    (f"{line}\n" for line in head.split("\n")), delimiter=self._delimiter, strict=True
                )
                return next(row for row in rows if row)
        except (csv.Error, StopIteration) as error:
            raise InputError(
                f"{opened.name} should be CSV, and has no header that can be read ({error or 'it is blank'})."
            ) from error

    def records(self, names: Sequence[str], also: Sequence[str] = ()) -> Iterator[Record]:
        """All records but the header; an empty field is an empty text."""
        places = [self._header.index(name) for name in (*names, *also)]
        with self.opened.reading() as file:
            feed = _Feed(lines(file), self.opened.encoding)
            found = self._records(feed)
            next(found, None)
            for record, reason in found:
                values: list[object] = [None] * len(places)
                if len(record) == len(self._header):
                    # What could not be decoded is no value.
                    values = [None if "\ufffd" in record[n] and reason else record[n] for n in places]
                yield Record(values, reason, feed.line)

    def _records(self, feed: "_Feed") -> Iterator[tuple[list[str], str | None]]:
        """Each record, the header too, and why it is rejected."""
        reader = csv.reader(feed, delimiter=self._delimiter, strict=True)
        while True:
            feed.begin()
            record: list[str] = []
            reason: str | None = None
            try:
                with _long_fields():
                    record = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                reason = f"the record is not valid CSV ({error})"
            if not record and reason is None and feed.reason is None:
                continue
            if reason is None and len(record) != len(self._header):
                reason = f"the record has {len(record)} fields, the header {len(self._header)}"
            if len(feed.taken) > 1 and (reason is not None or self._swallows(feed)):
                feed.give_back()
                record, reason = [], _STRAY
            yield record, feed.reason or reason

    def _swallows(self, feed: "_Feed") -> bool:
        """Whether a record of many lines is rather as many records, between two stray quotation marks."""
        if len(feed.taken) <= _LINES or len(self._header) == 1:
            return False
        lines = [line for line in map(feed.decoded, feed.taken[1:]) if line.strip()]
        with _long_fields():
            records = [next(csv.reader([line], delimiter=self._delimiter)) for line in lines]
        return len(records) >= _LINES and all(len(record) == len(self._header) for record in records)


class _Feed:
    """Lines for csv.reader, which takes as many as a record has, and not one more."""

    def __init__(self, lines: Iterator[bytes], encoding: str) -> None:
        self._lines, self._encoding = lines, encoding
        self._again: deque[bytes] = deque()
        self._next = 1
        self.begin()

    def begin(self) -> None:
        """A new record begins."""
        self.line = self._next
        self.taken: list[bytes] = []
        self.reason: str | None = None

    def give_back(self) -> None:
        """Has all lines of the record but the first read again."""
        self._again.extendleft(reversed(self.taken[1:]))
        self._next = self.line + 1
        self.reason = None

    def decoded(self, line: bytes) -> str:
        return line.decode(self._encoding, "replace")

    def __iter__(self) -> "_Feed":
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._lines)
        self.taken.append(line)
        self._next += 1
        if len(line) > LONGEST:
            self.reason = too_long("a line")
            return "\n"
        try:
            return line.decode(self._encoding)
        except UnicodeDecodeError as error:
            self.reason = undecodable("a line", self._encoding, line, error)
            return self.decoded(line)


class _long_fields:
    """csv's limit of a field belongs to the whole process: it is put back."""

    def __enter__(self) -> None:
        self._before = csv.field_size_limit(LONGEST)

    def __exit__(self, *error: object) -> None:
        csv.field_size_limit(self._before)
