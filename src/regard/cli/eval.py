"""`regard eval`: what a model is worth on files."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli._options import JSON, argument, option, read_by_settings
from regard.cli._output import BarOrLines, console, print_json
from regard.core.wording import printable

if TYPE_CHECKING:
    from rich.table import Table


def eval(
    model: str = argument("RUN|MODEL", "A run, or a model to load."),
    data: list[Path] = argument("DATA...", "Files: text, JSONL, CSV, TSV or Parquet."),
    target: list[Path] | None = option("--target FILE", "The other side of parallel files."),
    objective: str | None = option(
        "--objective NAME", "An objective of regard train; by default the head decides."
    ),
    changes: list[str] | None = option("--set KEY=VALUE", "One setting, such as batch.length=128."),
    as_json: bool = JSON,
) -> None:
    """Score the model of a run, or any other, on files.

    A run is scored with its own settings: on its validation files it gets the scores that it had in training.
    """
    from regard.training import score

    with read_by_settings(), BarOrLines("tokens") as progress:
        # The same scores as while the model was trained.
        scored = score(
            model,
            data,
            target=target or (),
            objective=objective,
            changes=changes or (),
            on_message=progress.tell,
            on_progress=progress,
        )
    if as_json:
        print_json(
            {
                "model": scored.model,
                "objective": scored.objective,
                "examples": scored.examples,
                "tokens": scored.tokens,
                "scores": dict(scored.scores),
                **scored.details,
            }
        )
        return
    # Names come from outside: no markup is read in them.
    drawn, texts = console(), "text" if scored.examples == 1 else "texts"
    drawn.print(
        f"{scored.model} as {scored.objective}: {scored.examples:,} {texts}, {scored.tokens:,} tokens",
        markup=False,
        soft_wrap=True,
    )
    drawn.print(_table({name: f"{value:.4f}" for name, value in scored.scores.items()}))
    # What else an objective has to say.
    if "confusion" in scored.details:
        drawn.print("\nWhat each label (row) was taken for (column):")
        drawn.print(_confusion(scored.details["labels"], scored.details["confusion"]))
    for name, signature in scored.details.get("signatures", {}).items():
        drawn.print(f"{name}: {signature}", markup=False, soft_wrap=True)
    if scored.details.get("kinds"):
        drawn.print("\nOf each kind of span:")
        drawn.print(_kinds(scored.details["kinds"]))


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
