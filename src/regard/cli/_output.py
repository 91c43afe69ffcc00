"""What commands write: files that may be written to, JSON, paths, tables."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.core.errors import InputError, OutputError

if TYPE_CHECKING:
    from rich.console import Console


def check_outputs(files: Mapping[str, Path | None]) -> None:
    """Refuse to write a file where stdout goes, which would lose what is printed, or two to one place."""
    asked: dict[str, str] = {}
    for option, path in files.items():
        if path is None:
            continue
        if str(path) == "-":
            raise InputError("- is not a file to write to; for a file of that name give ./-.")
        try:
            same = os.path.samestat(path.stat(), os.fstat(1))
        except OSError:
            same = False  # it is not there yet, or writing it will say what is wrong
        if same:
            raise OutputError(f"{str(path)!r} is where stdout goes; choose another file.")
        earlier = asked.setdefault(os.path.realpath(path), option)
        if earlier != option:
            raise InputError(f"{earlier} and {option} name the same file, {str(path)!r}; choose two.")


def check_table(path: Path | None) -> None:
    """Refuse a table's file by its name, before the work."""
    check_outputs({"--output": path})
    if path is not None and path.suffix not in (".csv", ".jsonl", ".parquet"):
        raise InputError(f"--output must end in .csv, .jsonl or .parquet; got {path.name!r}.")


def check_new(path: Path | None, *, force: bool | None = None) -> None:
    """Refuse to write over a file that took long to make; `force` is None where there is no --force."""
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
        found.to_file(output)
    if facts is not None:
        print_json(facts)
    elif output is not None:
        typer.echo(f"{len(found):,} of {found.total:,} {what} in {output}")
    else:
        console().print(found)


def console() -> "Console":
    """Where results are drawn: 80 columns in a pipe, the terminal's own width up to 100 on one."""
    from rich.console import Console

    drawn = Console(highlight=False)
    return Console(highlight=False, width=min(drawn.width, 100))
