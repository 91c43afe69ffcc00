"""All inputs, as one sequence of rows that can be read from any shard on."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import InputError
from regard.data import Csv, Opened, open_sources, unreadable
from regard.embedding.job._chunks import chunks, fields
from regard.embedding.job._columns import Carried, Columns
from regard.embedding.job._rows import Block, blocks


class Inputs:
    """Files of texts, and perhaps stdin, in the order given. Plain text is one text a line.

    Args:
        paths, format, csv, encoding, copies: as of `regard.data.open_sources`.
        columns: which columns are used.

    Raises:
        InputError: one cannot be read, is not what its name says, or lacks a column; or they do not fit.
        MissingExtraError: pyarrow is not installed.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "texts.csv")
        >>> _ = path.write_text("year,text\\n1999,A river bank.\\n2001,A bank loan.\\n")
        >>> inputs = Inputs([path], Columns(keep=("year",)))
        >>> [block.texts for block in inputs.blocks(shard_rows=8192, characters=1000)]
        [['A river bank.', 'A bank loan.']]
    """

    def __init__(
        self,
        paths: Sequence[Path],
        columns: Columns,
        *,
        format: str | None = None,
        csv: Csv | None = None,
        encoding: str = "utf-8",
        copies: Path | None = None,
    ) -> None:
        self.columns, self.csv, self.encoding = columns, csv or Csv(), encoding
        self._sources = open_sources(paths, format=format, csv=csv, encoding=encoding, copies=copies)
        self.fields = self._shared_fields()
        self._identities = [_identity(each.opened) for each in self._sources]

    def fingerprint(self) -> tuple[list[dict[str, Any]], int | None]:
        """What the inputs hold: for each its name, format, bytes and SHA-256; and the rows.

        It reads every file once, at more than a gigabyte a second; the rows are counted on the way where a
        line is a row, else None.
        """
        found: list[dict[str, Any]] = []
        rows: list[int | None] = []
        for source in self._sources:
            opened = source.opened
            size, digest, lines = _digest(opened)
            found.append(
                {
                    "name": opened.label,
                    "format": opened.format,
                    "compressed": opened.packed,
                    "bytes": size,
                    "sha256": digest,
                }
            )
            by_lines = opened.packed is None and opened.format in ("text", "jsonl")
            rows.append(lines if by_lines else getattr(source, "rows", None))
        return found, None if None in rows else sum(filter(None, rows))

    def blocks(self, *, shard_rows: int, characters: int) -> Iterator[Block]:
        """All rows in blocks, which are cut as `regard.embedding.job._rows.blocks` says.

        Raises:
            InputError: an input cannot be read on, or is no longer what it was; or there are no rows.
        """
        block = None
        read = (chunk for each in self._sources for chunk in chunks(each, self.columns, self.fields))
        has_id = self.columns.id is not None
        for block in blocks(read, shard_rows=shard_rows, characters=characters, has_id=has_id):
            if block.closes:
                self.check_unchanged()
            yield block
        if block is None:
            raise InputError("IN holds no rows; give a file with texts.")

    def check_unchanged(self) -> None:
        """Refuse to go on with a file that somebody writes to.

        Raises:
            InputError: its size or its time of writing has changed since it was opened.
        """
        for source, before in zip(self._sources, self._identities, strict=True):
            if _identity(source.opened) != before:
                raise InputError(f"{source.opened.name} was changed while it was read.")

    def _shared_fields(self) -> list[Carried]:
        """The columns that are carried along, of the same type in every source."""
        found = [fields(source, self.columns) for source in self._sources]
        first = self._sources[0]
        for other, theirs in zip(self._sources[1:], found[1:], strict=True):
            for here, there in zip(found[0], theirs, strict=True):
                # A value of JSON lines that does not fit is a row's affair, not the file's.
                if other.opened.format == "jsonl" and (here.as_json or str(here.type) in _OF_JSON):
                    continue
                if (here.type, here.as_json) != (there.type, there.as_json):
                    raise InputError(
                        f"column {here.name!r} must have one type: it is {here.stated} in "
                        f"{first.opened.name} and {there.stated} in {other.opened.name}."
                    )
        return found[0]


_OF_JSON = ("bool", "int64", "double", "string")


def _identity(opened: Opened) -> tuple[int, int] | None:
    """What changes with a file's content, at no cost: its size and when it was written."""
    if opened.path is None:
        return None
    try:
        found = opened.path.stat()
    except OSError as error:
        raise unreadable(opened.name, error) from error
    return found.st_size, found.st_mtime_ns


def _digest(opened: Opened) -> tuple[int, str, int]:
    """The size of a file in bytes, its SHA-256, and the number of its lines."""
    digest, size, lines, last = hashlib.sha256(), 0, 0, b"\n"
    with opened.reading(raw=True) as file:
        while data := file.read(1 << 20):
            digest.update(data)
            size += len(data)
            lines += data.count(b"\n")
            last = data[-1:]
    return size, digest.hexdigest(), lines + (last != b"\n")
