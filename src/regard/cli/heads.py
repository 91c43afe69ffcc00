"""`regard heads`: what each head does, over a sentence or a file of texts."""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli._lines import count_lines, read_lines
from regard.cli._options import (
    DEFAULT_MODEL,
    JsonOption,
    KindOption,
    ModelOption,
    TargetOption,
    as_typed,
    check_output,
    console,
    load_model,
    print_json,
    read_texts,
)
from regard.core.errors import InputError

if TYPE_CHECKING:
    from regard.tracing import HeadTable


def heads(
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="A text; - reads it from stdin.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="A file, one text a line; - reads stdin."),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option("--repeat", metavar="N", help="N sequences of random tokens, each said twice."),
    ] = None,
    target: TargetOption = None,
    target_file: Annotated[
        Path | None,
        typer.Option("--target-file", metavar="FILE", help="The same with --file, line by line."),
    ] = None,
    kind: KindOption = None,
    layer: Annotated[
        int | None, typer.Option("--layer", "-l", metavar="N", help="This layer only; -1 is the last.")
    ] = None,
    head: Annotated[
        int | None,
        typer.Option("--head", "-n", metavar="N", help="This head only; with --layer, its whole card."),
    ] = None,
    threshold: Annotated[
        float,
        typer.Option("--threshold", metavar="X", help="What an effect's lower end must exceed."),
    ] = 0.1,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the random draws.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write a .parquet file, and no table."),
    ] = None,
    model: ModelOption = DEFAULT_MODEL,
    as_json: JsonOption = False,
) -> None:
    """See what each head does: previous token, induction, delimiter sink, ...

    The effect is the share of attention that the pattern's keys get, over what they would get from a head
    without the pattern. A pattern is named where the lower end of the effect's bootstrap interval exceeds the
    threshold; "-" where none is. Captured is their share of all attention; next, the second strongest.
    """
    if sum(each is not None for each in (text, file, repeat)) != 1:
        raise InputError("give a TEXT, a --file or --repeat, and one of them only.")
    if target is not None and text is None:
        raise InputError("--target goes with a TEXT; with --file, give --target-file.")
    if target_file is not None and file is None:
        raise InputError("--target-file goes with --file; with a TEXT, give --target.")
    if str(file) == str(target_file) == "-":
        raise InputError("- can stand for one file only: stdin is read once.")
    if repeat is not None and repeat < 1:
        raise InputError(f"--repeat must be at least 1; got {repeat}.")
    if output is not None:
        check_output(output)
        from regard.tracing.patterns import check_heads_file

        check_heads_file(output)
    total = repeat if file is None else count_lines(file)
    texts: Any = None
    targets: Any = None
    lines: _Numbered | None = None
    if text is not None:
        [texts] = read_texts([text])
        targets = None if target is None else as_typed(target)
    elif file is not None:
        texts = lines = _Numbered(file, blank_too=target_file is not None)
        if target_file is not None:
            targets = (line for _, line in read_lines(target_file, "--target-file", blank_too=True))
    loaded = load_model(model)
    passed_over = _PassedOver(lines)
    with ExitStack() as stack:
        if repeat is not None:
            from regard.tracing import repeated_tokens

            texts = repeated_tokens(loaded.loaded, repeat, seed=seed)
        if text is None:
            texts = stack.enter_context(_Progress(total)).follow(texts)
        table = loaded.heads(
            texts,
            targets=targets,
            kind=None if kind is None else kind.value,
            layer=layer,
            head=head,
            threshold=threshold,
            seed=seed,
            on_refused=None if lines is None else passed_over,
        )
    passed_over.told()
    if len(loaded.network.prefixes) == 2 and targets is None:
        typer.echo(
            "regard: the encoder's heads only; for the decoder's, give --target or --target-file", err=True
        )
    _deliver(table, output, as_json)


def _deliver(table: "HeadTable", output: Path | None, as_json: bool) -> None:
    if output is not None:
        table.write(output)
    if as_json:
        print_json(table.to_json())
    elif output is None:
        console().print(table)


class _Numbered:
    """The texts of a file; `line` is the number of the last one that was handed on.

    The first one is read at once, so that a file that cannot be used is refused before a model is loaded.
    """

    def __init__(self, file: Path, *, blank_too: bool) -> None:
        self.line = 0
        rest = read_lines(file, "--file", blank_too=blank_too)
        self._lines = chain(list(islice(rest, 1)), rest)

    def __iter__(self) -> Iterator[str]:
        for number, text in self._lines:
            self.line = number
            yield text


# Lines that are passed over and told of one by one; of more, only how many there are.
_TOLD = 10


class _PassedOver:
    """Says on stderr which lines the model cannot take."""

    def __init__(self, lines: _Numbered | None) -> None:
        self._lines, self._count = lines, 0

    def __call__(self, number: int, error: InputError) -> None:
        self._count += 1
        if self._count <= _TOLD and self._lines is not None:
            self._say(f"line {self._lines.line} is passed over: {error}")

    def told(self) -> None:
        """How many there were."""
        if self._count:
            self._say(f"{self._count} line{'s were' if self._count > 1 else ' was'} passed over in all")

    def _say(self, message: str) -> None:
        from regard.views import printable

        typer.echo(f"regard: {printable(message)}", err=True)


# Seconds between two lines of progress where stderr is no terminal.
_EVERY = 10.0


class _Progress:
    """A bar on stderr where that is a terminal, else a line now and then."""

    def __init__(self, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        drawn = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=drawn, transient=True) if drawn.is_terminal else None
        self._total = total

    def __enter__(self) -> "_Progress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def follow(self, texts: Any) -> Iterator[Any]:
        """The texts, counted as they go by."""
        task = None if self._bar is None else self._bar.add_task("texts", total=self._total)
        told = time.monotonic()
        for count, text in enumerate(texts):
            yield text
            if self._bar is not None and task is not None:
                self._bar.update(task, completed=count + 1)
            elif sys.stderr is not None and time.monotonic() - told >= _EVERY:
                told = time.monotonic()
                of = "" if self._total is None else f" of {self._total:,}"
                typer.echo(f"regard: {count + 1:,}{of} texts", err=True)
