"""Plain text and JSON lines, row by row: one line is one row, so that row n is line n + 1."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from regard.core.errors import InputError
from regard.embedding.job._columns import Carried, Columns, infer
from regard.embedding.job._lines import BOM, Parsed, gathered, lines, too_long, undecodable
from regard.embedding.job._opening import Opened
from regard.embedding.job._rows import Chunk
from regard.embedding.job._texts import LONGEST, joined, problem

_SAMPLE = 1000


class LineSource:
    """Plain text, or JSON lines.

    Args:
        opened: the input.
        columns: which columns are used.
    """

    def __init__(self, opened: Opened, columns: Columns) -> None:
        self.opened = opened
        self._columns = columns
        self._json = opened.format == "jsonl"
        if self._json:
            self.fields = _json_fields(opened, columns)
        else:
            named = columns.carried or columns.text
            if named:
                raise InputError(
                    f"{opened.name} is plain text, which has no columns, and so no {named[0]!r}; a row of it "
                    "is known by its number."
                )
            self.fields = []

    def chunks(self, fields: list[Carried]) -> Iterator[Chunk]:
        """All rows."""
        read: Callable[[bytes], Parsed] = self._object if self._json else self._line
        with self.opened.reading() as file:
            yield from gathered(self.opened.label, fields, map(read, lines(file)))

    def _line(self, line: bytes) -> Parsed:
        text, reason = self._decoded(line)
        if text is not None:
            text = text.rstrip("\r\n")
            reason = "the line holds a NUL" if "\0" in text else problem(text)
        return (text, None, []) if reason is None else (None, reason, [])

    def _object(self, line: bytes) -> Parsed:
        none: list[object] = [None] * len(self._columns.carried)
        decoded, reason = self._decoded(line)
        if decoded is None:
            return None, reason, none
        if not decoded.strip():
            return None, "the line is empty", none
        try:
            found = json.loads(decoded)
        except json.JSONDecodeError as error:
            return None, f"the line is not valid JSON ({error.msg} at character {error.pos})", none
        except (ValueError, RecursionError) as error:
            return None, f"the line is not valid JSON ({error})", none
        if isinstance(found, str) and self._columns.text is None and not none:
            reason = problem(found)
            return (found, None, none) if reason is None else (None, reason, none)
        if not isinstance(found, dict):
            return None, "the line is JSON but not an object", none
        values = [found.get(name) for name in self._columns.carried]
        absent = next((name for name in self._columns.texts if name not in found), None)
        if absent is not None:
            return None, f"there is no column {absent!r}", values
        text, reason = joined([found[name] for name in self._columns.texts])
        if reason is None and self._columns.id is not None and values[0] is None:
            reason = f"the id is null or missing (column {self._columns.id!r})"
        return text if reason is None else None, reason, values

    def _decoded(self, line: bytes) -> tuple[str | None, str | None]:
        if len(line) > LONGEST:
            return None, too_long("the line")
        try:
            return line.decode(self.opened.encoding), None
        except UnicodeDecodeError as error:
            return None, undecodable("the line", self.opened.encoding, line, error)


def _json_fields(opened: Opened, columns: Columns) -> list[Carried]:
    """The types of the columns of JSON lines, from the first rows; one that none of them has is missing."""
    objects: list[dict[str, Any]] = []
    head = opened.head.removeprefix(BOM).split(b"\n", _SAMPLE)
    if not opened.whole and len(head) <= _SAMPLE:
        del head[-1]  # cut off
    texts = 0
    for line in head[:_SAMPLE]:
        try:
            found = json.loads(line.decode(opened.encoding))
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            objects.append(found)
        texts += isinstance(found, str)
    if objects or columns.carried or columns.text is not None:
        there = list(dict.fromkeys(name for each in objects for name in each))
        if objects or not texts:
            columns.check(there, opened.name)
        elif columns.carried or columns.text:
            columns.check([], opened.name)
    return [infer(name, (each.get(name) for each in objects)) for name in columns.carried]
