"""`regard embed`: vectors of words, tokens or sentences, of as many texts as there are."""

import json
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli._embed_progress import JobProgress, duration
from regard.cli._options import DEFAULT_MODEL, JsonOption, ModelOption, check_output, print_json, status
from regard.cli._ray_option import ray_workers
from regard.core.errors import InputError, RegardError

if TYPE_CHECKING:
    from regard.embedding.job import Inputs, RayWorkers, Summary, Work

    OpenWork = Callable[[Mapping[str, Any] | None], Work]


class Level(StrEnum):
    """What gets a vector."""

    sentence = "sentence"
    word = "word"
    token = "token"


class Pooling(StrEnum):
    """How the tokens of a sentence become one vector."""

    mean = "mean"
    cls = "cls"
    max = "max"
    last = "last"
    weighted_mean = "weighted_mean"
    mean_sqrt_len = "mean_sqrt_len"


class Precision(StrEnum):
    """What the model computes in."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    int16 = "int16"
    int8 = "int8"
    fast = "fast"


class Storage(StrEnum):
    """What a vector's entries are stored as."""

    float32 = "float32"
    float16 = "float16"
    int8 = "int8"
    ubinary = "ubinary"


class Format(StrEnum):
    """What an input is."""

    text = "text"
    jsonl = "jsonl"
    csv = "csv"
    tsv = "tsv"
    parquet = "parquet"


def embed(
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="IN...",
            help="Files or folders: plain text, JSON lines, CSV, TSV or Parquet, compressed too; - is stdin.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="A folder for Parquet files; a .npy file; - prints JSON.",
        ),
    ] = None,
    level: Annotated[
        Level, typer.Option("--level", metavar="WHAT", help="sentence, word or token: what gets a vector.")
    ] = Level.sentence,
    layer: Annotated[
        str, typer.Option("--layer", "-l", metavar="N[,N...]", help="0 is the table; several: a column each.")
    ] = "-1",
    mix: Annotated[
        str | None, typer.Option("--mix", metavar="N,N...", help="In place of --layer, the mean of these.")
    ] = None,
    pooling: Annotated[
        Pooling | None,
        typer.Option(
            "--pooling",
            metavar="HOW",
            help="mean, cls, max, last, weighted_mean, mean_sqrt_len; by default as the model has it.",
        ),
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option("--normalize/--no-normalize", help="To length 1; by default as the model has it."),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option("--window", metavar="N", help="Tokens at a time; by default the model's limit."),
    ] = None,
    overlap: Annotated[
        int | None, typer.Option("--overlap", metavar="N", help="Tokens that two windows share.")
    ] = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut texts off at the limit; by default windows take in all.")
    ] = False,
    prompt: Annotated[
        str | None, typer.Option("--prompt", metavar="TEXT", help="Put before each text.")
    ] = None,
    prompt_name: Annotated[
        str | None, typer.Option("--prompt-name", metavar="NAME", help="One of the model's own prompts.")
    ] = None,
    dims: Annotated[
        int | None, typer.Option("--dims", metavar="N", help="Keep the first N numbers of each vector.")
    ] = None,
    precision: Annotated[
        Precision,
        typer.Option(
            "--precision",
            metavar="TYPE",
            help="float32, bfloat16, int16 or int8 to compute in; fast: the fastest that is near float32.",
        ),
    ] = Precision.float32,
    storage: Annotated[
        Storage,
        typer.Option("--storage", metavar="TYPE", help="Vectors as float32, float16, int8 or ubinary."),
    ] = Storage.float32,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="By default cpu; cuda is a GPU.")
    ] = None,
    batch_tokens: Annotated[
        int | None, typer.Option("--batch-tokens", metavar="N", help="Tokens that are computed at once.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", metavar="N", help="By default as many as there are cores.")
    ] = None,
    text_column: Annotated[
        list[str] | None,
        typer.Option("--text-column", metavar="NAME", help='Give it twice to join two; by default "text".'),
    ] = None,
    id_column: Annotated[
        str | None, typer.Option("--id-column", metavar="NAME", help="Becomes the column id.")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", metavar="NAME", help="A column to carry along; give it again for more."),
    ] = None,
    format: Annotated[
        Format | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="Of IN: text, jsonl, csv, tsv, parquet; by default from its name and what it holds.",
        ),
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option("--delimiter", metavar="CHAR", help="Of CSV, where it is no comma.")
    ] = None,
    encoding: Annotated[
        str, typer.Option("--encoding", metavar="NAME", help="Of text, JSON lines and CSV, such as cp1252.")
    ] = "utf-8",
    max_rejected: Annotated[
        str | None,
        typer.Option(
            "--max-rejected", metavar="N|N%", help="Exit 1 where more rows are put aside; by default, all."
        ),
    ] = None,
    rows_per_shard: Annotated[
        int | None, typer.Option("--rows-per-shard", metavar="N", help="Rows of IN a file; by default 8192.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say rows, tokens, time and bytes, from a sample.")
    ] = False,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="[ADDRESS]",
            help="Embed on a Ray cluster, such as auto or HOST:PORT; without an address on this machine.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", help="With --ray: by default as many as find their threads."),
    ] = None,
    model: ModelOption = DEFAULT_MODEL,
    as_json: JsonOption = False,
) -> None:
    """Embed texts: one vector a sentence, or one a word or token in its context.

    OUT is a folder of Parquet files. Run the same command again after an interruption, of any kind: it goes
    on, and the result is that of one run. Rows that cannot be embedded are put aside, with the reason, in
    OUT/_quarantine.jsonl; _manifest.json says what the vectors were made with.
    """
    if output is None and not dry_run:
        raise InputError("--output names where the vectors go: a folder, a .npy file, or -.")
    if output is not None and output.suffix == ".npz":
        raise InputError("--output writes no .npz; give a folder, whose files hold the same, or a .npy.")
    if mix is not None and layer != "-1":
        raise InputError("give --layer or --mix, not both.")
    if truncate and overlap is not None:
        raise InputError("--overlap goes with windows, not with --truncate.")
    if workers is not None and ray is None:
        raise InputError("--workers goes with --ray.")
    if ray is not None and (dry_run or str(output) == "-"):
        raise InputError("--ray writes files: leave it out with --dry-run and -o -.")
    if ray is not None and device not in (None, "cpu"):
        raise InputError(f"--ray spreads over processors; got --device {device}. Give one of the two.")
    wanted = {
        "level": level.value,
        "layer": _numbers("--layer", layer),
        "mix": None if mix is None else _numbers("--mix", mix),
        "pooling": None if pooling is None else pooling.value,
        "normalize": normalize,
        "window": window,
        "overlap": overlap,
        "truncate": truncate,
        "prompt": prompt,
        "prompt_name": prompt_name,
        "truncate_dim": dims,
        "precision": precision.value,
        "storage": storage.value,
        "device": device,
        "batch_tokens": batch_tokens,
        "threads": threads,
    }
    to_stdout = output is not None and str(output) == "-"
    if to_stdout and as_json:
        raise InputError("-o - prints JSON lines by itself; leave --json out.")
    if output is not None and not to_stdout:
        check_output(output)
    with status("looking at the input"):
        from regard.embedding.job import SHARD_ROWS, Columns, Inputs

        columns = Columns(
            text=None if not text_column else tuple(text_column), id=id_column, keep=tuple(keep or ())
        )
        rows = Inputs(
            inputs,
            columns,
            format=None if format is None else format.value,
            delimiter=delimiter,
            encoding=encoding,
            copies=None if output is None or to_stdout else output.absolute().parent,
        )
    limit = _Limit(max_rejected)
    open_work = _opener(model, wanted)
    shard_rows = SHARD_ROWS if rows_per_shard is None else rows_per_shard
    if dry_run:
        _dry_run(rows, open_work, as_json)
    elif to_stdout:
        _print_lines(rows, open_work, shard_rows, limit)
    else:
        assert output is not None
        spread = partial(ray_workers, ray, workers, model, wanted)
        _run(rows, output, open_work, shard_rows, spread, limit, as_json)


def _numbers(option: str, words: str) -> list[int]:
    try:
        return [int(word) for word in words.split(",")]
    except ValueError:
        raise InputError(f"{option} must be a whole number, or several with commas; got {words!r}.") from None


def _opener(model: str, wanted: Mapping[str, Any]) -> "OpenWork":
    """Loads the model when the job asks for it, with a spinner: importing torch takes seconds."""

    def open_work(earlier: Mapping[str, Any] | None) -> "Work":
        with status(f"loading {model}"):
            from regard.embedding.job import open_model

            work = open_model(model, wanted, earlier)
        if wanted["precision"] != "float32":
            typer.echo(f"regard: computed in {work.about['computed']}", err=True)
        return work

    return open_work


class _Limit:
    """How many rows may be put aside.

    Args:
        words: of the option: a number, or a share such as "1%"; None is any number.
    """

    def __init__(self, words: str | None) -> None:
        found = re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)%", words or "100%")
        if found is None:
            raise InputError(f"--max-rejected must be a whole number, or a share such as 1%; got {words!r}.")
        self._number, self._share = found[1], found[2]

    def check(self, rows: int, rejected: int) -> None:
        """Ends the command with an error where there are more, or nothing is left."""
        if rejected == rows:
            raise RegardError(f"none of the {rows:,} rows could be embedded; is it the right --text-column?")
        most = rows * float(self._share) / 100 if self._number is None else int(self._number)
        if rejected > most:
            raise RegardError(f"{rejected:,} of {rows:,} rows were put aside, more than by --max-rejected.")


def _run(
    rows: "Inputs",
    output: Path,
    open_work: "OpenWork",
    shard_rows: int,
    spread: Callable[[Callable[[str], object]], "AbstractContextManager[RayWorkers | None]"],
    limit: "_Limit",
    as_json: bool,
) -> None:
    from regard.embedding.job import run, run_to_array

    call = run_to_array if output.suffix == ".npy" else run
    try:
        with _ended_by_signals(), JobProgress() as progress, spread(progress.tell) as workers:
            summary = call(
                rows, output, open_work, shard_rows=shard_rows, on_progress=progress, spread=workers
            )
    except (KeyboardInterrupt, _TerminatedError) as error:
        typer.echo("regard: stopped; the same command goes on where it was", err=True)
        raise typer.Exit(143 if isinstance(error, _TerminatedError) else 130) from None
    if as_json:
        print_json(asdict(summary))
    _tell(summary, output, as_json)
    limit.check(summary.rows, summary.rejected)


def _tell(summary: "Summary", output: Path, as_json: bool) -> None:
    from regard.views import printable

    if summary.rejected:
        where = (
            output / "_quarantine.jsonl"
            if output.is_dir()
            else output.with_name(f"{output.name}.quarantine.jsonl")
        )
        were = "row was" if summary.rejected == 1 else "rows were"
        typer.echo(
            f"regard: {summary.rejected:,} {were} put aside, with the reason, in {printable(str(where))}",
            err=True,
        )
    if as_json:
        return
    counts = summary.counts
    typer.echo(f"{summary.texts:,} texts, {counts.get('tokens', 0):,} tokens")
    if summary.vectors != summary.texts:
        typer.echo(f"{summary.vectors:,} vectors")
    for name, what, told in (
        ("windowed", "text", "in several windows"),
        ("cut", "text", "cut off"),
        ("cut_tokens", "token", "cut off"),
        ("without_vector", "word", "without a vector, of which no token was left"),
    ):
        count = counts.get(name, 0)
        if count:
            typer.echo(f"{count:,} {what}{'s' * (count != 1)} {told}")
    if summary.before:
        typer.echo(f"{summary.before:,} rows were done before")
    typer.echo(f"{_size(summary.bytes)} in {duration(summary.seconds)}")
    typer.echo(printable(str(output)))


def _dry_run(rows: "Inputs", open_work: "OpenWork", as_json: bool) -> None:
    from regard.embedding.job import estimate

    work = open_work(None)
    with status("reading all rows, and embedding a sample"):
        found = estimate(rows, work)
    if as_json:
        print_json(asdict(found))
        return
    about = "" if found.exact else "about "
    typer.echo(f"{found.rows:,} rows, {found.rejected:,} of them with no text")
    typer.echo(f"{about}{found.tokens:,} tokens, {about}{found.vectors:,} vectors")
    typer.echo(f"about {duration(found.seconds)} on this machine, {about}{_size(found.bytes)}")
    if not found.exact:
        typer.echo(f"tokens, time and bytes are estimates, from {found.sample:,} texts drawn from all")


def _print_lines(inputs: "Inputs", open_work: "OpenWork", shard_rows: int, limit: "_Limit") -> None:
    from regard.embedding.job import json_lines
    from regard.views import printable

    work = open_work(None)
    count = rows = 0

    def put_aside(row: Mapping[str, Any]) -> None:
        nonlocal count, rows
        count += 1
        rows = max(rows, row["row"] + 1)
        if count <= _TOLD:
            typer.echo(printable(f"regard: row {row['row']} is passed over: {row['reason']}"), err=True)

    for line in json_lines(inputs, work, on_rejected=put_aside, shard_rows=shard_rows):
        rows = max(rows, line["row"] + 1)
        typer.echo(json.dumps(line, default=str))
    if count:
        typer.echo(f"regard: {count} row{'s were' if count > 1 else ' was'} passed over in all", err=True)
    limit.check(rows, count)


# Rows that are passed over and told of one by one; of more, only how many there are.
_TOLD = 10


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count < 1e9 else f"{count / 1e9:,.2f} GB"


class _TerminatedError(BaseException):
    """SIGTERM came; no error, so nothing catches it on the way."""


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Has SIGTERM end what runs as Ctrl-C does: files that are not whole go, and the lock is given back."""

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise _TerminatedError

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        sys.stderr.flush()
