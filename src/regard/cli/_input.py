"""What commands read: texts from arguments, stdin and files of lines; models, indexes, names of heads."""

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from regard.cli._output import say, status
from regard.core.errors import InputError
from regard.core.wording import reason

if TYPE_CHECKING:
    from regard.api import Model
    from regard.concordance import Concordance


# No model takes this much text at once, and a device or a pipe may never end.
_STDIN_AT_MOST = 4_000_000


def load_model(name: str) -> "Model":
    """Load a model with a spinner on a terminal: importing torch takes seconds."""
    with status(f"loading {name}"):
        # Here and not above: `regard --help` must not wait for torch.
        from regard.api import load

        model = load(name)
    for note in model.loaded.notes:
        say(f"note: {note}")
    return model


def open_index(path: Path, model: str | None = None) -> "Concordance":
    """An index, with a spinner on a terminal: importing torch takes seconds."""
    with status(f"opening {path}"):
        from regard.concordance import Concordance

    loading = status("loading the model")
    return Concordance(path, None if model is None else load_model(model), loading=loading)


def read_texts(arguments: Sequence[str]) -> list[str]:
    """The arguments themselves, or what stdin holds where one is "-"."""
    # The second - would get nothing.
    if list(arguments).count("-") > 1:
        raise InputError("- can stand for one text only: stdin is read once.")
    for each in arguments:
        # Nobody means the letters of a file's name, but a text may be one by chance.
        if each != "-" and os.path.exists(each):
            hint = "a model goes with --model" if os.path.isdir(each) else f"to read the file: - < {each}"
            say(f"{each!r} is read as a text, though a file or folder has that name; {hint}")
    return [_read_stdin() if each == "-" else as_typed(each) for each in arguments]


def _read_stdin() -> str:
    if sys.stdin is None:
        raise InputError("- reads the text from stdin, but stdin is closed.")
    # One byte more than is taken, to know that there is more.
    data = sys.stdin.buffer.read(_STDIN_AT_MOST + 1)
    if len(data) > _STDIN_AT_MOST:
        raise InputError(
            f"stdin holds more than {_STDIN_AT_MOST} bytes, far over any model's limit; give a part."
        )
    # Without the mark and the line end that editors and echo add.
    return decoded(data, "stdin").removeprefix("\ufeff").rstrip("\r\n")


def read_messages(path: Path) -> list[Any]:
    """The messages of a chat, a JSON list in a file; "-" is stdin."""
    with _open(path, "--messages") as file:
        text = decoded(file.read(_STDIN_AT_MOST), f"--messages {str(path)!r}")
    try:
        messages = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise InputError(f"--messages {str(path)!r} must be a JSON list ({reason(error)}).") from error
    if not isinstance(messages, list):
        raise InputError(f"--messages {str(path)!r} must be a JSON list of messages; it is none.")
    return messages


def as_typed(argument: str) -> str:
    """An argument as UTF-8: Python decodes by the locale, and keeps what does not fit as lone surrogates."""
    try:
        # Lone surrogates are the bytes that the locale could not decode.
        argument.encode("utf-8")
    except UnicodeEncodeError:
        return decoded(os.fsencode(argument), "the text")
    return argument


_HEAD = re.compile(r"(?:([^.,]+)\.)?(-?[0-9]{1,6})\.(-?[0-9]{1,6})")
_LAYER = re.compile(r"-?[0-9]{1,6}")


def parse_heads(option: str, words: str) -> list[Any]:
    """The heads of words such as LAYER.HEAD,KIND.LAYER.HEAD; the model says which of them there are.

    Example:
        >>> parse_heads("--values", "3.5, cross.1.0")
        [(3, 5), ('cross', 1, 0)]
    """
    heads: list[Any] = []
    for word in words.split(","):
        match = _HEAD.fullmatch(word.strip())
        if match is None:
            raise InputError(
                f"{option} must be layers and heads such as 3.5,4.1, with the kind of attention before them "
                f"where a model has several (cross.3.5); got {word!r}."
            )
        kind, layer, head = match.groups()
        heads.append((int(layer), int(head)) if kind is None else (kind, int(layer), int(head)))
    return heads


def parse_heads_or_layers(option: str, words: str) -> list[Any]:
    """The same, where a layer without a head stands for all of its heads.

    Example:
        >>> parse_heads_or_layers("--heads", "3.5,4")
        [(3, 5), 4]
    """
    heads: list[Any] = []
    for word in words.split(","):
        heads += [int(word)] if _LAYER.fullmatch(word.strip()) else parse_heads(option, word)
    return heads


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
    holds_text = False
    try:
        with _open(path, option) as file:
            # Line by line, so that a pipe is read as it comes.
            for number in range(1, sys.maxsize):
                line = file.readline(_LINE_AT_MOST + 1)
                if not line:
                    break
                where = f"line {number} of {option} {str(path)!r}"
                # A whole file as one line is a file of the old Mac's line ends.
                if number == 1 and line[-1:] != b"\n" and b"\r" in line.rstrip(b"\r"):
                    raise InputError(f"{where} ends in CR alone; convert them, as with tr '\\r' '\\n'.")
                if len(line) > _LINE_AT_MOST:
                    raise InputError(
                        f"{where} has more than {_LINE_AT_MOST} bytes, far over any model's limit; give one "
                        "text a line."
                    )
                text = decoded(line, where)
                # A file of blank lines holds nothing to work on.
                holds_text = holds_text or bool(text.strip())
                if blank_too or text.strip():
                    yield number, (text.removeprefix("\ufeff") if number == 1 else text).rstrip("\r\n")
    except OSError as error:
        raise InputError(f"{option} {str(path)!r} cannot be read ({error.strerror or error}).") from error
    if not holds_text:
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
        # Counting a pipe would use it up.
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
    # stdin is not closed: it is not ours.
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
