"""Paragraphs of plain text."""

from collections.abc import Iterable, Iterator
from itertools import chain

from regard.data._lines import Record


def paragraphs(records: Iterable[Record]) -> Iterator[Record]:
    """Lines joined up to a blank one, each with the number of its first line; broken lines as they are."""
    held, first = list[str](), 1
    for record in chain(records, [Record([""], None, 0)]):
        if record.reason is not None:
            yield record
        elif (line := str(record.values[0])).strip():
            first = first if held else record.line
            held.append(line)
        elif held:
            yield Record(["\n".join(held)], None, first)
            held = []
