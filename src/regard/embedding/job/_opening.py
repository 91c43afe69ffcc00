"""Opening an input: how it is packed and what its format is, by its name and by what it holds."""

import bz2
import gzip
import io
import json
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from regard.core.errors import InputError
from regard.core.extras import pyarrow

FORMATS = ("text", "jsonl", "csv", "tsv", "parquet")
"""What an input can be."""

BROKEN = (OSError, EOFError, lzma.LZMAError, zlib.error)
"""What is raised where a file, or its compression, is broken."""

_HEAD = 1 << 20
_BUFFER = 1 << 20

_PACKED = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2", ".xz": "xz"}
_NAMED = {
    ".txt": "text",
    ".text": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_CALLED = {
    "text": "plain text",
    "jsonl": "JSON lines",
    "csv": "CSV",
    "tsv": "TSV",
    "parquet": "a Parquet file",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Opened:
    """An input that was looked into.

    Args:
        name: as in messages: the path as given, "stdin" for "-".
        path: None for stdin.
        format: one of `FORMATS`.
        packed: how it is compressed; None where it is not.
        head: the first bytes, unpacked; at most a mebibyte.
        whole: whether these are all.
        stream: what can be read but once, with the head read already; else None.
    """

    name: str
    path: Path | None
    format: str
    packed: str | None
    head: bytes
    whole: bool
    stream: IO[bytes] | None

    @property
    def label(self) -> str:
        """What it is called in the result: the file's name, wherever it lies."""
        return self.name if self.path is None else self.path.name

    @contextmanager
    def reading(self, offset: int) -> Iterator[IO[bytes]]:
        """The unpacked bytes from an offset on, buffered; of a stream from its beginning on, and only once.

        Raises:
            InputError: it cannot be read, or not on.
        """
        try:
            if self.stream is not None:
                yield io.BufferedReader(cast(io.RawIOBase, _Joined(self.head, self.stream)), _BUFFER)
                return
            assert self.path is not None
            with self.path.open("rb") as raw:
                file = unpacked(raw, self.packed)
                if self.packed is None:
                    file.seek(offset)
                else:
                    left = offset
                    while left and (skipped := file.read(min(left, _BUFFER))):
                        left -= len(skipped)
                yield file
        except BROKEN as error:
            raise unreadable(self.name, error) from error


def look_into(path: Path, *, format: str | None = None) -> Opened:
    """Finds out what an input is.

    Args:
        path: "-" is stdin.
        format: what it is said to be; None goes by its name, and where that says nothing by what it holds.

    Raises:
        InputError: it cannot be read, is empty, or is not what it is said to be.
    """
    if str(path) == "-":
        if sys.stdin is None:
            raise InputError("- reads stdin, but stdin is closed.")
        return _looked("stdin", None, sys.stdin.buffer, format)
    name = str(path)
    try:
        kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            raise InputError(f"{name!r} is a folder; name its files, such as {name.rstrip('/')}/*.parquet.")
        file = path.open("rb")
    except (OSError, ValueError) as error:
        raise unreadable(name, error) from error
    if not stat.S_ISREG(kind):
        return _looked(name, None, file, format)
    with file:
        return _looked(name, path, file, format)


def _looked(name: str, path: Path | None, file: IO[bytes], format: str | None) -> Opened:
    try:
        first = _read(file, _HEAD)
        packed = _packing(first)
        _check_packing(name, path, packed, first)
        raw: IO[bytes] | None = None
        head, whole = first, len(first) < _HEAD
        if path is not None and packed is not None:
            file.seek(0)
            head = _read(unpacked(file, packed), _HEAD)
            whole = len(head) < _HEAD
        elif path is None:
            raw = file
            if packed is not None:
                joined = io.BufferedReader(cast(io.RawIOBase, _Joined(first, file)), _BUFFER)
                raw = unpacked(joined, packed)
                head = _read(raw, _HEAD)
                whole = len(head) < _HEAD
    except BROKEN as error:
        raise unreadable(name, error) from error
    if not head:
        raise InputError(f"{name} is empty; give a file with texts.")
    found = _format(name, path, packed, head, format)
    if found == "parquet":
        _check_parquet(name, path, packed, head)
    else:
        _check_text(name, found, head)
    return Opened(name=name, path=path, format=found, packed=packed, head=head, whole=whole, stream=raw)


def unpacked(file: IO[bytes], packed: str | None) -> IO[bytes]:
    """The bytes of a compressed file, unpacked as they are read."""
    if packed == "gzip":
        return cast(IO[bytes], io.BufferedReader(gzip.GzipFile(fileobj=file), _BUFFER))
    if packed == "bz2":
        return cast(IO[bytes], io.BufferedReader(bz2.BZ2File(file), _BUFFER))
    if packed == "xz":
        return cast(IO[bytes], io.BufferedReader(lzma.LZMAFile(file), _BUFFER))
    if packed == "zstd":
        pa, _ = pyarrow()
        stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
        return cast(IO[bytes], io.BufferedReader(stream, _BUFFER))
    return file


def unreadable(name: str, error: Exception) -> InputError:
    """The error of an input that cannot be read (on)."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return InputError(f"{name} cannot be read ({reason}).")


class _Joined(io.RawIOBase):
    """Bytes that were read already, and then the rest of a stream."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = memoryview(head), rest

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        into = memoryview(target).cast("B")
        data: Any = self._head[: len(into)]
        if data:
            self._head = self._head[len(data) :]
        else:
            # read1: a line that was typed is handed on at once.
            read = getattr(self._rest, "read1", self._rest.read)
            data = read(len(into))
            if not data and self._rest is not sys.stdin.buffer:
                self._rest.close()
        into[: len(data)] = data
        return len(data)


def _read(file: IO[bytes], at_most: int) -> bytes:
    """The first bytes, also where a pipe gives them bit by bit."""
    parts = []
    left = at_most
    while left and (part := file.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _packing(first: bytes) -> str | None:
    if first[:3] == b"\x1f\x8b\x08":
        return "gzip"
    if first[:4] == b"\x28\xb5\x2f\xfd":
        return "zstd"
    if first[:3] == b"BZh" and first[4:10] == b"1AY&SY":
        return "bz2"
    return "xz" if first[:6] == b"\xfd7zXZ\x00" else None


def _check_packing(name: str, path: Path | None, packed: str | None, first: bytes) -> None:
    if path is None:
        return
    said = _PACKED.get(path.suffix.lower())
    if said == packed or not first:
        return
    if said is not None:
        what = "not compressed" if packed is None else f"compressed by {packed}"
        raise InputError(f"{name} is not what its name says: it should be {said}, and is {what}. Rename it.")
    if path.suffix.lower() in _NAMED:
        ending = next(suffix for suffix, each in _PACKED.items() if each == packed)
        raise InputError(
            f"{name} is not what its name says: it is compressed by {packed}. Rename it to "
            f"{path.name}{ending}."
        )


def _format(name: str, path: Path | None, packed: str | None, head: bytes, said: str | None) -> str:
    if said is not None:
        return said
    plain = path.with_suffix("") if path is not None and packed and path.suffix.lower() in _PACKED else path
    named = None if plain is None else _NAMED.get(plain.suffix.lower())
    if head[:4] == b"PAR1" and b"\0" in head:
        if named not in (None, "parquet"):
            raise InputError(f"{name} is not what its name says: it is a Parquet file. Rename it.")
        return "parquet"
    if named is not None:
        return named
    return "jsonl" if _is_json(_lines(head)[0]) else "text"


def _check_parquet(name: str, path: Path | None, packed: str | None, head: bytes) -> None:
    if head[:4] != b"PAR1":
        what = "JSON lines" if _is_json(_lines(head)[0]) else "something else"
        raise InputError(f"{name} is not what its name says: it should be a Parquet file, and is {what}.")
    if packed is not None or path is None:
        where = "in a stream" if path is None else f"inside {packed}"
        raise InputError(
            f"{name} is a Parquet file {where}; Parquet is read from its end: give the file itself."
        )


def _check_text(name: str, format: str, head: bytes) -> None:
    called = _CALLED[format]
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(f"{name} is UTF-16; convert it, for example with iconv -f utf-16 -t utf-8.")
    if b"\0" in head[:65536]:
        raise InputError(f"{name} should be {called}, and is binary: byte {head.index(0)} is NUL.")
    if format != "jsonl":
        return
    if len(head) == _HEAD and b"\n" not in head:
        return  # one long line
    lines = [line for line in _lines(head) if line.strip()]
    if lines and not any(_is_json(line) for line in lines):
        if lines[0].lstrip()[:1] == b"[":
            raise InputError(f"{name} holds one JSON array; write one object a line, as jq -c '.[]' does.")
        raise InputError(
            f"{name} should be JSON lines, and its first {len(lines)} lines are none: no object, no string."
        )


# So many first lines say whether a file is JSON lines.
_TRIED = 100


def _lines(head: bytes) -> list[bytes]:
    """The first lines; the last one may be cut off, and then does not count unless it is the only one."""
    lines = head.removeprefix(b"\xef\xbb\xbf").split(b"\n", _TRIED)
    return lines[:-1] or lines


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict | str)
    except (ValueError, RecursionError):
        return False


def identity(path: Path) -> tuple[int, int]:
    """What changes with a file's content, at no cost: its size and when it was written."""
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns
