"""How far a long embedding job is, on stderr."""

import sys
import time
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from regard.embedding.job import Progress

# Seconds between two lines where stderr is no terminal.
_EVERY = 10.0


class JobProgress:
    """A bar on stderr where that is a terminal, else a line now and then: texts, speed, time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        drawn = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rest]}"))
        self._bar: Any = Progress(*columns, console=drawn, transient=True) if drawn.is_terminal else None
        self._task: Any = None
        self._told = time.monotonic()

    def __enter__(self) -> "JobProgress":
        return self

    def __exit__(self, *error: object) -> None:
        if self._task is not None:
            self._bar.stop()

    def __call__(self, progress: "Progress") -> None:
        """Shows it. The bar begins with the first call: a spinner may still turn before."""
        if self._bar is not None:
            if self._task is None:
                self._bar.start()
                self._task = self._bar.add_task("texts", total=progress.of, rest="")
            done, rest = told(progress)
            self._bar.update(self._task, completed=progress.rows, description=done, rest=rest)
        elif sys.stderr is not None and time.monotonic() - self._told >= _EVERY:
            self._told = time.monotonic()
            typer.echo(f"regard: {', '.join(filter(None, told(progress)))}", err=True)

    def tell(self, message: str) -> None:
        """Says something beside it."""
        from regard.views import printable

        if self._task is not None:
            self._bar.console.print(f"regard: {printable(message)}", markup=False, highlight=False)
        else:
            typer.echo(f"regard: {printable(message)}", err=True)


def told(progress: "Progress") -> tuple[str, str]:
    """What is done, and at which speed, and how long the rest takes."""
    of = "" if progress.of is None else f" of {progress.of:,}"
    seconds = max(progress.seconds, 1e-9)
    rest = f"{progress.tokens / seconds:,.0f} tokens/s"
    if progress.of is not None and progress.here:
        rest += f", {duration((progress.of - progress.rows) * seconds / progress.here)} left"
    return f"{progress.rows:,}{of} texts", rest


def duration(seconds: float) -> str:
    """A time for people.

    Example:
        >>> duration(0.2), duration(75), duration(7300), duration(200000)
        ('0 s', '1 min 15 s', '2 h 1 min', '2 d 7 h')
    """
    whole = round(seconds)
    parts = ((whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s"))
    first = next((place for place, (count, _) in enumerate(parts) if count), 3)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count or first == 3)
