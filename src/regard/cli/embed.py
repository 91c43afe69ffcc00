"""`regard embed`: vectors of words, tokens or sentences, of as many texts as there are."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from regard.cli._options import (
    DELIMITER,
    ENCODING,
    ESCAPE,
    JSON,
    MODEL,
    NO_HEADER,
    argument,
    flag,
    option,
)
from regard.cli._output import BarOrLines, PassedOver, check_folder, print_json, say, size, status, stoppable
from regard.cli._usage import Command
from regard.core.arguments import Count, Natural
from regard.core.errors import InputError, RegardError
from regard.core.progress import duration, left
from regard.core.wording import printable

if TYPE_CHECKING:
    from regard.data import Unit
    from regard.embedding import job
    from regard.embedding.job import Inputs, RayWorkers, Summary, Work

    OpenWork = Callable[[Mapping[str, Any] | None], Work]


def embed(
    ctx: typer.Context,
    inputs: list[Path] = argument(
        "IN...", "Files or folders: plain text, JSON lines, CSV, TSV or Parquet, compressed too; - is stdin."
    ),
    output: Path | None = option(
        "--output -o OUT", "A folder for Parquet files; a .npy file; - prints JSON."
    ),
    level: str = option("--level WHAT", "sentence, word or token: what gets a vector.", "sentence"),
    layer: str | None = option("--layer -l N[,N...]", "0 is the table. Several give a column each."),
    mix: str | None = option("--mix N,N...", "Instead of --layer: the mean of these."),
    pooling: str | None = option(
        "--pooling HOW",
        "mean, cls, max, last, weighted_mean, mean_sqrt_len; by default the model's own. Of words: "
        "mean, first, last, max.",
    ),
    normalize: bool | None = flag(
        "--normalize/--no-normalize", "Scale vectors to length 1; by default as the model does.", None
    ),
    window: Count | None = option("--window N", "Tokens at a time; by default the model's limit."),
    overlap: Natural | None = option("--overlap N", "Instead of --truncate: tokens that two windows share."),
    truncate: bool = flag(
        "--truncate", "Cut texts off at the limit; by default windows cover all of a text."
    ),
    prompt: str | None = option("--prompt TEXT", "A text to put before each text."),
    prompt_name: str | None = option("--prompt-name NAME", "Instead of --prompt: one of the model's own."),
    truncate_dim: Count | None = option("--dims N", "Keep the first N numbers of each vector."),
    precision: str = option(
        "--precision TYPE",
        "What to compute in: float32, bfloat16, int16, int8; or fast, the fastest near float32.",
        "float32",
    ),
    storage: str = option("--storage TYPE", "Store vectors as float32, float16, int8 or ubinary.", "float32"),
    device: str | None = option("--device NAME", "cpu, or cuda for a GPU; by default cpu."),
    batch_tokens: Count | None = option("--batch-tokens N", "How many tokens to compute at once."),
    threads: Count | None = option("--threads N", "How many; by default one for each core."),
    text_column: list[str] | None = option(
        "--text-column NAME", 'Give it twice to join two; by default "text".'
    ),
    id_column: str | None = option("--id-column NAME", "The column that becomes the column id."),
    keep: list[str] | None = option("--keep NAME", "A column to carry along; give it again for more."),
    format: str | None = option(
        "--format NAME",
        "The format of IN: text, jsonl, csv, tsv, parquet; by default from its name and contents.",
    ),
    unit: str = option("--unit WHAT", "A text of plain text: line, paragraph or file.", "line"),
    delimiter: str | None = DELIMITER,
    escape: str | None = ESCAPE,
    no_header: bool = NO_HEADER,
    encoding: str = ENCODING,
    max_rejected: str | None = option(
        "--max-rejected N|N%", "Exit with 1 if more rows are put aside; by default any number may be."
    ),
    rows_per_shard: int | None = option("--rows-per-shard N", "Rows in each Parquet file; by default 8192."),
    shard: str = option(
        "--shard I/N",
        "Write every N-th file, from number I on: for N processes, each with its own OUT.",
        "0/1",
    ),
    dry_run: bool = flag("--dry-run", "Only estimate rows, tokens, time and bytes, from a sample."),
    ray: str | None = option(
        "--ray [ADDRESS]",
        "Embed on a Ray cluster, such as auto or HOST:PORT; without an address on this machine.",
    ),
    workers: int | None = option("--workers N", "With --ray: how many; by default as many as fit."),
    model: str = MODEL,
    as_json: bool = JSON,
) -> None:
    """Embed texts: one vector a sentence, or one a word or token in its context.

    OUT is a folder of Parquet files. Run the same command again after an interruption, of any kind: it goes
    on, and the result is that of one run. Rows that cannot be embedded are put aside, with the reason, in
    OUT/_quarantine.jsonl; _manifest.json says what the vectors were made with.
    """
    # What contradicts itself, before anything is imported.
    if output is None and not dry_run:
        raise InputError("--output names where the vectors go: a folder, a .npy file, or -.")
    if ray is not None and (dry_run or str(output) == "-"):
        raise InputError("--ray writes files: leave it out with --dry-run and -o -.")
    if ray is not None and device not in (None, "cpu"):
        raise InputError(f"--ray spreads over processors; got --device {device}. Give one of the two.")
    # Options that are a little language are read now.
    limit = Limit(max_rejected)
    share = _share(shard)
    to_stdout = output is not None and str(output) == "-"
    if share != (0, 1) and (output is None or to_stdout or output.suffix == ".npy"):
        raise InputError("--shard goes with a folder: give -o one.")
    if to_stdout and as_json:
        raise InputError("-o - prints JSON lines by itself; leave --json out.")
    if output is not None and not to_stdout:
        check_folder(output, ".npy")
    # What is asked of the vectors goes on by its name.
    wanted = dict(ctx.params, layer=_numbers("--layer", layer), mix=_numbers("--mix", mix))
    with status("looking at the input"):
        from regard.data import Csv
        from regard.embedding.job import SHARD_ROWS, Columns, Inputs

        # Files are opened and looked into; the model comes later.
        columns = Columns(
            text=None if not text_column else tuple(text_column), id=id_column, keep=tuple(keep or ())
        )
        rows = Inputs(
            inputs,
            columns,
            format=format,
            csv=Csv(delimiter=delimiter, escape=escape, header=not no_header),
            encoding=encoding,
            unit=cast("Unit", unit),
            # A copy of a pipe lies where there is room for the result.
            copies=None if output is None or to_stdout else output.absolute().parent,
        )
    # The model is loaded once the folder is known to be right.
    open_work = _opener(model, wanted)
    shard_rows = SHARD_ROWS if rows_per_shard is None else rows_per_shard
    if dry_run:
        estimated(rows, open_work, as_json)
    elif to_stdout:
        printed(rows, open_work, shard_rows, limit)
    else:
        assert output is not None
        # Ray, if it is asked for; this process otherwise.
        spread = partial(ray_workers, ray, workers, model, wanted)
        written(rows, output, open_work, shard_rows, share, spread, limit, as_json)


def _numbers(option: str, words: str | None) -> list[int] | None:
    try:
        return None if words is None else [int(word) for word in words.split(",")]
    except ValueError:
        raise InputError(f"{option} must be a whole number, or several with commas; got {words!r}.") from None


def _share(words: str) -> tuple[int, int]:
    # I/N, such as 0/8.
    found = re.fullmatch(r"(\d+)/(\d+)", words)
    if found is None or not int(found[1]) < int(found[2]):
        raise InputError(f"--shard must be I/N with I from 0 to N - 1, such as 0/8; got {words!r}.")
    return int(found[1]), int(found[2])


def _opener(model: str, wanted: Mapping[str, Any]) -> "OpenWork":
    """Loads the model when the job asks for it, with a spinner: importing torch takes seconds."""

    def open_work(earlier: Mapping[str, Any] | None) -> "Work":
        with status(f"loading {model}"):
            from regard.embedding.job import open_model

            # What an earlier run has settled goes before what is typed.
            work = open_model(model, wanted, earlier)
        for note in work.about.get("notes", ()):
            say(f"note: {note}")
        if wanted["precision"] != "float32":
            typer.echo(f"regard: computed in {work.about['computed']}", err=True)
        return work

    return open_work


class JobBar(BarOrLines):
    """Texts, tokens a second, and the time left."""

    def report(self, progress: "job.JobState") -> None:
        """Shows it."""
        self.show(progress.rows, progress.of, speed(progress))


def speed(progress: "job.JobState") -> str:
    """Tokens a second, and how long the rest takes by the rows done here."""
    # Only the rows of this run count.
    rate = f"{progress.tokens / max(progress.seconds, 1e-9):,.0f} tokens/s"
    rest = None if progress.of is None else progress.of - progress.rows + progress.here
    return ", ".join(filter(None, (rate, left(progress.here, rest, progress.seconds))))


class Limit:
    """How many rows may be put aside: a number, or a share such as "1%"; None is any number."""

    def __init__(self, words: str | None) -> None:
        found = re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)%", "100%" if words is None else words)
        if found is None:
            raise InputError(f"--max-rejected must be a whole number, or a share such as 1%; got {words!r}.")
        self._number, self._share = found[1], found[2]

    def check(self, rows: int, rejected: int, reasons: Iterable[str]) -> None:
        """Ends the command with an error if more rows were put aside, or all of them, most for one reason."""
        # Nothing at all: most likely a wrong column or encoding.
        if rows and rejected == rows:
            # Rows differ in numbers, such as the place of a byte: the first of the most frequent kind.
            first, kinds = dict[str, str](), Counter[str]()
            for reason in reasons:
                kinds[kind := re.sub(r"0x\w+|\d+", "0", reason)] += 1
                first.setdefault(kind, reason)
            why = first[kinds.most_common(1)[0][0]]
            way = ", such as --encoding cp1252" if "encoding" in why else "; is it the right --text-column?"
            raise RegardError(f"none of the {rows:,} rows could be embedded: {why}{way}")
        # A share, or a number.
        most = rows * float(self._share) / 100 if self._number is None else int(self._number)
        if rejected > most:
            raise RegardError(
                f"{rejected:,} of {rows:,} rows were put aside, more than --max-rejected allows."
            )


def written(
    rows: "Inputs",
    output: Path,
    open_work: "OpenWork",
    shard_rows: int,
    share: tuple[int, int],
    spread: Callable[[Callable[[str], object]], "AbstractContextManager[RayWorkers | None]"],
    limit: Limit,
    as_json: bool,
) -> None:
    from regard.embedding.job import run, run_to_array

    # One file or a folder.
    call = run_to_array if output.suffix == ".npy" else partial(run, share=share)
    with stoppable(), JobBar() as progress, spread(progress.tell) as workers:
        summary = call(
            rows, output, open_work, shard_rows=shard_rows, on_progress=progress.report, spread=workers
        )
    if as_json:
        print_json(asdict(summary))
    # Where the rows went that got no vector.
    aside = output / "_quarantine.jsonl"
    if not output.is_dir():
        aside = output.with_name(f"{output.name}.quarantine.jsonl")
    _print_summary(summary, output, aside, as_json)
    # Last: the result is written in any case.
    limit.check(summary.rows, summary.rejected, _reasons(aside))


def _reasons(aside: Path) -> Iterator[str]:
    with open(aside, encoding="utf-8") as rows:
        for row in rows:
            yield json.loads(row)["reason"]


def _print_summary(summary: "Summary", output: Path, aside: Path, as_json: bool) -> None:
    if summary.rejected:
        were = "row was" if summary.rejected == 1 else "rows were"
        say(f"{summary.rejected:,} {were} put aside, with the reason, in {aside}")
    if as_json:
        return
    counts = summary.counts
    typer.echo(f"{summary.texts:,} texts, {counts.get('tokens', 0):,} tokens")
    if summary.vectors != summary.texts:
        typer.echo(f"{summary.vectors:,} vectors")
    # Only what occurred is told.
    for name, what, fate in (
        ("windowed", "text", "in several windows"),
        ("cut", "text", "cut off"),
        ("cut_tokens", "token", "cut off"),
        ("without_vector", "word", "without a vector, of which no token was left"),
        ("unknown", "word", "unknown to the model, which reads [UNK] for each"),
        ("zero", "vector", "of zeros alone, with no direction"),
        ("infinite", "text", "put aside, with vectors that are not finite"),
    ):
        count = counts.get(name, 0)
        if count:
            typer.echo(f"{count:,} {what}{'s' * (count != 1)} {fate}")
    if summary.before:
        typer.echo(f"{summary.before:,} rows were done before")
    typer.echo(f"{size(summary.bytes)} in {duration(summary.seconds)}")
    typer.echo(printable(str(output)))


def estimated(rows: "Inputs", open_work: "OpenWork", as_json: bool) -> None:
    from regard.embedding.job import estimate

    # Nothing is kept: no folder to agree with.
    work = open_work(None)
    with status("reading all rows, and embedding a sample"):
        guess = estimate(rows, work)
    if as_json:
        print_json(asdict(guess))
        return
    about = "" if guess.exact else "about "
    typer.echo(f"{guess.rows:,} rows, {guess.rejected:,} of them with no text")
    typer.echo(f"{about}{guess.tokens:,} tokens, {about}{guess.vectors:,} vectors")
    typer.echo(f"about {duration(guess.seconds)} on this machine, {about}{size(guess.bytes)}")
    if not guess.exact:
        typer.echo(f"tokens, time and bytes are estimates, from {guess.sample:,} texts drawn from all")


def printed(inputs: "Inputs", open_work: "OpenWork", shard_rows: int, limit: Limit) -> None:
    from regard.embedding.job import json_lines

    work = open_work(None)
    passed_over, reasons, rows = PassedOver("row"), list[str](), 0

    def put_aside(row: Mapping[str, Any]) -> None:
        nonlocal rows
        rows = max(rows, row["row"] + 1)
        passed_over.add(row["row"], row["reason"])
        reasons.append(row["reason"])

    for line in json_lines(inputs, work, on_rejected=put_aside, shard_rows=shard_rows):
        rows = max(rows, line["row"] + 1)
        typer.echo(json.dumps(line, default=str))
    passed_over.end()
    limit.check(rows, passed_over.count, reasons)


# The address is left out; "" is none that Ray could have.
_BARE = "--ray="
_ADDRESS = re.compile(r"auto|local|(ray://)?[^/\s]+:\d+")


class RayCommand(Command):
    """A command with `--ray [ADDRESS]`: what follows is its value where it looks like an address."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `click.Command.parse_args`."""
        return super().parse_args(ctx, with_address(args))


def with_address(arguments: Sequence[str]) -> list[str]:
    """The arguments, with an address where `--ray` has none.

    Example:
        >>> with_address(["--ray", "texts.txt"]), with_address(["--ray", "head:6379", "texts.txt"])
        (['--ray=', 'texts.txt'], ['--ray=head:6379', 'texts.txt'])
    """
    words: list[str] = []
    # Typer knows no option whose value may be missing: "--ray" becomes "--ray=" or "--ray=ADDRESS".
    for place, word in enumerate(arguments):
        # What follows are files, however they are called.
        if word == "--":
            return [*words, *arguments[place:]]
        if place and arguments[place - 1] == "--ray" and _ADDRESS.fullmatch(word):
            words[-1] += word
        else:
            words.append(_BARE if word == "--ray" else word)
    return words


def ray_workers(
    address: str | None,
    workers: int | None,
    model: str,
    wanted: Mapping[str, Any],
    tell: Callable[[str], object],
) -> "AbstractContextManager[RayWorkers | None]":
    """The workers of a job; None without the option."""
    if address is None:
        return nullcontext()
    from functools import partial

    from regard.embedding.job import RayWorkers, open_model

    # A folder is looked for from where the command runs, which is another place on a node.
    name = str(Path(model).resolve()) if Path(model).is_dir() else model
    return RayWorkers(partial(open_model, name, wanted), address=address or None, workers=workers, tell=tell)
