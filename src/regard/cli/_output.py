"""What commands write: files, JSON, paths and tables; and on stderr how far they are and what they say."""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import typer

from regard.core.displayable import check_table_file
from regard.core.errors import InputError, OutputError
from regard.core.progress import Bar
from regard.core.wording import printable

if TYPE_CHECKING:
    from rich.console import Console


def check_outputs(files: Mapping[str, Path | None]) -> None:
    """Refuse to write a file where stdout goes, which would lose what is printed, or two to one place."""
    # Real paths with the option that named them.
    asked: dict[str, str] = {}
    for option, path in files.items():
        if path is None:
            continue
        if str(path) == "-":
            raise InputError("- is not a file to write to; for a file of that name give ./-.")
        try:
            # `-o out > out`: both would write to it.
            same = os.path.samestat(path.stat(), os.fstat(1))
        except OSError:
            same = False  # it is not there yet, or writing it will say what is wrong
        if same:
            raise OutputError(f"{str(path)!r} is where stdout goes; choose another file.")
        # By real path: ./a and a are one file.
        earlier = asked.setdefault(os.path.realpath(path), option)
        if earlier != option:
            raise InputError(f"{earlier} and {option} name the same file, {str(path)!r}; choose two.")


# Not .parquet: a folder of Parquet files is often called so, and is read as one.
_FILE: Final = re.compile(r"\.(bin|csv|gz|html|jsonl?|np[yz]|pkl|pt|safetensors|tsv|txt|zip)", re.IGNORECASE)


def check_folder(path: Path, file: str = "") -> None:
    """Refuse a new folder that is called as a file is; `file` is the ending of one that may be asked for."""
    check_outputs({"--output": path})
    if path.suffix != file and _FILE.fullmatch(path.suffix) and not path.exists():
        way = f"leave {path.suffix} out" + (f", or give a {file} file" if file else "")
        raise InputError(f"--output must be a folder, and {path.name!r} is a file's name: {way}.")


def check_table(path: Path | None) -> None:
    """Refuse a table's file by its name, before the work."""
    check_outputs({"--output": path})
    if path is not None:
        check_table_file("--output", path)


def check_new(path: Path | None, *, force: bool | None = None) -> None:
    """Refuse to write over a file that took long to make; `force` is None where there is no --force."""
    # An empty file is nobody's work.
    if path is not None and not force and path.is_file() and path.stat().st_size:
        way = "" if force is None else ", or --force to write over it"
        raise InputError(f"--output {str(path)!r} exists already; choose another file{way}.")


def print_json(result: Any) -> None:
    """Print one JSON document on stdout; ASCII, so that it survives any terminal and pipe."""
    typer.echo(json.dumps(result, allow_nan=False))


def print_path(path: Path) -> None:
    """Print a path on stdout, byte for byte."""
    typer.echo(os.fsencode(path))


def print_table(found: Any, what: str, output: Path | None, facts: Mapping[str, Any] | None) -> None:
    """Write a result to its file, if it has one, and print it: as JSON, where it is, or drawn."""
    if output is not None:
        # The file first: where it fails, nothing was printed.
        found.write(output)
    if facts is not None:
        print_json(facts)
    elif output is not None:
        typer.echo(f"{len(found):,} of {found.total:,} {what} in {output}")
    else:
        console(getattr(found, "width", 0)).print(found)


def console(least: int = 0) -> "Console":
    """Where results are drawn: 80 columns in a pipe, the terminal's own width up to 100 on one; or more."""
    from rich.console import Console

    # rich knows the terminal's width, and has 80 without one.
    drawn = Console(highlight=False)
    return Console(highlight=False, width=max(least, min(drawn.width, 100)))


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


class BarOrLines(Bar):
    """The bar, or where stderr is no terminal a line now and then."""

    def __init__(self, unit: str = "texts") -> None:
        super().__init__(unit)
        self._last_line = time.monotonic()

    def draw(self, words: str, done: int, of: int | None, rest: str) -> bool:
        """Show how far it is. The bar begins with the first call: before, a spinner may turn."""
        drawn = super().draw(words, done, of, rest)
        # A log gets a line every so many seconds.
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
        # A BaseException: `except Exception` on the way does not stop it.
        raise _TerminatedError

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except (KeyboardInterrupt, _TerminatedError) as error:
        say("stopped; the same command goes on where it was")
        # 128 + the signal's number, as shells have it.
        raise typer.Exit(143 if isinstance(error, _TerminatedError) else 130) from None
    finally:
        # Only for the time of the work.
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
