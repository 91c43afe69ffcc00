"""How far a long command is, and what it says beside its result: on stderr."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

import typer

from regard.core.progress import Bar
from regard.core.wording import printable

# Seconds between two lines where stderr is no terminal.
_EVERY = 10.0
# Texts that are passed over and named one by one; of more, only how many there are.
_NAMED = 10


def say(message: str) -> None:
    """Print a message of regard's own, in one line."""
    typer.echo(f"regard: {printable(message)}", err=True)


def status(message: str) -> AbstractContextManager[Any]:
    """A spinner on stderr while something runs; nothing where stderr is not a terminal."""
    from rich.console import Console
    from rich.text import Text

    # Text, not a string: rich would read a name with brackets as its own markup.
    return Console(stderr=True).status(Text(ascii(message)[1:-1]))


class Progress(Bar):
    """The bar, or where stderr is no terminal a line now and then."""

    def __init__(self, unit: str = "texts") -> None:
        super().__init__(unit)
        self._last_line = time.monotonic()

    def draw(self, words: str, done: int, of: int | None, rest: str) -> bool:
        """Show how far it is. The bar begins with the first call: before, a spinner may turn."""
        drawn = super().draw(words, done, of, rest)
        if not drawn and sys.stderr is not None and time.monotonic() - self._last_line >= _EVERY:
            self._last_line = time.monotonic()
            say(", ".join(filter(None, (words, rest))))
        return drawn

    def tell(self, message: str) -> None:
        """Say something beside the bar."""
        if self._task is not None:
            self._drawn.console.print(f"regard: {printable(message)}", markup=False, highlight=False)
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
    """Says which texts of a file (lines, rows) the model cannot take: the first ones, and how many."""

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


def size(count: int) -> str:
    """Bytes for people.

    Example:
        >>> size(90_900_000), size(2_500_000_000)
        ('90.9 MB', '2.50 GB')
    """
    return f"{count / 1e6:,.1f} MB" if count < 1e9 else f"{count / 1e9:,.2f} GB"
