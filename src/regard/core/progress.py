"""How far long work is, on stderr: one bar, for Python and for the command line."""

import sys
import time
from collections.abc import Callable
from typing import Any, Self

OnProgress = Callable[[int, int], object] | None
"""What long work calls with (done, total), now and then; None for nothing."""


class Bar:
    """A bar on a terminal or in a notebook; nothing elsewhere.

    It is drawn by the first call after `patience` seconds: of shorter work nobody asks how far it is.
    """

    def __init__(self, unit: str = "texts", patience: float = 0.0) -> None:
        # `patience`: work that is done sooner gets no bar.
        self._unit, self._patience, self._begun = unit, patience, time.monotonic()
        # Made with the first drawing: rich is imported only then.
        self._drawn: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        # Only a bar that was begun is taken away.
        if self._task is not None:
            self._drawn.stop()

    def __call__(self, done: int, of: int | None) -> None:
        """Show how much is done, and how long the rest takes."""
        self.show(done, of, left(done, of, time.monotonic() - self._begun))

    def show(self, done: int, of: int | None, rest: str = "") -> None:
        """Show how much is done, and what else there is to say."""
        self.draw(f"{done:,}{'' if of is None else f' of {of:,}'} {self._unit}", done, of, rest)

    def draw(self, words: str, done: int, of: int | None, rest: str) -> bool:
        """Draw the bar; whether there was anything to draw it on, and time to."""
        # No stderr under pythonw, and in some services.
        if sys.stderr is None or time.monotonic() - self._begun < self._patience:
            return False
        if self._drawn is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            console = Console(stderr=True)
            columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rest]}")
            self._drawn = Progress(*columns, console=console, transient=True)
            # In a file or a pipe nothing is drawn: the task stays None.
            if console.is_terminal or console.is_jupyter:
                self._drawn.start()
                self._task = self._drawn.add_task(words, total=of, rest=rest)
        if self._task is None:
            return False
        self._drawn.update(self._task, completed=done, total=of, description=words, rest=rest)
        return True


def left(done: int, of: int | None, seconds: float) -> str:
    """How long the rest takes, as far as that is known.

    Example:
        >>> left(2, 6, 10.0), left(0, 6, 1.0), left(2, None, 10.0)
        ('20 s left', '', '')
    """
    # As if the rest took as long, piece by piece, as what is done.
    return f"{duration((of - done) * seconds / done)} left" if done and of is not None else ""


def duration(seconds: float) -> str:
    """A time for people.

    Example:
        >>> duration(0.2), duration(75), duration(7300), duration(200000)
        ('0 s', '1 min 15 s', '2 h 1 min', '2 d 7 h')
    """
    whole = round(seconds)
    # The two largest units that are not zero say enough.
    parts = ((whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s"))
    first = next((place for place, (count, _) in enumerate(parts) if count), 3)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count or first == 3)
