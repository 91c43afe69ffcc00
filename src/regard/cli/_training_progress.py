"""How far a training run is: loss, speed and the time left, on stderr."""

import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Self

from regard.cli._progress import duration, say
from regard.core.printable import printable

_EVERY = 10.0  # seconds between two lines where stderr is no terminal
_MEAN_OF = 50  # steps that loss and speed are the mean of


class TrainingProgress:
    """A bar on stderr where that is a terminal, else a line now and then; each score is a line of its own."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        drawn = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rest]}"))
        self._bar: Any = Progress(*columns, console=drawn, transient=True) if drawn.is_terminal else None
        self._task: Any = None
        self._told = time.monotonic()
        self._last: deque[tuple[float, float, int]] = deque(maxlen=_MEAN_OF)  # loss, seconds, tokens
        self._steps = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._task is not None:
            self._bar.stop()

    def tell(self, message: str) -> None:
        """Something in words."""
        if self._task is not None:
            self._bar.console.print(f"regard: {printable(message)}", markup=False, highlight=False)
        else:
            say(message)

    def report(self, report: Mapping[str, Any]) -> None:
        """The report of a step, or of a score."""
        if "loss" not in report:
            scores = {name.removeprefix("valid_"): value for name, value in report.items() if name != "step"}
            told = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in scores.items())
            self.tell(f"step {report['step']:,}: {told}")
            return
        self._last.append((report["loss"], report["seconds"], report["step_tokens"]))
        losses, seconds, tokens = (sum(each) for each in zip(*self._last, strict=True))
        count, step, steps = len(self._last), report["step"], report["steps"]
        rate = tokens / max(seconds, 1e-9)
        done = f"step {step:,} of {steps:,}"
        left = duration((steps - step) * seconds / count)
        rest = f"loss {losses / count:.4f}, {rate:,.0f} tokens/s, {left} left"
        if self._bar is not None:
            if self._task is None:
                self._bar.start()
                self._task = self._bar.add_task("steps", total=steps, rest="")
            self._bar.update(self._task, completed=step, description=done, rest=rest)
        elif sys.stderr is not None and time.monotonic() - self._told >= _EVERY:
            self._told = time.monotonic()
            say(f"{done}, {rest}")
