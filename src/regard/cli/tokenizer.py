"""`regard tokenizer`: tokenizers learned from texts."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from regard.cli._options import DELIMITER, ENCODING, ESCAPE, JSON, NO_HEADER, argument, flag, option
from regard.cli._output import BarOrLines, check_folder, check_new, print_json, print_path
from regard.cli._usage import Command
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
    texts: list[Path] = argument(
        "DATA...",
        "Files or folders: plain text, JSON lines, CSV, TSV or Parquet, compressed too; - is stdin.",
    ),
    output: Path = option(
        "--output -o OUT",
        "A folder; or a .json file, which does not say what its special tokens are for.",
        ...,
    ),
    kind: str = option("--kind KIND", "bpe, wordpiece, unigram or characters.", "bpe"),
    size: int = option("--size N", "Tokens at most, special ones included.", 8000),
    lowercase: bool = flag("--lowercase", "Turn capitals into small letters."),
    marks: str | None = option(
        "--marks FAMILY",
        "The special tokens of gpt2, bert, bart or t5, or none; by default the kind decides.",
    ),
    special: list[str] | None = option("--special TOKEN", "One more special token; give it again for more."),
    text: list[str] | None = option("--text COLUMN", 'Give it twice to learn from two; by default "text".'),
    unit: str = option("--unit WHAT", "What is one text in plain text: line, paragraph or file.", "line"),
    format: str | None = option("--format NAME", "The format of DATA: text, jsonl, csv, tsv, parquet."),
    delimiter: str | None = DELIMITER,
    escape: str | None = ESCAPE,
    no_header: bool = NO_HEADER,
    encoding: str = ENCODING,
    as_json: bool = JSON,
) -> None:
    """Learn a tokenizer from texts, and write the tokenizer.json that regard and transformers load."""
    check_folder(output, ".json")
    # A tokenizer that models were trained with must not be lost.
    check_new(output if output.suffix == ".json" else output / "tokenizer.json")
    if not output.absolute().parent.is_dir():
        raise InputError(f"--output must be in a folder that exists; got {str(output)!r}.")
    from regard.data import Csv, Rows
    from regard.text import train_tokenizer

    # The column of plain text is called "text" too.
    columns = tuple(text or ("text",))
    csv = Csv(delimiter=delimiter, escape=escape, header=not no_header)
    rows = Rows(texts, columns, unit=cast("Unit", unit), format=format, csv=csv, encoding=encoding)
    with BarOrLines() as progress:
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

    # One file, or a folder with its settings.
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
