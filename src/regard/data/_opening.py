"""Opening an input: how it is packed and what its format is, by its name and by what it holds."""

import bz2
import gzip
import io
import json
import lzma
import shutil
import stat
import sys
import weakref
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, cast

from regard.core.errors import InputError, OutputError, RegardError
from regard.core.extras import pyarrow
from regard.data._files import Files

BROKEN = (OSError, EOFError, lzma.LZMAError, zlib.error)
"""What is raised where a file, or its compression, is broken."""

# So much of a file says what it is and which columns it has; all of it might not fit into the memory.
_HEAD = 1 << 20
_BUFFER = 1 << 20

_PACKED = (".gz", ".zst", ".zstd", ".bz2", ".xz")
_MAGIC = {"gzip": b"\x1f\x8b\x08", "zstd": b"\x28\xb5\x2f\xfd", "xz": b"\xfd7zXZ\x00"}
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
        path: of the file; None where it was copied, from stdin or a pipe.
        format: one of `FORMATS`.
        files: among which it is, with how they are read.
        packed: how it is compressed; None where it is not.
        head: the first bytes, unpacked; at most a mebibyte.
        whole: whether these are all.
        copy: of what could be read but once; else None.
    """

    name: str
    path: Path | None
    format: str
    files: Files
    packed: str | None
    head: bytes
    whole: bool
    copy: IO[bytes] | None

    @property
    def label(self) -> str:
        """What it is called in the result: the file's name, wherever it lies."""
        return self.name if self.path is None else self.path.name

    @contextmanager
    def reading(self, *, raw: bool = False) -> Iterator[IO[bytes]]:
        """Its bytes from the beginning on, buffered: unpacked, or as they lie there."""
        try:
            # A copy of a pipe is read again from its start.
            with _from_start(self.path, self.copy) as file:
                yield file if raw else unpacked(file, self.packed)
        except BROKEN as error:
            raise unreadable(self.name, error) from error


def paths_of(files: Files) -> list[Path]:
    """The files that paths stand for: those of a folder, and those that fit a pattern, by name."""
    paths: list[Path] = []
    # Folders and patterns become files, in the order of their names.
    for path in map(Path, files.paths):
        name = str(path)
        if path.is_dir():
            try:
                # What begins so is hidden, or a note of a job: readers of Parquet pass it over too.
                here = sorted(each for each in path.iterdir() if each.is_file() and each.name[0] not in "._")
            except OSError as error:
                raise unreadable(name, error) from error
            if not here:
                raise InputError(f"{name!r} is a folder without files of texts.")
            # A folder of several formats is most likely not meant as a whole.
            kinds = {each.name: _named(each) for each in here}
            if files.format is None and len(set(kinds.values())) > 1:
                one, other = next((a, b) for a, b in pairwise(kinds) if kinds[a] != kinds[b])
                raise InputError(
                    f"{name!r} holds files of several formats, such as {one!r} and {other!r}; name the files "
                    "that are meant, or give --format."
                )
            paths += here
        elif any(each in name for each in "*?[") and not path.exists():  # a file may be called so
            fitting = sorted(Path(each) for each in glob(name, recursive=True))
            if not fitting:
                raise InputError(f"no file fits {name!r}.")
            paths += fitting
        else:
            paths.append(path)
    return paths


def look_into(path: Path, files: Files) -> Opened:
    """Finds out what an input is."""
    if str(path) == "-":
        # As under pythonw, and in services.
        if sys.stdin is None:
            raise InputError("- reads stdin, but stdin is closed.")
        return _copied("stdin", sys.stdin.buffer, files)
    try:
        # A file is read where it lies; a pipe is copied first.
        if stat.S_ISREG(path.stat().st_mode):
            return _looked(str(path), path, None, files)
        with path.open("rb") as pipe:
            return _copied(str(path), pipe, files)
    except (OSError, ValueError) as error:
        if isinstance(error, RegardError):
            raise
        raise unreadable(str(path), error) from error


def _copied(name: str, stream: IO[bytes], files: Files) -> Opened:
    """Copies a pipe, which can be read only once, to a file without a name that ends with the process."""
    where = "the folder for temporary files" if files.copies is None else repr(str(files.copies))
    try:
        copy = cast(IO[bytes], TemporaryFile(dir=files.copies))  # noqa: SIM115 - it lives as long as `opened`
        try:
            shutil.copyfileobj(stream, copy, _BUFFER)
            copy.flush()
            opened = _looked(name, None, copy, files)
        except BaseException:
            copy.close()
            raise
    except OSError as error:
        raise OutputError(
            f"{name} cannot be copied to {where} ({error.strerror or error}); make room, or give a file."
        ) from error
    weakref.finalize(opened, copy.close)
    return opened


@contextmanager
def _from_start(path: Path | None, copy: IO[bytes] | None) -> Iterator[IO[bytes]]:
    if copy is not None:
        copy.seek(0)
        yield copy
        return
    assert path is not None
    with path.open("rb") as file:
        yield file


def _looked(name: str, path: Path | None, copy: IO[bytes] | None, files: Files) -> Opened:
    try:
        with _from_start(path, copy) as file:
            # By what it holds, not by its name, which may be wrong.
            packed = _packing(file.read(16))
            file.seek(0)
            head = unpacked(file, packed).read(_HEAD)
    except BROKEN as error:
        raise unreadable(name, error) from error
    if not head:
        raise InputError(f"{name} is empty; give a file with texts.")
    # What the caller says counts; then what the beginning looks like.
    format = files.format or _format(path, head)
    if format == "parquet":
        _check_parquet(name, packed, head, files.format)
    else:
        _check_text(name, format, head)
    return Opened(
        name=name,
        path=path,
        format=format,
        files=files,
        packed=packed,
        head=head,
        whole=len(head) < _HEAD,
        copy=copy,
    )


def unpacked(file: IO[bytes], packed: str | None) -> IO[bytes]:
    """The bytes of a compressed file, unpacked as they are read."""
    if packed == "gzip":
        return cast(IO[bytes], io.BufferedReader(gzip.GzipFile(fileobj=file), _BUFFER))
    if packed == "bz2":
        return cast(IO[bytes], io.BufferedReader(bz2.BZ2File(file), _BUFFER))
    if packed == "xz":
        return cast(IO[bytes], io.BufferedReader(lzma.LZMAFile(file), _BUFFER))
    # Python has no module for it before 3.14; Arrow has.
    if packed == "zstd":
        pa, _ = pyarrow()
        stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
        return cast(IO[bytes], io.BufferedReader(stream, _BUFFER))
    return file


def unreadable(name: str, error: Exception) -> InputError:
    """The error of an input that cannot be read, or not to its end."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return InputError(f"{name} cannot be read ({reason}).")


def _packing(first: bytes) -> str | None:
    # "BZh" may begin a text; the mark of a block, which follows the size, hardly does.
    if first[:3] == b"BZh" and first[4:10] == b"1AY&SY":
        return "bz2"
    return next((name for name, magic in _MAGIC.items() if first.startswith(magic)), None)


def _format(path: Path | None, head: bytes) -> str:
    # The mark alone might begin a text; a NUL hardly stands in one.
    if head[:4] == b"PAR1" and b"\0" in head:
        return "parquet"
    named = None if path is None else _named(path)
    if named is not None:
        return named
    return "jsonl" if _is_json(_lines(head)[0]) else "text"


def _named(path: Path) -> str | None:
    """What a file is by its name."""
    # a.jsonl.gz is JSON lines.
    plain = path.with_suffix("") if path.suffix.lower() in _PACKED else path
    return _NAMED.get(plain.suffix.lower())


def _check_parquet(name: str, packed: str | None, head: bytes, said: str | None) -> None:
    if head[:4] != b"PAR1":
        what = "JSON lines" if _is_json(_lines(head)[0]) else "something else"
        who = "--format" if said else "its name"
        raise InputError(f"{name} is not what {who} says: it should be a Parquet file, and is {what}.")
    if packed is not None:
        raise InputError(f"{name} is a Parquet file inside {packed}; unpack it first.")


def _check_text(name: str, format: str, head: bytes) -> None:
    called = _CALLED[format]
    # Faults that are common enough to be told with their way out.
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(f"{name} is UTF-16; convert it, for example with iconv -f utf-16 -t utf-8.")
    if b"\0" in head[:65536]:
        raise InputError(f"{name} should be {called}, and is binary: byte {head.index(0)} is NUL.")
    if b"\r" in head.rstrip(b"\r") and b"\n" not in head:
        raise InputError(f"{name} ends its lines in CR alone; convert it, for example with tr '\\r' '\\n'.")
    if format != "jsonl":
        return
    # Nothing can be said of it.
    if len(head) == _HEAD and b"\n" not in head:
        return  # one long line
    lines = [line for line in _lines(head) if line.strip()]
    if lines and not any(_is_json(line) for line in lines):
        if lines[0].lstrip()[:1] == b"[":
            raise InputError(f"{name} holds one JSON array; write one object a line, as jq -c '.[]' does.")
        raise InputError(
            f"{name} should be JSON lines, but none of its first {len(lines)} is an object or a string."
        )


# So many first lines say whether a file is JSON lines.
_TRIED = 100


def _lines(head: bytes) -> list[bytes]:
    """The first lines; the last one may be cut off, and then does not count unless it is the only one."""
    lines = head.removeprefix(b"\xef\xbb\xbf").split(b"\n", _TRIED)
    return lines[:-1] or lines


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line.decode("utf-8", "replace")), dict | str)
    except (ValueError, RecursionError):
        return False
