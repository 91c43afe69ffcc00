"""`regard tokenizer`: tokenizers learned from texts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from regard.cli._csv_options import DelimiterOption, EscapeOption, NoHeaderOption
from regard.cli._errors import Command
from regard.cli._options import JsonOption, check_new, check_outputs, print_json, print_path
from regard.cli._progress import Progress
from regard.core.errors import InputError, OutputError
from regard.core.files import write_whole
from regard.core.wording import reason

if TYPE_CHECKING:
    from regard.data import Unit
    from regard.text import Tokenizer, TokenizerKind

app = typer.Typer(help="Learn a tokenizer from texts.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _root() -> None:
    """Learn a tokenizer from texts."""


@app.command(
    cls=Command,
    short_help="Learn a tokenizer from texts.",
    epilog="Example: regard tokenizer train train.en train.de --marks bart --size 6000 -o tokenizer",
)
def train(
    texts: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA...",
            help="Files or folders: plain text, JSON lines, CSV, TSV or Parquet, compressed too; - is stdin.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="A folder; or a .json file, which does not say what its special tokens are for.",
        ),
    ],
    kind: Annotated[
        str, typer.Option("--kind", metavar="KIND", help="bpe, wordpiece, unigram or characters.")
    ] = "bpe",
    size: Annotated[
        int, typer.Option("--size", metavar="N", help="Tokens at most, special ones included.")
    ] = 8000,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Turn capitals into small letters.")] = False,
    marks: Annotated[
        str | None,
        typer.Option(
            "--marks",
            metavar="FAMILY",
            help="The special tokens of gpt2, bert, bart or t5, or none; by default the kind decides.",
        ),
    ] = None,
    special: Annotated[
        list[str] | None,
        typer.Option("--special", metavar="TOKEN", help="One more special token; give it again for more."),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", metavar="COLUMN", help='Give it twice to learn from two; by default "text".'),
    ] = None,
    unit: Annotated[
        str,
        typer.Option(
            "--unit", metavar="WHAT", help="What is one text in plain text: line, paragraph or file."
        ),
    ] = "line",
    format: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="The format of DATA: text, jsonl, csv, tsv, parquet."),
    ] = None,
    delimiter: DelimiterOption = None,
    escape: EscapeOption = None,
    no_header: NoHeaderOption = False,
    encoding: Annotated[
        str,
        typer.Option(
            "--encoding", metavar="NAME", help="The encoding of text, JSON lines and CSV, such as cp1252."
        ),
    ] = "utf-8",
    as_json: JsonOption = False,
) -> None:
    """Learn a tokenizer from texts, and write the tokenizer.json that regard and transformers load."""
    check_outputs({"--output": output})
    check_new(output if output.suffix == ".json" else output / "tokenizer.json")
    if not output.absolute().parent.is_dir():
        raise InputError(f"--output must be in a folder that exists; got {str(output)!r}.")
    from regard.data import Csv, Rows
    from regard.text import train_tokenizer

    columns = tuple(text or ("text",))
    csv = Csv(delimiter=delimiter, escape=escape, header=not no_header)
    rows = Rows(texts, columns, unit=cast("Unit", unit), format=format, csv=csv, encoding=encoding)
    with Progress() as progress:
        learned = train_tokenizer(
            (row.text(column) for row in rows for column in columns),
            kind=cast("TokenizerKind", kind),
            size=size,
            lowercase=lowercase,
            marks=marks,
            special=tuple(special or ()),
            on_texts=lambda count: progress.show(count, None, "then the vocabulary is learned"),
        )
    _write(learned, output)
    if as_json:
        facts: dict[str, Any] = {"path": str(output), "tokens": learned.vocab_size, "sha256": learned.mark()}
        print_json(facts)
        return
    typer.echo(f"{learned.vocab_size:,} tokens")
    print_path(output)


def _write(learned: "Tokenizer", output: Path) -> None:
    from regard.text import write_tokenizer

    if output.suffix == ".json":
        write_whole(output, learned.to_str().encode())
        return
    try:
        output.mkdir(exist_ok=True)
        write_tokenizer(learned, output)
    except OSError as error:
        raise OutputError(
            f"{str(output)!r} cannot be written ({reason(error)}); choose a folder that is yours."
        ) from error
