"""Lines of text, and the chunks that are made of their rows."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import IO

from regard.embedding.job._columns import Carried
from regard.embedding.job._rows import Chunk
from regard.embedding.job._texts import LONGEST

ROWS = 1024
"""Rows of a chunk."""

BOM = b"\xef\xbb\xbf"

Parsed = tuple[str | None, str | None, list[object]]
"""A row: its text or None, why it is rejected or None, and the values that are carried along."""


def lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file, with their ends and without a byte order mark; of one too long the beginning."""
    first = True
    while line := file.readline(LONGEST + 1):
        if len(line) > LONGEST and not line.endswith(b"\n"):
            while (more := file.readline(1 << 20)) and not more.endswith(b"\n"):
                pass
        yield line.removeprefix(BOM) if first else line
        first = False


def too_long(what: str) -> str:
    """Why such a line is rejected."""
    return f"{what} is longer than {LONGEST:,} bytes, the most that is read; divide it into several rows"


def undecodable(what: str, encoding: str, line: bytes, error: UnicodeDecodeError) -> str:
    """Why a line that is not in its encoding is rejected."""
    byte = f"byte {error.start} is 0x{line[error.start]:02x}"
    return f"{what} is not {encoding.upper()}: {byte}; --encoding names another"


def gathered(name: str, fields: list[Carried], rows: Iterable[Parsed]) -> Iterator[Chunk]:
    """Puts rows together to chunks."""
    rest, first = iter(rows), 0
    while batch := list(islice(rest, ROWS)):
        texts: list[str | None] = []
        reasons: dict[int, str] = {}
        columns: list[list[object]] = [[] for _ in fields]
        for place, (text, reason, values) in enumerate(batch):
            problems = [field.problem(value) for field, value in zip(fields, values, strict=True)]
            reason = reason or next(filter(None, problems), None)
            if reason is not None:
                reasons[place] = reason
            texts.append(text if reason is None else None)
            # Of a bad row only the id is used, where it is a good one.
            for column, value, bad in zip(columns, values, problems, strict=True):
                column.append(None if bad else value)
        yield Chunk(
            name=name,
            first=first,
            texts=texts,
            reasons=reasons,
            columns=[field.arrow(column) for field, column in zip(fields, columns, strict=True)],
        )
        first += len(batch)
