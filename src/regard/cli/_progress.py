"""How far a long command is, and what it says beside its result: on stderr."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

import typer

from regard.core.printable import printable

# Seconds between two lines where stderr is no terminal.
_EVERY = 10.0
# Texts that are passed over and named one by one; of more, only how many there are.
_NAMED = 10


def say(message: str) -> None:
    """Print a message of regard's own, in one line."""
    typer.echo(f"regard: {printable(message)}", err=True)


class Progress:
    """A bar on stderr where that is a terminal, else a line now and then.

    Args:
        unit: what is counted.
    """

    def __init__(self, unit: str = "texts") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        drawn = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rest]}"))
        self._bar: Any = Progress(*columns, console=drawn, transient=True) if drawn.is_terminal else None
        self._task: Any = None
        self._unit = unit
        self._told = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._task is not None:
            self._bar.stop()

    def show(self, texts: int, of: int | None, rest: str = "") -> None:
        """Show how many texts are done."""
        self.draw(f"{texts:,}{'' if of is None else f' of {of:,}'} {self._unit}", texts, of, rest)

    def draw(self, done: str, completed: int, of: int | None, rest: str) -> None:
        """Show how far it is. The bar begins with the first call: before, a spinner may turn."""
        if self._bar is not None:
            if self._task is None:
                self._bar.start()
                self._task = self._bar.add_task(done, total=of, rest=rest)
            self._bar.update(self._task, completed=completed, description=done, rest=rest)
        elif sys.stderr is not None and time.monotonic() - self._told >= _EVERY:
            self._told = time.monotonic()
            say(", ".join(filter(None, (done, rest))))

    def tell(self, message: str) -> None:
        """Say something beside the bar."""
        if self._task is not None:
            self._bar.console.print(f"regard: {printable(message)}", markup=False, highlight=False)
        else:
            say(message)


class _TerminatedError(BaseException):
    """SIGTERM came; no error, so nothing catches it on the way."""


@contextmanager
def stoppable() -> Iterator[None]:
    """Has SIGTERM end what runs as Ctrl-C does: what is not whole goes, locks are given back."""

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise _TerminatedError

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except (KeyboardInterrupt, _TerminatedError) as error:
        say("stopped; the same command goes on where it was")
        raise typer.Exit(143 if isinstance(error, _TerminatedError) else 130) from None
    finally:
        signal.signal(signal.SIGTERM, before)
        if sys.stderr is not None:
            sys.stderr.flush()


class PassedOver:
    """Says which texts of a file the model cannot take: each of the first ones, and how many there are.

    Args:
        what: one of them is called: "line" or "row".
    """

    def __init__(self, what: str) -> None:
        self._what, self.count = what, 0

    def add(self, number: int, reason: object) -> None:
        """One more."""
        self.count += 1
        if self.count <= _NAMED:
            say(f"{self._what} {number} is passed over: {reason}")

    def end(self) -> None:
        """How many there were."""
        if self.count:
            were = f"{self._what} was" if self.count == 1 else f"{self._what}s were"
            say(f"{self.count:,} {were} passed over in all")


def left(done: int, of: int | None, seconds: float) -> str:
    """How long the rest takes, as far as that is known.

    Example:
        >>> left(2, 6, 10.0), left(0, 6, 1.0), left(2, None, 10.0)
        ('20 s left', '', '')
    """
    return f"{duration((of - done) * seconds / done)} left" if done and of is not None else ""


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


def size(count: int) -> str:
    """Bytes for people.

    Example:
        >>> size(90_900_000), size(2_500_000_000)
        ('90.9 MB', '2.50 GB')
    """
    return f"{count / 1e6:,.1f} MB" if count < 1e9 else f"{count / 1e9:,.2f} GB"
