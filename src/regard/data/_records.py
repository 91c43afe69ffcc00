"""What sources of all formats share (records, columns, what is text), and sources of lines: text and JSON."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import IO, Any, NamedTuple

from regard.core.errors import InputError
from regard.data._opening import Opened

TEXT = "text"
"""What the column of texts is called where nobody says, and the one of plain text."""

_LISTED = 30


def path_to(name: str, record: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The keys that lead to a column: its name, or where no column has it, the parts of a dotted path."""
    if name in record:
        return (name,)
    # From the longest name to the shortest: "a.b" before "a".
    for end in (place for place in range(len(name) - 1, 0, -1) if name[place] == "."):
        inner = record.get(name[:end])
        if isinstance(inner, Mapping) and (rest := path_to(name[end + 1 :], inner)):
            return (name[:end], *rest)
    return None


def value_at(name: str, record: Mapping[str, Any]) -> Any:
    """The value of a column in a row; None where it has none."""
    # None all along where there is no such column.
    value: Any = record if (path := path_to(name, record)) else None
    for key in path or ():
        value = value[key]
    return value


def names_in(record: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The columns of a row, and those inside of them by their paths."""
    for name, value in record.items():
        yield above + name
        if isinstance(value, Mapping):
            yield from names_in(value, f"{above}{name}.")


def leaves(record: Mapping[str, Any], asked: Sequence[str], above: str = "") -> Iterator[tuple[str, Any]]:
    """The columns of a row that are not asked for, by their paths, each with what it holds."""
    for name, value in record.items():
        if above + name in asked:
            continue
        if isinstance(value, Mapping):
            yield from leaves(value, asked, f"{above}{name}.")
        else:
            yield above + name, value


def check_columns(name: str, there: Sequence[str], wanted: Sequence[str], hint: str) -> None:
    """Refuse an input that lacks a column, or has it twice; the error lists the columns that are there."""
    for each in wanted:
        if each not in there:
            listed = ", ".join(map(repr, there[:_LISTED])) + (", ..." if len(there) > _LISTED else "")
            raise InputError(f"{name} has no column {each!r}; it has {listed or 'none'}. {hint}".rstrip())
        if there.count(each) > 1:
            raise InputError(f"{name} has several columns {each!r}; give them names of their own.")


LONGEST = 4_000_000
"""Bytes of a line, and characters of a CSV field: a file without line ends would fill the memory."""

BOM = b"\xef\xbb\xbf"


class Record(NamedTuple):
    """What a source reads.

    Args:
        values: of the columns asked for, in their order; None where there is none.
        reason: why it is no good; else None.
        line: where it begins, from 1; in a Parquet file its row.
        rest: all other columns by name, where they are asked for; those within a column by their paths.
    """

    values: list[object]
    reason: str | None
    line: int
    rest: Mapping[str, object] = {}


def lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file, with their ends and without a byte order mark; of one too long the beginning."""
    first = True
    while line := file.readline(LONGEST + 1):
        if len(line) > LONGEST and not line.endswith(b"\n"):
            # Read over in pieces, which are not kept: the line may be the rest of the file.
            # To the end of the line, in constant memory.
            while (more := file.readline(1 << 20)) and not more.endswith(b"\n"):
                pass
        yield line.removeprefix(BOM) if first else line
        first = False


def decoded(line: bytes, encoding: str) -> tuple[str | None, str | None]:
    """A line as text, or the reason why it cannot be decoded."""
    if len(line) > LONGEST:
        return None, too_long("the line")
    try:
        return line.decode(encoding), None
    except UnicodeDecodeError as error:
        return None, undecodable("the line", encoding, line, error)


def too_long(what: str) -> str:
    """Why such a line is rejected."""
    return f"{what} is longer than {LONGEST:,} bytes, the most that is read; divide it into several rows"


def undecodable(what: str, encoding: str, line: bytes, error: UnicodeDecodeError) -> str:
    """Why a line that is not in its encoding is rejected."""
    byte = f"byte {error.start} is 0x{line[error.start]:02x}"
    return f"{what} is not {encoding.upper()}: {byte}; name its encoding"


def no_text(what: str, value: object) -> str | None:
    """Why a value is no text; None where it is one. `what` is its name in the message.

    Example:
        >>> no_text("the text", None), no_text("the text", 3), no_text("the text", "")
        ('the text is null', 'the text is a number, not a string', None)
    """
    if value is None:
        return f"{what} is null"
    if not isinstance(value, str):
        return f"{what} is {_a(value)}, not a string"
    # The quick way: no surrogate can be in it.
    if value.isascii():
        return None
    try:
        # Half of a surrogate pair is a character to Python, and to no file.
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"{what} holds half of a surrogate pair at character {error.start}"
    return None


def _a(value: object) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", dict: "an object", list: "a list"}
    return names.get(type(value), f"of type {type(value).__name__}")


# So many first rows say which columns there are, and of which type.
_SAMPLE = 1000


_Texts = Iterator[tuple[str | None, str | None, int]]


class TextSource:
    """Plain text: its lines are the column "text".

    Args:
        opened: the input.
    """

    unit = "line"

    def __init__(self, opened: Opened) -> None:
        self.opened = opened

    def check(self, names: Sequence[str], hint: str = "") -> None:
        """Refuse columns that are not there.

        Raises:
            InputError: it has no such column.
        """
        other = next((name for name in names if name != TEXT), None)
        if other is not None:
            raise InputError(f"{self.opened.name} is plain text, which has no columns, and so no {other!r}.")

    def records(
        self, names: Sequence[str], also: Sequence[str] = (), *, rest: bool = False
    ) -> Iterator[Record]:
        """All rows: lines, paragraphs, or the whole of it, as `Files.unit` says."""
        # The three units of plain text.
        read = {"line": self.lines, "paragraph": self._paragraphs, "file": self._whole}
        for text, reason, line in read[self.opened.files.unit]():
            yield Record([*[text] * len(names), *[None] * len(also)], reason, line)

    def lines(self) -> _Texts:
        """All lines, without their ends: each with why it is no good, and its number."""
        with self.opened.reading() as file:
            for number, line in enumerate(lines(file), 1):
                text, reason = decoded(line, self.opened.files.encoding)
                if text is not None and "\0" in text:
                    # A binary file without an ending that says so.
                    text, reason = None, "the line holds a NUL"
                yield None if text is None else text.rstrip("\r\n"), reason, number

    def _paragraphs(self) -> _Texts:
        """Lines joined up to a blank one, with the number of the first; broken lines as they are."""
        held, first = list[str](), 1
        # One blank line more, which ends the last paragraph.
        for text, reason, number in chain(self.lines(), [("", None, 0)]):
            if text is None:
                yield text, reason, number
            elif text.strip():
                first = first if held else number
                held.append(text)
            elif held:
                yield "\n".join(held), None, first
                held = []

    def _whole(self) -> _Texts:
        """All of it, with the line ends that it has; or its first line that is not in its encoding."""
        encoding = self.opened.files.encoding
        with self.opened.reading() as file:
            data = file.read().removeprefix(BOM)
        try:
            yield data.decode(encoding), None, 1
        except UnicodeDecodeError as error:
            # The line of the fault, for the message.
            start, line = data.rfind(b"\n", 0, error.start) + 1, data.count(b"\n", 0, error.start) + 1
            _, reason = decoded(data[start : start + LONGEST].split(b"\n", 1)[0], encoding)
            yield None, reason or str(error), line


class JsonSource:
    """JSON lines: of objects, whose names are the columns, or of strings, which are the column "text".

    Args:
        opened: the input.
    """

    unit = "line"

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self.sample = list(_first_objects(opened))

    def check(self, names: Sequence[str], hint: str = "") -> None:
        """Refuse columns that no object has.

        Raises:
            InputError: one is nowhere.
        """
        if self.sample or tuple(names) != (TEXT,):
            there = dict.fromkeys(name for each in self.sample for name in names_in(each))
            # The first objects tell the columns. A later one may have more: then all are looked through.
            if self.sample and not there.keys() >= {*names}:
                with self.opened.reading() as file:
                    for each in _objects(lines(file), self.opened):
                        there |= dict.fromkeys(names_in(each))
            check_columns(self.opened.name, [*there], names, hint)

    def values(self, name: str) -> Iterator[Any]:
        """What a column holds in the first objects."""
        return (value_at(name, each) for each in self.sample)

    def records(
        self, names: Sequence[str], also: Sequence[str] = (), *, rest: bool = False
    ) -> Iterator[Record]:
        """All lines."""
        with self.opened.reading() as file:
            for number, line in enumerate(lines(file), 1):
                values, reason, value = self._values(line, names, also)
                yield Record(
                    values, reason, number, dict(leaves(value, (*names, *also))) if rest and value else {}
                )

    def _values(
        self, line: bytes, names: Sequence[str], also: Sequence[str]
    ) -> tuple[list[object], str | None, dict[str, Any] | None]:
        none: list[object] = [None] * (len(names) + len(also))
        text, reason = decoded(line, self.opened.files.encoding)
        if text is None:
            return none, reason, None
        if not text.strip():
            return none, "the line is empty", None
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            return none, f"the line is not valid JSON ({error.msg} at character {error.pos})", None
        except (ValueError, RecursionError) as error:
            return none, f"the line is not valid JSON ({error})", None
        # A string is the text itself.
        if isinstance(value, str) and tuple(names) == (TEXT,) and not also:
            return [value], None, None
        if not isinstance(value, dict):
            return none, "the line is JSON but not an object", None
        absent = next((name for name in names if path_to(name, value) is None), None)
        values = {name: value_at(name, value) for name in (*names, *also)}
        # JSON can escape half of a pair, which no file of ours can hold.
        halves = (no_text(f"column {name!r}", each) for name, each in values.items() if isinstance(each, str))
        reason = next(filter(None, halves), None) if absent is None else f"there is no column {absent!r}"
        return [values[name] for name in (*names, *also)], reason, value


def _first_objects(opened: Opened) -> Iterator[dict[str, Any]]:
    head = opened.head.removeprefix(BOM).split(b"\n", _SAMPLE)
    # The sample ended within a line.
    if not opened.whole and len(head) <= _SAMPLE:
        del head[-1]  # cut off
    return _objects(head[:_SAMPLE], opened)


def _objects(lines: Iterable[bytes], opened: Opened) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            value = json.loads(line.decode(opened.files.encoding))
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value
