"""`regard senses`: the uses of a word in groups; and senses taught by a few answers."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli._input import open_index
from regard.cli._options import INDEX, INDEX_MODEL, JSON, WHERE, argument, flag, option
from regard.cli._output import Progress, check_outputs, console, print_json, print_path, say
from regard.core.errors import InputError
from regard.core.wording import printable

if TYPE_CHECKING:
    from regard.concordance import Line

WORD = argument("WORD", "A word or several in a row.")
SENSES = option("--file -f FILE", "Senses with examples, in JSON, to label the uses by.")
SEED = option("--seed N", "The seed of the samples.", 0)


def senses(
    index: Path = INDEX,
    word: str = WORD,
    groups: int | None = option("--groups N", "So many groups, stable or not."),
    file: Path | None = SENSES,
    teach: bool = flag("--teach", "Ask for the senses of a few lines, and add them to --file."),
    most: int = option("--most N", "With --teach: so many answers.", 20),
    where: list[str] | None = WHERE,
    page: Path | None = option("--page FILE", "Write a page too: a map of the uses."),
    seed: int = SEED,
    model: str | None = INDEX_MODEL,
    as_json: bool = JSON,
) -> None:
    """Put the uses of a word into groups by what they mean where they stand.

    Each group has its share, typical lines and the words that set it apart; and it is said how stable the
    grouping is. A --file that is not there is written: give the groups names in it, and move examples from
    one to another. One that is there labels the uses by its examples, in this index or another.

    With --teach, lines are shown that would decide most. Press the number of a sense, n for a new one, s to
    pass a line over, q to stop. Every answer is saved at once, so one may go on later. Where stdin is no
    terminal, each of its lines is an answer: a name, a number, s or q.
    """
    check_outputs({"--page": page, "--file": file})
    if teach and (file is None or groups is not None):
        raise InputError("--teach must have a --file, where the answers go, and no --groups.")
    corpus = open_index(index, model)
    condition = where or []
    with Progress("uses") as progress:
        if teach and file is not None:
            count = corpus.teach(word, file, _ask, where=condition, most=most, progress=progress.show)
            say(f"{count} line{'s' * (count != 1)} labelled, in {file}")
        found = corpus.senses(
            word, where=condition, groups=groups, file=file, seed=seed, progress=progress.show
        )
    if page is not None:
        found.page().write(page)
    written = {} if page is None else {"page": str(page.resolve())}
    if as_json:
        about: dict[str, Any] = {"word": found.word, "about": found.about, "stability": found.stability}
        print_json({**about, "groups": found.to_rows(), "lines": found.lines.to_rows(), **written})
        return
    console().print(found)
    if page is not None:
        print_path(page.resolve())


def _ask(line: "Line", names: Sequence[str]) -> str | None:
    guess = "" if line.label is None else f"   [{line.label}? {100 * (line.probability or 0):.0f} %]"
    left, right = " ".join(line.left[-120:].split()), " ".join(line.right[:120].split())
    typer.echo("\n" + printable(f"{left} [[{line.place.node}]] {right}{guess}"), err=True)
    keys = [f"{number} {name}" for number, name in enumerate(names[:9], 1)]
    typer.echo(printable("   ".join([*keys, "n new", "s pass over", "q stop"])), err=True)
    if not sys.stdin.isatty():
        answer = sys.stdin.readline()
        typed = answer.strip() or ("s" if answer else "q")
    elif (typed := typer.getchar()) == "n":
        typed = typer.prompt("its name", err=True).strip()
        return str(typed)
    if typed in ("q", "\x1b", "\x04"):
        return None
    if typed.isdecimal() and 1 <= int(typed) <= len(names):
        return names[int(typed) - 1]
    return "" if typed == "s" or len(typed) == 1 else typed
