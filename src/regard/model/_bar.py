"""How far long work in Python is: a bar on stderr, once it has taken a while."""

import sys
import time
from typing import Any, Final, Self

_PATIENCE: Final = 3.0
"""Seconds; of shorter work nobody asks how far it is."""


class Bar:
    """Called with (done, total), draws a bar from the third second on, on a terminal or in a notebook."""

    def __init__(self, what: str) -> None:
        self._what, self._begun = what, time.monotonic()
        self._drawn: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._task is not None:
            self._drawn.stop()

    def __call__(self, done: int, total: int) -> None:
        """Shows it, if it is time."""
        if time.monotonic() - self._begun < _PATIENCE or sys.stderr is None:
            return
        if self._drawn is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            what, console = TextColumn("{task.description}"), Console(stderr=True)
            columns = (what, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._drawn = Progress(*columns, console=console, transient=True)
            if console.is_terminal or console.is_jupyter:
                self._drawn.start()
                self._task = self._drawn.add_task(self._what, total=total)
        if self._task is not None:
            self._drawn.update(self._task, completed=done, total=total)
