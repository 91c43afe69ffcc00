"""Plain text and JSON lines, row by row: one line is one row."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from regard.core.errors import InputError
from regard.data._opening import Opened
from regard.data._records import (
    BOM,
    LONGEST,
    TEXT,
    Record,
    check_columns,
    decoded,
    lines,
    names_in,
    path_to,
    value_at,
)

# So many first rows say which columns there are, and of which type.
_SAMPLE = 1000


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

    def records(self, names: Sequence[str], also: Sequence[str] = ()) -> Iterator[Record]:
        """All lines, without their ends."""
        with self.opened.reading() as file:
            for number, line in enumerate(lines(file), 1):
                text, reason = decoded(line, self.opened.encoding)
                if text is not None and "\0" in text:
                    reason = "the line holds a NUL"
                good: object = None if text is None or reason is not None else text.rstrip("\r\n")
                yield Record([good] * len(names) + [None] * len(also), reason, number)

    def whole(self) -> str:
        """All of it, with the line ends that it has.

        Raises:
            InputError: it is not in its encoding.
        """
        with self.opened.reading() as file:
            data = file.read().removeprefix(BOM)
        try:
            return data.decode(self.opened.encoding)
        except UnicodeDecodeError as error:
            start, line = data.rfind(b"\n", 0, error.start) + 1, data.count(b"\n", 0, error.start) + 1
            _, reason = decoded(data[start : start + LONGEST].split(b"\n", 1)[0], self.opened.encoding)
            raise InputError(f"line {line} of {self.opened.name}: {reason or error}.") from error


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
        """Refuse columns that none of the first objects has.

        Raises:
            InputError: one has no such column.
        """
        if self.sample or tuple(names) != (TEXT,):
            there = list(dict.fromkeys(name for each in self.sample for name in names_in(each)))
            check_columns(self.opened.name, there, names, hint)

    def values(self, name: str) -> Iterator[Any]:
        """What a column holds in the first objects."""
        return (value_at(name, each) for each in self.sample)

    def records(self, names: Sequence[str], also: Sequence[str] = ()) -> Iterator[Record]:
        """All lines."""
        with self.opened.reading() as file:
            for number, line in enumerate(lines(file), 1):
                yield Record(*self._values(line, names, also), number)

    def _values(
        self, line: bytes, names: Sequence[str], also: Sequence[str]
    ) -> tuple[list[object], str | None]:
        none: list[object] = [None] * (len(names) + len(also))
        text, reason = decoded(line, self.opened.encoding)
        if text is None:
            return none, reason
        if not text.strip():
            return none, "the line is empty"
        try:
            found = json.loads(text)
        except json.JSONDecodeError as error:
            return none, f"the line is not valid JSON ({error.msg} at character {error.pos})"
        except (ValueError, RecursionError) as error:
            return none, f"the line is not valid JSON ({error})"
        if isinstance(found, str) and tuple(names) == (TEXT,) and not also:
            return [found], None
        if not isinstance(found, dict):
            return none, "the line is JSON but not an object"
        absent = next((name for name in names if path_to(name, found) is None), None)
        reason = None if absent is None else f"there is no column {absent!r}"
        return [value_at(name, found) for name in (*names, *also)], reason


def _first_objects(opened: Opened) -> Iterator[dict[str, Any]]:
    head = opened.head.removeprefix(BOM).split(b"\n", _SAMPLE)
    if not opened.whole and len(head) <= _SAMPLE:
        del head[-1]  # cut off
    for line in head[:_SAMPLE]:
        try:
            found = json.loads(line.decode(opened.encoding))
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found
