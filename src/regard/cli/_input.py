"""What commands read: texts from arguments and stdin, models and indexes."""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli._lines import decoded
from regard.cli._progress import say, status
from regard.core.errors import InputError

if TYPE_CHECKING:
    from regard.concordance import Concordance
    from regard.model import Model


# No model takes this much text at once, and a device or a pipe may never end.
_STDIN_AT_MOST = 4_000_000


def load_model(name: str) -> "Model":
    """Load a model with a spinner on a terminal: importing torch takes seconds."""
    with status(f"loading {name}"):
        from regard.model import load

        model = load(name)
    for note in model.loaded.notes:
        say(f"note: {note}")
    return model


def open_index(path: Path, model: str | None = None) -> "Concordance":
    """An index, with a spinner on a terminal: importing torch takes seconds."""
    with status(f"opening {path}"):
        from regard.concordance import Concordance

        return Concordance(path, model)


def read_texts(arguments: Sequence[str]) -> list[str]:
    """The arguments themselves, or what stdin holds where one is "-"."""
    if list(arguments).count("-") > 1:
        raise InputError("- can stand for one text only: stdin is read once.")
    return [_read_stdin() if each == "-" else as_typed(each) for each in arguments]


def _read_stdin() -> str:
    if sys.stdin is None:
        raise InputError("- reads the text from stdin, but stdin is closed.")
    data = sys.stdin.buffer.read(_STDIN_AT_MOST + 1)
    if len(data) > _STDIN_AT_MOST:
        raise InputError(
            f"stdin holds more than {_STDIN_AT_MOST} bytes, far over any model's limit; give a part."
        )
    return decoded(data, "stdin").removeprefix("\ufeff").rstrip("\r\n")


def as_typed(argument: str) -> str:
    """An argument as UTF-8: Python decodes by the locale, and keeps what does not fit as lone surrogates."""
    try:
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
        found = _HEAD.fullmatch(word.strip())
        if found is None:
            raise InputError(
                f"{option} must be layers and heads such as 3.5,4.1, with the kind of attention before them "
                f"where a model has several (cross.3.5); got {word!r}."
            )
        kind, layer, head = found.groups()
        heads.append((int(layer), int(head)) if kind is None else (kind, int(layer), int(head)))
    return heads


def parse_heads_or_layers(option: str, words: str) -> list[Any]:
    """The same, where a layer without a head stands for all of its heads.

    Example:
        >>> parse_heads_or_layers("--heads", "3.5,4")
        [(3, 5), 4]
    """
    found: list[Any] = []
    for word in words.split(","):
        found += [int(word)] if _LAYER.fullmatch(word.strip()) else parse_heads(option, word)
    return found
