"""What every `regard train OBJECTIVE` has: its common options, and a run with progress and a result."""

from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli._options import argument, flag, option
from regard.cli._output import console, print_json
from regard.cli._progress import Progress, say
from regard.core.errors import InputError
from regard.core.progress import left

if TYPE_CHECKING:
    from regard.training import AnySettings, Result

_MEAN_OF = 50  # steps that loss and speed are the mean of

DATA = argument("DATA...", "Files: text, JSONL, CSV, TSV or Parquet.", None)
RUN = option("--output -o RUN", "The folder of the run: a new one, or one to go on with.")
CONFIG = option("--config FILE", "Settings, as TOML or JSON.")
SEED = option("--seed N", "The seed of all random draws.")
SHOW = flag("--print-settings", "Print all settings as TOML for --config, and end.")


class TrainingProgress(Progress):
    """Loss, speed and the time left; each score is a line of its own."""

    def __init__(self) -> None:
        super().__init__("steps")
        self._last: deque[tuple[float, float, int]] = deque(maxlen=_MEAN_OF)  # loss, seconds, tokens

    def report(self, report: Mapping[str, Any]) -> None:
        """The report of a step, or of a score."""
        if "loss" not in report:
            scores = {name.removeprefix("valid_"): value for name, value in report.items() if name != "step"}
            self.tell(f"step {report['step']:,}: {_in_words(scores)}")
            return
        self._last.append((report["loss"], report["seconds"], report["step_tokens"]))
        losses, seconds, tokens = (sum(each) for each in zip(*self._last, strict=True))
        count, step, steps = len(self._last), report["step"], report["steps"]
        speed = f"{tokens / max(seconds, 1e-9):,.0f} tokens/s"
        rest = f"loss {losses / count:.4f}, {speed}, {left(count, count + steps - step, seconds)}"
        self.draw(f"step {step:,} of {steps:,}", step, steps, rest)


def check_output(output: Path | None, show: bool) -> None:
    """Refuse a run without a folder."""
    if output is None and not show:
        raise InputError("--output must name the folder of the run.")


def run(
    settings: "AnySettings",
    folder: Path | None,
    train: Callable[..., "Result"],
    last_step: Callable[[Path], int],
    *,
    show: bool,
    as_json: bool,
) -> None:
    """Train, with progress on stderr and the result on stdout; or print the settings, where `show`."""
    from regard.training import as_toml, is_first_process

    if show or folder is None:
        typer.echo(as_toml(settings), nl=False)
        return

    try:
        with TrainingProgress() as progress:
            result = train(settings, folder, on_report=progress.report, on_message=progress.tell)
    except KeyboardInterrupt:
        if is_first_process():
            step = last_step(folder)
            where = (
                f"goes on from step {step:,}, the last checkpoint"
                if step
                else "begins again: there is no checkpoint yet"
            )
            say(f"stopped; the same command {where}")
        raise typer.Exit(130) from None
    if not is_first_process():
        return
    if as_json:
        signed = {"signatures": dict(result.signatures)} if result.signatures else {}
        found = {"model": str(result.model), "step": result.step, "scores": dict(result.scores)}
        print_json(found | signed)
        return
    scores = f": {_in_words(result.scores)}" if result.scores else ""
    console().print(
        f"{result.model}: step {result.step:,}{scores}", highlight=False, soft_wrap=True, markup=False
    )
    for name, signature in result.signatures.items():
        console().print(f"{name}: {signature}", markup=False, soft_wrap=True)


def names(paths: list[Path] | None) -> list[str] | None:
    """Paths as settings have them."""
    return [str(path) for path in paths] if paths else None


def _in_words(scores: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in scores.items())
