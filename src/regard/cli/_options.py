"""Options and arguments as rows: what is typed, what it means, its default; and errors that name them so."""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import typer
from typer.core import TyperCommand

from regard.core.errors import InputError

# A copy of `checkpoints.DEFAULT_MODEL`, which cannot be imported without torch; a test compares the two.
DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"


# Rows are defaults of parameters, not typer's `Annotated`: so each is a line, with its own default in it.
def option(typed: str, help: str, default: Any = None, **limits: Any) -> Any:
    """An option that takes a value: `option("--layer -l N", "Which layer, from 0.", -1)`."""
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

_MODEL = "--model -m MODEL", "A folder, a name on the hub, or the folder of a run."
MODEL = option(*_MODEL, DEFAULT_MODEL)
WRITING_MODEL = option(*_MODEL)  # the default model does not write
INDEX_MODEL = option("--model -m MODEL", "By default that of INDEX, or the usual one.")

TARGET = option("--target TEXT", "The decoder's text, in an encoder-decoder.")
KIND = option("--kind -k KIND", "Which attention: encoder, decoder or cross.")

INDEX = argument("INDEX", "The folder of an index, as regard index makes it.")
WHERE = option(
    "--where COND", 'Only there, such as genre=news, "year>=1990", "text~river" or @NAME; all that are given.'
)
TABLE = option("--output -o FILE", "Write a .csv, .jsonl or .parquet file.")

DELIMITER = option("--delimiter CHAR", r"The delimiter of CSV, if it is not a comma; \t is a tab.")
ESCAPE = option("--escape CHAR", r"The escape of CSV, such as \ of Spark and MySQL.")
NO_HEADER = flag("--no-header", "CSV begins with its first row; the columns are 1, 2, ...")
ENCODING = option("--encoding NAME", "The encoding of text, JSON lines and CSV, such as cp1252.", "utf-8")


UsageError: Final[Any] = typer.BadParameter.__base__
"""What typer raises for a command line that it cannot read; typer names only this class below it."""

_ALIASES: Final = {
    "num_tokens": "tokens",
    "texts": "text",
    "count": "best",
    "selector": "word",
    "data.train": "data",
    "data.train_target": "target",
    "data.valid": "valid",
    "data.valid_target": "valid_target",
    "tokenizer.path": "tokenizer",
    "set": "changes",
}
"""Arguments of the Python below whose options have other names."""

_IN_WORDS: Final = (
    (r"(?:Value error, )?(.+) is not one of (.+?)\.?", r"must be one of \2; got \1"),
    (r"Input should be a valid integer.*", "must be a whole number"),
    (r"Input should be a (?:valid|finite) number.*", "must be a number"),
    (r"Input should be greater than or equal to (.+)", r"must be at least \1"),
    (r"(.+) is not a valid integer\.", r"must be a whole number; got \1"),
    (r"(.+) is not a valid float.*", r"must be a number; got \1"),
    (r"(.+) is not in the range x>=(.+)\.", r"must be at least \2; got \1"),
)
"""What typer says of a value (newer ones by pydantic, older ones by click), and what regard says."""


class Command(TyperCommand):
    """A command whose errors name its options, not the arguments of the Python below."""

    def invoke(self, ctx: Any) -> Any:
        """See `click.Command.invoke`."""
        try:
            return super().invoke(ctx)
        except InputError as error:
            raise InputError(in_options(str(error), typed_names(self.params))) from error


def typed_names(parameters: Sequence[Any]) -> dict[str, str]:
    """What is typed for each parameter: its long option, or what --help calls the argument."""
    return {
        each.name: max(each.opts, key=len) if each.opts[0][0] == "-" else each.metavar for each in parameters
    }


def in_options(message: str, names: Mapping[str, str]) -> str:
    """The message with options for arguments, and none of Python's words.

    Example:
        >>> in_options("target must be None: this model has no decoder.", {"target": "--target"})
        '--target must be left out: this model has no decoder.'
    """
    known = dict(names) | {ours: names[theirs] for ours, theirs in _ALIASES.items() if theirs in names}
    begins = re.match(r"(\w+(?:\.\w+)*)(?=(?:\[.+?\])? (?:must|is|has|names)\b|: )", message)
    if begins is not None and begins[1] in known:
        message = known[begins[1]] + message[begins.end() :]
    return message.replace(" must be None", " must be left out")


def usage(error: Any) -> str:
    """What is wrong with a command line, in one line."""
    message: str = error.format_message()
    wrong = re.fullmatch(r"Invalid value for (.+?): (.+)", message)
    if wrong is not None:
        name = max(re.findall(r"'(.+?)'", wrong[1]) or [wrong[1]], key=len)
        for pattern, words in _IN_WORDS:
            found = re.fullmatch(pattern, wrong[2])
            if found is not None:
                return f"{name} {found.expand(words)}{_got(error)}."
        return f"{name}: {wrong[2]}"
    help_of = "" if error.ctx is None else f" See {error.ctx.command_path} --help."
    return f"{message.rstrip('.')}.{help_of}"


def _got(error: Any) -> str:
    """What came, where pydantic says so."""
    errors: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    return f"; got {errors[0]['input']!r}" if errors and errors[0]["type"] != "value_error" else ""
