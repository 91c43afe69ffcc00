"""The work of `regard embed` behind its options: it runs the job, and prints a summary."""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli._output import print_json
from regard.cli._progress import PassedOver, Progress, say, size, status, stoppable
from regard.core.errors import InputError, RegardError
from regard.core.progress import duration, left
from regard.core.wording import printable

if TYPE_CHECKING:
    from regard.embedding import job
    from regard.embedding.job import Inputs, RayWorkers, Summary, Work

    OpenWork = Callable[[Mapping[str, Any] | None], Work]


class JobProgress(Progress):
    """Texts, tokens a second, and the time left."""

    def report(self, progress: "job.Progress") -> None:
        """Shows it."""
        self.show(progress.rows, progress.of, speed(progress))


def speed(progress: "job.Progress") -> str:
    """Tokens a second, and how long the rest takes by the rows done here."""
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

    def check(self, rows: int, rejected: int) -> None:
        """Ends the command with an error if more rows were put aside, or all of them."""
        if rows and rejected == rows:
            raise RegardError(f"none of the {rows:,} rows could be embedded; is it the right --text-column?")
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

    call = run_to_array if output.suffix == ".npy" else partial(run, share=share)
    with stoppable(), JobProgress() as progress, spread(progress.tell) as workers:
        summary = call(
            rows, output, open_work, shard_rows=shard_rows, on_progress=progress.report, spread=workers
        )
    if as_json:
        print_json(asdict(summary))
    _print_summary(summary, output, as_json)
    limit.check(summary.rows, summary.rejected)


def _print_summary(summary: "Summary", output: Path, as_json: bool) -> None:
    if summary.rejected:
        where = (
            output / "_quarantine.jsonl"
            if output.is_dir()
            else output.with_name(f"{output.name}.quarantine.jsonl")
        )
        were = "row was" if summary.rejected == 1 else "rows were"
        say(f"{summary.rejected:,} {were} put aside, with the reason, in {where}")
    if as_json:
        return
    counts = summary.counts
    typer.echo(f"{summary.texts:,} texts, {counts.get('tokens', 0):,} tokens")
    if summary.vectors != summary.texts:
        typer.echo(f"{summary.vectors:,} vectors")
    for name, what, fate in (
        ("windowed", "text", "in several windows"),
        ("cut", "text", "cut off"),
        ("cut_tokens", "token", "cut off"),
        ("without_vector", "word", "without a vector, of which no token was left"),
        ("unknown", "word", "unknown to the model, which reads [UNK] for each"),
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

    work = open_work(None)
    with status("reading all rows, and embedding a sample"):
        found = estimate(rows, work)
    if as_json:
        print_json(asdict(found))
        return
    about = "" if found.exact else "about "
    typer.echo(f"{found.rows:,} rows, {found.rejected:,} of them with no text")
    typer.echo(f"{about}{found.tokens:,} tokens, {about}{found.vectors:,} vectors")
    typer.echo(f"about {duration(found.seconds)} on this machine, {about}{size(found.bytes)}")
    if not found.exact:
        typer.echo(f"tokens, time and bytes are estimates, from {found.sample:,} texts drawn from all")


def printed(inputs: "Inputs", open_work: "OpenWork", shard_rows: int, limit: Limit) -> None:
    from regard.embedding.job import json_lines

    work = open_work(None)
    passed_over, rows = PassedOver("row"), 0

    def put_aside(row: Mapping[str, Any]) -> None:
        nonlocal rows
        rows = max(rows, row["row"] + 1)
        passed_over.add(row["row"], row["reason"])

    for line in json_lines(inputs, work, on_rejected=put_aside, shard_rows=shard_rows):
        rows = max(rows, line["row"] + 1)
        typer.echo(json.dumps(line, default=str))
    passed_over.end()
    limit.check(rows, passed_over.count)
