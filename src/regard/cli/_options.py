"""Options and arguments as rows: what is typed, what it means, its default."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import typer

from regard.core.errors import InputError

# Copies of those of `checkpoints`, which cannot be imported without torch; a test compares them.
DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
DEFAULT_DECODER = "smollm2"


# Rows are defaults of parameters, not typer's `Annotated`: so each is a line, with its own default in it.
def option(typed: str, help: str, default: Any = None, **limits: Any) -> Any:
    """An option that takes a value: `option("--layer -l N", "Which layer, from 0.", -1)`."""
    # The last word says what is typed after the name.
    *names, metavar = typed.split()
    return typer.Option(default, *names, metavar=metavar, help=help, **limits)


def flag(typed: str, help: str, default: bool | None = False) -> Any:
    """An option that takes none: `flag("--map", "The picture is a heat map.")`."""
    return typer.Option(default, *typed.split(), help=help)


def argument(typed: str, help: str, default: Any = ...) -> Any:
    """What is typed without a name; it must be given unless there is a default."""
    return typer.Argument(default, metavar=typed, help=help)


class Kind(StrEnum):
    """The kinds of attention, as words to type."""

    encoder = "encoder"
    decoder = "decoder"
    cross = "cross"


JSON = flag("--json", "Print the result as one JSON document.")

_MODEL = "--model -m MODEL", "A folder, a GGUF file, a name (`regard models`), or the folder of a run."
MODEL = option(*_MODEL, DEFAULT_MODEL)
DECODER = option(*_MODEL, DEFAULT_DECODER)
OTHER_MODEL = option(*_MODEL)  # neither fills gaps nor translates

TARGET = option("--target TEXT", "The decoder's text, in an encoder-decoder.")
KIND = option("--kind -k KIND", "Which attention: encoder, decoder or cross.")

DELIMITER = option("--delimiter CHAR", r"The delimiter of CSV, if it is not a comma; \t is a tab.")
ESCAPE = option("--escape CHAR", r"The escape of CSV, such as \ of Spark and MySQL.")
NO_HEADER = flag("--no-header", "CSV begins with its first row; the columns are 1, 2, ...")
ENCODING = option("--encoding NAME", "The encoding of text, JSON lines and CSV, such as cp1252.", "utf-8")

_AS_SETTINGS = {
    ", or give --format.": ".",
    "header=False (--no-header)": "--set data.csv.header=false",
    "delimiter (--delimiter)": "--set data.csv.delimiter=CHAR",
    "name its encoding": "name its encoding with --set data.encoding=NAME",
}


@contextmanager
def read_by_settings() -> Iterator[None]:
    """Errors about files name settings, where a command reads by these and has no options for it."""
    try:
        yield
    except InputError as error:
        # Messages below name options; here settings have their place.
        message = str(error)
        for option, setting in _AS_SETTINGS.items():
            message = message.replace(option, setting)
        # The columns that settings name.
        column = re.search(r"has no column '(text|target|label)'", message)
        if column and "delimiter" not in message:
            message = f"{message} Is it another column? Then give --set data.{column[1]}=NAME."
        raise type(error)(message) from error
