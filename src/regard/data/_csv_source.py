"""CSV and TSV, record by record."""

import csv
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from regard.core.errors import InputError
from regard.data._opening import Opened
from regard.data._records import BOM, LONGEST, Record, check_columns, lines, too_long, undecodable

# Beyond so many lines a record whose every line reads as one is taken for several.
_LINES = 20
_STRAY = "a quotation mark in the line is not closed, or not at the end of its field"


class CsvSource:
    """CSV, as RFC 4180 and spreadsheets write it; a field may hold line ends. Lines with nothing are no rows.

    A quotation mark that is never closed, or closed by another stray one, would swallow all records between.
    So of a record of several lines that cannot be read, or does not have the header's fields, only the first
    line is rejected, and reading goes on with the second. The same is done where such a record is good, but
    has more than 20 lines and each of them reads as a record of its own.
    """

    unit = "line"

    def __init__(self, opened: Opened) -> None:
        self.opened, self._form = opened, opened.files.csv
        form = self._form
        self._delimiter = form.delimiter or ("\t" if opened.format == "tsv" else ",")
        # The first record is read now, so that a wrong column is an error before work begins.
        first = self._read_first(opened)
        self._header = first if form.header else [str(place + 1) for place in range(len(first))]

    def check(self, names: Sequence[str], hint: str = "") -> None:
        """Refuse columns that the header does not name."""
        # One column whose name holds another sign: most likely that one parts the fields.
        other = next((each for each in ";\t|," if each in "".join(self._header[:1])), None)
        if len(self._header) == 1 and other is not None:
            hint = f"{hint} Or do fields end at {other!r}? Then give delimiter (--delimiter).".lstrip()
        elif self._form.header:
            hint = f"{hint} Or has it no header? Then give header=False (--no-header).".lstrip()
        check_columns(self.opened.name, self._header, names, hint)

    def _reader(self, lines: Iterable[str], *, strict: bool = True) -> Iterator[list[str]]:
        read = map(self._escaped, lines) if self._form.escape else lines
        return csv.reader(read, delimiter=self._delimiter, escapechar=self._form.escape, strict=strict)

    def _escaped(self, line: str) -> str:
        """The line as Python's csv reads it, which would leave out an escape that stands for itself."""
        sign, own = str(self._form.escape), re.escape(f'{self._form.escape}{self._delimiter}"\n')
        # An escaped line end may be of two characters.
        line = line.replace(f"{sign}\r\n", f"{sign}\n")
        return re.sub(rf"{re.escape(sign)}([{own}])?", lambda found: found[0] if found[1] else 2 * sign, line)

    def _read_first(self, opened: Opened) -> list[str]:
        head = opened.head.removeprefix(BOM).decode(opened.files.encoding, "surrogateescape")
        try:
            # Records of any length that is read at all.
            with _long_fields():
                rows = self._reader(f"{line}\n" for line in head.split("\n"))
                return next(row for row in rows if row)
        except (csv.Error, StopIteration) as error:
            raise InputError(
                f"{opened.name} should be CSV, and has no header that can be read "
                f"({_told(error) or 'it is blank'})."
            ) from error

    def records(
        self, names: Sequence[str], also: Sequence[str] = (), *, rest: bool = False
    ) -> Iterator[Record]:
        """All records but a header; an empty field is an empty text.

        Of the rest, a column without a name is called by its number, and one of several with the same name
        by both.
        """
        # Columns by number, looked up once.
        places = [self._header.index(name) for name in (*names, *also)]
        asked, others, bare = len(places), list[str](), [name.strip() for name in self._header]
        for number, name in enumerate(bare if rest else (), 1):
            if self._header[number - 1] not in (*names, *also):
                places.append(number - 1)
                others.append(f"{name}_{number}" if name and bare.count(name) > 1 else name or str(number))
        with self.opened.reading() as file:
            feed = _Feed(lines(file), self.opened.files.encoding)
            read = self._records(feed)
            # The header was checked when the file was opened.
            if self._form.header:
                next(read, None)
            # \N, as databases write a null beside an escape.
            null = self._form.escape and f"{self._form.escape}N"
            for record, reason in read:
                values: list[object] = [None] * len(places)
                if len(record) == len(self._header):
                    # What could not be decoded is no value.
                    texts = [record[n] for n in places]
                    values = [
                        None if each == null or ("\ufffd" in each and reason) else each for each in texts
                    ]
                rest_of = dict(zip(others, values[asked:], strict=True))
                yield Record(values[:asked], reason, feed.line, rest_of)

    def _records(self, feed: "_Feed") -> Iterator[tuple[list[str], str | None]]:
        """Each record, the header too, and why it is rejected."""
        reader = self._reader(feed)
        while True:
            # One record, of as many lines as csv takes.
            feed.begin()
            record: list[str] = []
            reason: str | None = None
            try:
                with _long_fields():
                    record = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                reason = f"the record is not valid CSV ({_told(error)})"
            # csv gives [] for a blank line.
            if not record and reason is None and feed.reason is None:
                continue  # a line with nothing in it
            if reason is None and len(record) != len(self._header):
                other = "header" if self._form.header else "first"
                reason = f"the record has {len(record)} fields, the {other} {len(self._header)}"
            # One stray quotation mark must cost one line, not the rest of the file.
            if len(feed.taken) > 1 and (reason is not None or self._swallows(feed)):
                feed.put_back()
                record, reason = [], _STRAY
            if reason is not None and self._form.escape is None and b'\\"' in feed.taken[0]:
                reason += r"; if \" stands for a quotation mark in it, give escape='\' (--escape)"
            yield record, feed.reason or reason

    def _swallows(self, feed: "_Feed") -> bool:
        """Whether a record of many lines is more likely many records between two stray quotation marks."""
        if len(feed.taken) <= _LINES or len(self._header) == 1:
            return False
        # Each line read by itself: do they look like records?
        lines = [line for line in map(feed.decoded, feed.taken[1:]) if line.strip()]
        with _long_fields():
            records = [next(self._reader([line], strict=False)) for line in lines]
        return len(records) >= _LINES and all(len(record) == len(self._header) for record in records)


def _told(error: Exception) -> str:
    """The message of Python's csv, but for carriage returns, where it speaks of opening files in Python."""
    if "new-line character" in str(error):
        return r"a carriage return is in a field without quotes; make it a line end with tr '\r' '\n'"
    return str(error)


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

    def put_back(self) -> None:
        """Has all lines of the record but the first read again."""
        # In front of what has not been read yet, in order.
        self._again.extendleft(reversed(self.taken[1:]))
        self._next = self.line + 1
        self.reason = None

    def decoded(self, line: bytes) -> str:
        return line.decode(self._encoding, "replace")

    def __iter__(self) -> "_Feed":
        return self

    def __next__(self) -> str:
        # Lines that were put back come first.
        line = self._again.popleft() if self._again else next(self._lines)
        self.taken.append(line)
        self._next += 1
        if len(line) > LONGEST:
            self.reason = too_long("a line")
            # csv needs something; the reason rejects the record.
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
