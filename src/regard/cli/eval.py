"""`regard eval`: what a model is worth on files."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli._options import JsonOption, console, print_json
from regard.cli._progress import Progress, left
from regard.core.printable import printable

if TYPE_CHECKING:
    from rich.table import Table


def eval(
    model: Annotated[str, typer.Argument(metavar="RUN|MODEL", help="A run, or a model to load.")],
    data: Annotated[
        list[Path], typer.Argument(metavar="DATA...", help="Files: text, JSONL, CSV, TSV or Parquet.")
    ],
    target: Annotated[
        list[Path] | None, typer.Option("--target", metavar="FILE", help="The other side of parallel files.")
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            "--objective", metavar="NAME", help="An objective of regard train; by default the head decides."
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="One setting, such as batch.length=128."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Score the model of a run, or any other, on files.

    A run is scored with its own settings: on its validation files it gets the scores that it had in training.
    """
    from regard.training import score

    began = time.monotonic()
    with Progress("tokens") as progress:
        found = score(
            model,
            data,
            target=target or (),
            objective=objective,
            changes=changes or (),
            on_message=progress.tell,
            on_progress=lambda done, of: progress.show(done, of, left(done, of, time.monotonic() - began)),
        )
    if as_json:
        print_json(
            {
                "model": found.model,
                "objective": found.objective,
                "examples": found.examples,
                "tokens": found.tokens,
                "scores": dict(found.scores),
                **found.details,
            }
        )
        return
    drawn, texts = console(), "text" if found.examples == 1 else "texts"
    drawn.print(
        f"{found.model} as {found.objective}: {found.examples:,} {texts}, {found.tokens:,} tokens",
        markup=False,
        soft_wrap=True,
    )
    drawn.print(_table({name: f"{value:.4f}" for name, value in found.scores.items()}))
    if "confusion" in found.details:
        drawn.print("\nWhat each label (row) was taken for (column):")
        drawn.print(_confusion(found.details["labels"], found.details["confusion"]))
    for name, signature in found.details.get("signatures", {}).items():
        drawn.print(f"{name}: {signature}", markup=False, soft_wrap=True)
    if found.details.get("kinds"):
        drawn.print("\nOf each kind of span:")
        drawn.print(_kinds(found.details["kinds"]))


def _table(rows: dict[str, str]) -> "Table":
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name, value in rows.items():
        table.add_row(name.replace("_", " "), value)
    return table


def _confusion(labels: list[str], counts: Any) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    for label in labels:
        table.add_column(Text(printable(label)), justify="right")
    for label, row in zip(labels, counts, strict=True):
        table.add_row(Text(printable(label)), *(f"{count:,.0f}" for count in row))
    return table


def _kinds(kinds: dict[str, dict[str, float]]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    for name in next(iter(kinds.values())):
        table.add_column(name, justify="right")
    for kind, scores in kinds.items():
        table.add_row(Text(printable(kind)), *(f"{value:.4g}" for value in scores.values()))
    return table
