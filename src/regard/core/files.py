"""Files: written whole or not at all, in folders that a process locks; small ones read, JSON strictly.

The lock dies with its process. What the standard parser of JSON lets pass in silence is an error here.
"""

import json
import os
import secrets
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from regard.core.arguments import path_of
from regard.core.errors import CheckpointError, OutputError
from regard.core.wording import reason


def write_whole(path: str | os.PathLike[str], content: bytes | Callable[[Path], None]) -> None:
    """Write a file under a temporary name beside its place, then rename it: readers never see a part of it.

    A file that is there is replaced; a link is followed; the folder must exist. `content` is the bytes, or a
    function that writes them to the path it is given. After an OutputError what was there before is still
    there, and nothing else is.
    """
    file = path_of("path", path)
    try:
        # Resolved: a symbolic link keeps pointing at the file that is replaced.
        _replace(file.resolve(), content)
    except (OSError, RuntimeError, ValueError) as error:  # resolve(): RuntimeError in a loop, ValueError NUL
        raise OutputError(
            f"{os.fspath(path)!r} cannot be written ({reason(error)}); choose a file in a folder that exists "
            "and is yours to write in."
        ) from error


def _replace(target: Path, content: bytes | Callable[[Path], None]) -> None:
    # A device or a pipe would be replaced by a plain file: for root that destroys /dev/null.
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        raise OSError(None, "it exists and is not a plain file")
    # A rename needs no right to the file itself: one that is protected would be replaced all the same.
    if target.exists() and not os.access(target, os.W_OK):
        raise OSError(None, "it is read-only")
    # In the same folder: only within a file system is renaming one step.
    temporary = target.with_name(f".regard-{secrets.token_hex(8)}.tmp")
    try:
        # open() and not tempfile: the file gets the permissions that the user's umask gives any file,
        # also where a library that fills it would make it private.
        with open(temporary, "xb") as file:
            # The permissions of an ordinary new file, for one that a library writes.
            mode = os.fstat(file.fileno()).st_mode
            if not callable(content):
                file.write(content)
                _to_disk(file)
        if callable(content):
            content(temporary)
            with open(temporary, "r+b") as file:
                _to_disk(file)
            temporary.chmod(mode)
        # From here on readers see the new file, whole.
        os.replace(temporary, target)
    # Also on Ctrl-C: nothing half-written is left behind.
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _to_disk(file: IO[bytes]) -> None:
    """Wait until a file is on disk. It must be open for writing: Windows flushes no other."""
    file.flush()
    os.fsync(file.fileno())


def folder_to_disk(folder: Path) -> None:
    """Wait until all files of a folder are on disk, before it gets the name that others look for."""
    # First the files, then the folder's own list of names.
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("r+b") as file:
                _to_disk(file)
    if hasattr(os, "O_DIRECTORY"):  # Windows flushes no folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# Windows keeps others from reading the byte that is locked, the first: who holds it stands behind that byte.
_HOLDER = 1


@contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """Holds a lock on an open file. The file says who holds it, and is removed at the end."""
    path = folder / name
    file = _taken(path)
    try:
        yield
    finally:
        try:
            path.unlink()  # before the lock is given back: nobody is to lock a file that is about to go
            os.close(file)
        except OSError:  # Windows removes no open file
            os.close(file)
            with suppress(OSError):
                path.unlink()


def _taken(path: Path) -> int:
    from filelock import lock_descriptor  # 40 ms, which commands that only read need not wait for

    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            # Another process holds it: its line in the file says which.
            if not lock_descriptor(file, blocking=False):
                os.lseek(file, _HOLDER, os.SEEK_SET)
                raise _refusal(path, os.read(file, 200).decode("ascii", "replace"))
            # Whoever held it before may have removed the file in the meantime: then this lock is of no use.
            with suppress(FileNotFoundError):
                # Only if the name still stands for the file that is locked.
                if os.path.samestat(os.fstat(file), path.stat()):
                    os.ftruncate(file, 0)
                    os.write(file, f" process {os.getpid()} on {ascii(socket.gethostname())[1:-1]}".encode())
                    return file
        # Nothing stays open where the lock was not taken.
        except BaseException:
            # Removed in between: open the new one.
            os.close(file)
            raise
        os.close(file)


def _refusal(path: Path, holder: str) -> OutputError:
    return OutputError(
        f"{str(path.parent)!r} is being written to by another job"
        + (f", {holder}" if holder else "")
        + ". Wait until it ends, or stop it and go on here."
    )


SMALL: Final = 100_000_000
"""The most bytes of a file that is read whole: a tokenizer of 262,144 pieces, the largest known, has a third
of it, and safetensors gives its header no more."""


def plain_file(file: Path, most: float = SMALL) -> Path:
    """The path of a plain file with at most so many bytes; OSError says what else is there.

    A device may never end, and whoever opens a pipe waits until somebody writes.
    """
    try:
        status = file.stat()
    except ValueError as error:  # a NUL, or half of a surrogate pair
        raise OSError(None, reason(error)) from error
    # A pipe or a device could be read without end.
    if not stat.S_ISREG(status.st_mode):
        raise OSError(None, "it is not a plain file")
    if status.st_size > most:
        raise OSError(None, f"it has {status.st_size:,} bytes, over {most:,}")
    return file


def read_object(file: Path) -> dict[str, object]:
    """The JSON object in a file; a CheckpointError where there is no file with one strict JSON object."""
    return parse_object(read_small(file), str(file))


def read_objects(file: Path) -> list[dict[str, object]]:
    """The list of JSON objects in a file, such as `modules.json`; a CheckpointError where there is none."""
    # The kind is named in errors as JSON names it.
    value = parse_json(read_small(file), str(file))
    if not isinstance(value, list):
        raise CheckpointError(f"{file}: the JSON must be a list; got {json_kind(value)}")
    for number, item in enumerate(value):
        if not isinstance(item, dict):
            raise CheckpointError(
                f"{file}: the JSON must be a list of objects; got {json_kind(item)} at {number}"
            )
    return value


def read_small(file: Path) -> bytes:
    """The bytes of a plain file of at most `SMALL`; a CheckpointError where there is none."""
    try:
        return plain_file(file).read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{file}: no such file; a model folder needs it") from None
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read ({reason(error)})") from error


def parse_object(data: bytes, where: str) -> dict[str, object]:
    """The JSON object in `data`; `where` names its origin in errors.

    A key that occurs twice is an error, because parsers disagree about which of the two counts, and so are
    `NaN` and `Infinity`, which are not JSON, and half of a surrogate pair, which no file or path can hold.

    >>> parse_object(b'{"hidden_size": 384}', "config.json")
    {'hidden_size': 384}
    >>> parse_object(b'{"a": 1, "a": 2}', "config.json")
    Traceback (most recent call last):
    regard.core.errors.CheckpointError: config.json: not valid JSON (the key 'a' occurs twice)
    """
    value = parse_json(data, where)
    if not isinstance(value, dict):
        raise CheckpointError(f"{where}: the JSON must be an object; got {json_kind(value)}")
    return value


def parse_json(data: bytes, where: str) -> object:
    """Whatever JSON is in `data`, as strictly."""
    try:
        text = data.decode("utf-8")
        # Strict: no key twice, no NaN, no half of a surrogate pair.
        value = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
        # Only an escape can make half a pair: encoding finds it.
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        return value
    # Before ValueError, which it is one of.
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{where}: not valid UTF-8 ({reason(error)})") from error
    except UnicodeEncodeError as error:
        half = f"U+{ord(error.object[error.start]):04X}"
        raise CheckpointError(f"{where}: half of a surrogate pair in a string ({half})") from error
    # RecursionError: brackets nested deeper than Python's stack.
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where}: not valid JSON ({reason(error)})") from error


def json_kind(value: object) -> str:
    """What JSON calls a value: `null`, `bool`, `int`, `float`, `string`, `list` or `object`.

    >>> json_kind(True), json_kind(1), json_kind(None)
    ('bool', 'int', 'null')
    """
    names: dict[type, str] = {bool: "bool", int: "int", float: "float", str: "string", list: "list"}
    return "null" if value is None else names.get(type(value), "object")


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    seen: dict[str, object] = {}
    for key, value in pairs:
        if key in seen:
            raise ValueError(f"the key {key!r} occurs twice")
        seen[key] = value
    return seen


def _refuse_constant(constant: str) -> object:
    raise ValueError(f"{constant} is not a JSON number")
