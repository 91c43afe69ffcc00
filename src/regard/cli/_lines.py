"""Files of texts, one a line, read as they are needed."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO

from regard.core.errors import InputError

# No model takes this much text at once; a file without line ends would fill the memory.
_LINE_AT_MOST = 4_000_000


def read_lines(path: Path, option: str, *, blank_too: bool = False) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file that hold more than blanks, with their numbers from 1; "-" is stdin.

    Args:
        path: the file.
        option: what it was given as, for messages.
        blank_too: whether blank lines count: where line n of two files belong together.

    Raises:
        InputError: it cannot be read, is not text in UTF-8, or holds no line with text.
    """
    found = False
    try:
        with _open(path, option) as file:
            for number in range(1, sys.maxsize):
                line = file.readline(_LINE_AT_MOST + 1)
                if not line:
                    break
                where = f"line {number} of {option} {str(path)!r}"
                if number == 1 and line[-1:] != b"\n" and b"\r" in line.rstrip(b"\r"):
                    raise InputError(f"{where} ends in CR alone; convert them, as with tr '\\r' '\\n'.")
                if len(line) > _LINE_AT_MOST:
                    raise InputError(
                        f"{where} has more than {_LINE_AT_MOST} bytes, far over any model's limit; give one "
                        "text a line."
                    )
                text = decoded(line, where)
                found = found or bool(text.strip())
                if blank_too or text.strip():
                    yield number, (text.removeprefix("\ufeff") if number == 1 else text).rstrip("\r\n")
    except OSError as error:
        raise InputError(f"{option} {str(path)!r} cannot be read ({error.strerror or error}).") from error
    if not found:
        raise InputError(f"{option} {str(path)!r} holds no text; give a file with one text a line.")


def check_lines(path: Path, option: str) -> None:
    """Refuse a file that cannot be opened, before work that takes long; a pipe, read only once, is left."""
    if not path.is_fifo():
        with _open(path, option):
            pass


def count_lines(path: Path) -> int | None:
    """How many lines of a plain file hold more than blanks; None for a pipe, which can be read only once.

    A file that cannot be read has none: `read_lines` says why.
    """
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return sum(1 for line in file if line.strip())
    except (OSError, ValueError):
        return None


def _open(path: Path, option: str) -> AbstractContextManager[IO[bytes]]:
    if str(path) != "-":
        try:
            return path.open("rb")
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            why = getattr(error, "strerror", None) or error
            raise InputError(f"{option} {str(path)!r} cannot be read ({why}).") from error
    if sys.stdin is None:
        raise InputError(f"{option} - reads stdin, but stdin is closed.")
    return nullcontext(sys.stdin.buffer)


def decoded(data: bytes, what: str) -> str:
    """UTF-8 as text.

    Args:
        data: the bytes.
        what: they are, for messages.

    Raises:
        InputError: they are not UTF-8, or hold a NUL as UTF-16 does.
    """
    if b"\0" in data:
        raise InputError(
            f"{what} must be UTF-8; byte {data.index(0)} is NUL. If it is UTF-16, convert it, for "
            "example with iconv -f utf-16 -t utf-8."
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{what} must be UTF-8; byte {error.start} is 0x{data[error.start]:02x}. Convert it, for "
            "example with iconv -t utf-8."
        ) from error
