"""The `regard` command: its subcommands, and how errors reach the user."""

import codecs
import os
import sys
from typing import Annotated

import typer

from regard._version import __version__
from regard.cli import compare, embed, explain, heads, look, models, prune
from regard.cli._errors import Command, UsageError, usage
from regard.cli._progress import say
from regard.cli._ray_option import RayCommand
from regard.core.errors import InputError, ModelNotFoundError, RegardError

app = typer.Typer(
    name="regard",
    help="See, measure and use self-attention on real transformers.",
    epilog="`regard COMMAND --help` shows a command's options and an example. Exit codes: 0 done, 1 failed, "
    "2 wrong command line, or an input or model that is not there. REGARD_TRACEBACK=1 shows where an error "
    "came from.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(
    "look",
    short_help="Draw every head's attention: one page.",
    epilog='Example: regard look "He sat by the river bank." -o bank.html',
    cls=Command,
)(look.look)
app.command(
    "explain",
    short_help="Work out one word's attention, step by step.",
    epilog='Example: regard explain "He sat by the river bank." --word bank -l 3',
    cls=Command,
)(explain.explain)
app.command(
    "compare",
    short_help="Compare one word between sentences, layer by layer.",
    epilog='Example: regard compare "A river bank." "A bank loan." --word bank',
    cls=Command,
)(compare.compare)
app.command(
    "embed",
    short_help="Embed many texts: words, tokens or sentences.",
    epilog="Example: regard embed texts.parquet --id-column id -o vectors",
    cls=RayCommand,
)(embed.embed)
app.command(
    "prune",
    short_help="Write a smaller model without some heads.",
    epilog="Example: regard prune 3.5,4.1 -o smaller",
    cls=Command,
)(prune.prune)
app.command(
    "heads",
    short_help="Say what each head does: a pattern, how strong, how sure.",
    epilog='Example: regard heads "The cat sat on the mat, and the dog on the rug."',
    cls=Command,
)(heads.heads)
app.add_typer(models.app, name="models", short_help="List and show what can be loaded from here.")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version


def main() -> None:
    """Run the command line, and exit: 0 when it is done, 1 when it failed, 2 when it could not be begun.

    2 is for a wrong command line, for a file or model to read that is not there, and for a new folder that
    is. REGARD_TRACEBACK=1 shows where an error came from.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            # A terminal that cannot show a character must not end the program.
            stream.reconfigure(errors=_PLAINLY)  # type: ignore[union-attr]
    try:
        if sys.stdout is None:
            raise OSError(None, "it is closed")
        sys.exit(app(prog_name="regard", standalone_mode=False) or 0)
    except UsageError as error:
        if "\n" in error.format_message():  # the help of a command without arguments
            typer.echo(error.format_message(), err=True)
            sys.exit(2)
        _fail(usage(error), 2)
    except RegardError as error:
        _fail(str(error), 2 if isinstance(error, InputError | ModelNotFoundError) else 1)
    except OSError as error:
        # Not a file of regard's own, whose errors are OutputErrors, nor a reader that went away (`| head`),
        # where typer ends quietly. What is left in the buffer must not be tried again at exit.
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        where = "stdout" if error.filename is None else repr(error.filename)
        _fail(f"{where} cannot be used ({error.strerror or error})", 1)


def _fail(message: str, code: int) -> None:
    if os.environ.get("REGARD_TRACEBACK"):
        raise  # the error that is being handled
    say(message)
    sys.exit(code)


_PLAINLY = "regard.plainly"
_PLAIN = {"“": '"', "”": '"', "…": "...", "█": "#", "√": "sqrt "}


def _plainly(error: UnicodeError) -> tuple[str, int]:
    """A replacement for characters that a stream's encoding lacks: plain signs, or escapes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    plain = (_PLAIN.get(char) or char.encode("ascii", "backslashreplace").decode() for char in missing)
    return "".join(plain), error.end


codecs.register_error(_PLAINLY, _plainly)
