"""The `regard` command: its subcommands, and how errors reach the user."""

import codecs
import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from regard._version import __version__
from regard.cli import (
    compare,
    concordance,
    embed,
    eval,
    explain,
    generate,
    heads,
    look,
    models,
    prune,
    scaling,
    serve,
    tokenizer,
    train,
    translate,
)
from regard.cli._output import say
from regard.cli._usage import Command, UsageError, usage
from regard.cli.embed import RayCommand
from regard.core.errors import InputError, ModelNotFoundError, OtherProcessError, RegardError

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
# In the order of --help: first what shows attention, then what uses it.
# Each command with what the list of commands says of it, and an example.
_COMMANDS: dict[Callable[..., None], tuple[str, str]] = {
    look.look: ("Draw every head's attention: one page.", '"He sat by the river bank." -o bank.html'),
    explain.explain: (
        "Work out one word's attention, step by step.",
        '"He sat by the river bank." --word bank -l 3',
    ),
    compare.compare: (
        "Compare one word between sentences, layer by layer.",
        '"A river bank." "A bank loan." --word bank',
    ),
    embed.embed: (
        "Embed many texts: words, tokens or sentences.",
        "texts.parquet --id-column id -o vectors",
    ),
    concordance.index: (
        "Index a corpus by its words, for find and count.",
        "corpus.jsonl --meta genre --date-column year -o corpus.index",
    ),
    concordance.find: (
        "Find a word where it means what it means in a sentence.",
        'corpus.index --in "She sat on the bank of the river." --word bank',
    ),
    concordance.count: (
        "Count words: frequencies, keywords, collocates.",
        "corpus.index --word bank --by genre",
    ),
    prune.prune: ("Write a smaller model without some heads.", "3.5,4.1 -o smaller"),
    heads.heads: (
        "Say what each head does: a pattern, how strong, how sure.",
        '"The cat sat on the mat, and the dog on the rug."',
    ),
    generate.generate: ("Go on with a text.", '"The man sat on the river" -m gpt2 --top-p 0.9 --seed 1'),
    translate.translate: (
        "Translate or summarise, line by line.",
        "texts.en -m Helsinki-NLP/opus-mt-en-de --beams 4 -o texts.de",
    ),
    generate.fill: (
        "Guess the words behind masks.",
        '"The man sat on the river [MASK]." -m bert-base-uncased',
    ),
    scaling.scaling: ("Measure what attention costs as texts grow.", "--lengths 512,1024,2048 -o cost.svg"),
    concordance.senses: (
        "Put the uses of a word into groups by what they mean.",
        "news bank --file bank.json --page bank.html",
    ),
    concordance.drift: (
        "Measure how the use of a word differs between periods.",
        "news bank --bins 1950,1980",
    ),
    eval.eval: ("Score a model on files, as while it is trained.", "run test.csv --json"),
    serve.serve: (
        "Serve models over HTTP: OpenAI's embeddings API and more.",
        "-m sentence-transformers/all-MiniLM-L6-v2 --port 8000",
    ),
    concordance.tune_layer: (
        "Find the layers that tell senses apart best.",
        "wic/train.data.txt -m bert-base-uncased -o layers.json",
    ),
}
# Names are those of the functions, with - for _.
for _run, (_does, _example) in _COMMANDS.items():
    app.command(
        (_name := _run.__name__.replace("_", "-")),
        short_help=_does,
        epilog=f"Example: regard {_name} {_example}",
        cls=RayCommand if _run is embed.embed else Command,
    )(_run)
app.add_typer(train.app, name="train", short_help="Train a transformer from text, pairs or labels.")
app.add_typer(tokenizer.app, name="tokenizer", short_help="Learn a tokenizer from texts.")
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
    # None under pythonw, and where it was closed.
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            # A terminal that cannot show a character must not end the program.
            stream.reconfigure(errors=_PLAINLY)  # type: ignore[union-attr]
    try:
        # Nothing could be printed: said at once, not after the work.
        if sys.stdout is None:
            raise OSError(None, "it is closed")
        sys.exit(app(prog_name="regard", standalone_mode=False) or 0)
    except UsageError as error:
        if "\n" in error.format_message():  # the help of a command without arguments
            typer.echo(error.format_message(), err=True)
            sys.exit(2)
        _fail(usage(error), 2)
    except OtherProcessError:  # which says why
        _fail(None, 1)
    except RegardError as error:
        # 2 is what the user can correct by typing something else.
        _fail(str(error), 2 if isinstance(error, InputError | ModelNotFoundError) else 1)
    except OSError as error:
        # Not a file of regard's own, whose errors are OutputErrors, nor a reader that went away (`| head`),
        # where typer ends quietly. What is left in the buffer must not be tried again at exit.
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        where = "stdout" if error.filename is None else repr(error.filename)
        _fail(f"{where} cannot be used ({error.strerror or error})", 1)


def _fail(message: str | None, code: int) -> None:
    if os.environ.get("REGARD_TRACEBACK"):
        # Within an except clause: Python prints the traceback of the error.
        raise
    if message is not None:
        say(message)
    sys.exit(code)


_PLAINLY = "regard.plainly"
_PLAIN = {"“": '"', "”": '"', "…": "...", "█": "#", "√": "sqrt "}


def _plainly(error: UnicodeError) -> tuple[str, int]:
    """A replacement for characters that a stream's encoding lacks: plain signs, or escapes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    # Sign by sign: what is known has a plain form.
    missing = error.object[error.start : error.end]
    plain = (_PLAIN.get(char) or char.encode("ascii", "backslashreplace").decode() for char in missing)
    return "".join(plain), error.end


codecs.register_error(_PLAINLY, _plainly)
