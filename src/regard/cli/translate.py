"""`regard translate`: line by line through an encoder-decoder."""

import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from regard.cli import generate as writing
from regard.cli._input import as_typed, check_lines, count_lines, read_lines
from regard.cli._options import OTHER_MODEL, argument, flag, option
from regard.cli._output import BarOrLines, check_new, check_outputs, say
from regard.core.arguments import Count, Natural, Positive
from regard.core.errors import InputError, OutputError
from regard.core.files import locked, write_whole
from regard.core.progress import left

if TYPE_CHECKING:
    from regard.api import Model


def translate(
    ctx: typer.Context,
    source: Path = argument("FILE", "One text a line; - or nothing is stdin.", Path("-")),
    output: Path | None = option(
        "--output -o FILE", "A file for the result; typed again, the command goes on with it."
    ),
    force: bool = flag("--force", "Write over a complete file."),
    model: str | None = OTHER_MODEL,
    prefix: str | None = option("--prefix TEXT", "How every translation begins."),
    prefixes: Path | None = option("--prefixes FILE", "Instead of --prefix: how each begins, line by line."),
    max_length: Count | None = writing.MAX,
    min_length: Natural | None = writing.MIN,
    beams: Count | None = writing.BEAMS,
    length_penalty: float | None = writing.LENGTH_PENALTY,
    best: int | None = option("--best N", "With --json: the best N beams."),
    repetition_penalty: Positive | None = writing.REPETITION,
    no_repeat: Natural | None = writing.NO_REPEAT,
    recommended: bool = writing.RECOMMENDED,
    precision: str = writing.PRECISION,
    lookup: bool = writing.LOOKUP,
    draft: str | None = writing.DRAFT,
    batch_tokens: int | None = option("--batch-tokens N", "The most tokens that run together."),
    as_json: bool = flag("--json", "Print a line of JSON for each: all beams, tokens, log-probabilities."),
) -> None:
    """Translate line by line, or summarise: whatever the encoder-decoder was trained for.

    Line n of the result belongs to line n of the source; empty lines stay empty. Without -o it goes to
    stdout. With -o you may interrupt the command and type it again: it goes on where it stopped, and writes
    what an uninterrupted run writes. Until the file is complete it is called FILE.unfinished; a complete one
    is written over only with --force.
    """
    typed = ctx.params
    writing.check_choice(typed)
    # A file that cannot be opened is told before the model is loaded.
    for path, name in ((source, "FILE"), (prefixes, "--prefixes")):
        if path is not None:
            check_lines(path, name)
    check_outputs({"--output": output})
    check_new(output, force=force)
    loaded = writing.model_of(typed, "Helsinki-NLP/opus-mt-en-de")
    if len(loaded.network.prefixes) != 2:
        raise InputError(
            f"--model must be an encoder-decoder, such as T5 or Marian; this {loaded.loaded.family} has one "
            "stack. With a decoder, `regard generate` goes on with texts."
        )
    # All that decides what is written, as arguments of `generate`.
    how = {
        "choice": writing.choice_of(loaded, typed),
        "count": 1 if best is None else best,
        **writing.rules_of(typed),
    }
    if batch_tokens is not None:
        how["batch_tokens"] = batch_tokens
    if prefix is not None:
        how["prefix"] = as_typed(prefix)
    lines = Lines(source, prefixes, loaded, how, precision=precision)
    # To stdout portion by portion; to a file that can be gone on with.
    if output is None:
        to_stdout(lines, as_json)
    else:
        to_file(lines, output, as_json)


_PORTION: Final = 256
"""Lines that are translated together, and stored together: a run that is killed has these to do again."""

_OTHER: Final = (
    "is not what was translated before; give the same file, or remove what is unfinished to begin anew."
)

Record = dict[str, Any]
_Line = tuple[str, str | None]
"""A source, and how its translation begins."""


class Lines:
    """The lines of a file, and what a model writes for them, portion by portion.

    Line n of `prefixes` is how the translation of line n begins; `how` are the arguments of `Model.generate`.
    """

    def __init__(
        self, source: Path, prefixes: Path | None, model: "Model", how: Record, *, precision: str
    ) -> None:
        self._source, self._prefixes, self._model, self._how = source, prefixes, model, how
        self._precision = precision

    def about(self) -> Record:
        """All that decides the result, except the lines."""
        from regard.decoding import Rules

        # What is no rule comes out by itself.
        how = dict(self._how)
        parts = {name: repr(how.pop(name, None)) for name in ("choice", "count", "prefix")}
        parts["batches"] = f"{_PORTION} lines, {how.pop('batch_tokens', 'default')} tokens"
        loaded = self._model.loaded
        return {
            "model": loaded.mark(),
            "tokenizer": self._model.tokenizer.mark(),
            "rules": repr(Rules.of(loaded, **how)),
            "precision": self._precision,
            **parts,
        }

    def records(self, progress: BarOrLines, earlier: Iterable[_Line] = ()) -> Iterator[list[Record]]:
        """Portions of what was written, for each line its source and ways; without the earlier lines."""
        sources = iter(earlier)
        lines = self._lines()
        # For the bar: lines in all, if they can be counted.
        total, begun = count_lines(self._source), time.monotonic()
        first = texts = skipped = 0
        # Portions of one size, so that a file is gone on with at the end of one.
        while portion := list(islice(lines, _PORTION)):
            # What an earlier run has written must be of the same lines.
            was = list(islice(sources, len(portion)))
            for place, line in enumerate(was):
                if line != portion[place]:
                    raise InputError(f"line {first + place + 1} of FILE {_OTHER}")
            before = texts

            def show(now: int, _: int, before: int = before, skipped: int = skipped) -> None:
                rest = None if total is None else total - skipped
                here = before + now - skipped
                progress.show(before + now, total, left(here, rest, time.monotonic() - begun))

            if not was:  # else it was translated before the interruption
                yield self._portion(portion, first, show)
            first += len(portion)
            # Blank lines are written through, and not counted.
            texts += sum(bool(text.strip()) for text, _ in portion)
            skipped = texts if was else skipped
        # Fewer lines than were translated before.
        if next(sources, None) is not None:
            raise InputError(f"the end of FILE {_OTHER}")

    def _lines(self) -> Iterator[_Line]:
        sources = (text for _, text in read_lines(self._source, "FILE", blank_too=True))
        if self._prefixes is None:
            yield from ((text, None) for text in sources)
            return
        begins = (text for _, text in read_lines(self._prefixes, "--prefixes", blank_too=True))
        # Line by line, and as many of one as of the other.
        for pair in zip_longest(sources, begins):
            if None in pair:
                raise InputError("--prefixes must have as many lines as FILE; blank ones for none.")
            yield pair

    def _portion(self, portion: list[_Line], first: int, show: Any) -> list[Record]:
        texts, how = [text for text, _ in portion], self._how
        if self._prefixes is not None:
            how = {**how, "prefix": [begin for _, begin in portion]}
        try:
            written: Any = self._model.generate(texts, progress=show, **how)
        except InputError as error:
            # From places in the portion to lines of the file.
            named = re.sub(r"texts\[(\d+)\]", lambda at: f"line {first + int(at[1]) + 1} of FILE", str(error))
            raise InputError(named) from error
        return [
            {"source": text, **({} if begin is None else {"prefix": begin})}
            | {"ways": [_without_prompt(way.to_json()) for way in ways]}
            for (text, begin), ways in zip(portion, written, strict=True)
        ]


def _without_prompt(way: Record) -> Record:
    return {name: value for name, value in way.items() if name != "prompt"}


def _line(record: Record, as_json: bool) -> str:
    """A text with line ends in it becomes one line, for line n to belong to line n."""
    return json.dumps(record) if as_json else " ".join(record["ways"][0]["text"].splitlines())


def to_stdout(lines: Lines, as_json: bool) -> None:
    """Print each portion as soon as it is there."""
    with BarOrLines() as progress:
        for records in lines.records(progress):
            typer.echo("\n".join(_line(record, as_json) for record in records))


def to_file(lines: Lines, output: Path, as_json: bool) -> None:
    """Write a file, or go on with one that is unfinished.

    The unfinished file has what decides on it in its first line, then a record a line, and grows by whole
    portions; at the end the result is written under its own name, and the unfinished file goes.
    """
    path = output.with_name(f"{output.name}.unfinished")
    if not path.parent.is_dir():
        raise OutputError(f"{str(output)!r} cannot be written: there is no folder {str(path.parent)!r}.")
    # Two commands with one output would mix their lines.
    with locked(output.absolute().parent, f".{output.name}.lock"):
        try:
            with BarOrLines() as progress:
                done = _begun(path, lines.about())
                # Each portion is on disk before the next is begun.
                for records in lines.records(progress, _lines_of(path, done)):
                    if done:
                        progress.tell(f"went on after {done:,} lines")
                        done = 0
                    _append(path, records)
        except KeyboardInterrupt:
            say("stopped; the same command goes on where it was")
            raise typer.Exit(130) from None
        # Whole, and only then the unfinished file goes.
        write_whole(output, lambda place: _finish(path, place, as_json))
        path.unlink()


def _begun(path: Path, about: Record) -> int:
    """Cut an unfinished file to whole portions, and count their lines; begin one if there is none."""
    if not path.exists():
        write_whole(path, json.dumps(about).encode() + b"\n")
        return 0
    with open(path, "rb") as file:
        try:
            # The first line says what it was begun with.
            earlier = json.loads(file.readline())
        except ValueError as error:
            raise InputError(f"{str(path)!r} is damaged; remove it to begin anew.") from error
        if other := [name for name in about if earlier.get(name) != about[name]]:
            raise InputError(
                f"{str(path)!r} was begun with another {' and '.join(other)}; give the same command, or "
                "remove that file to begin anew."
            )
        done, size, kept = 0, file.tell(), file.tell()
        for line in file:
            size += len(line)
            if line.endswith(b"\n"):  # else it was being written
                done += 1
                # Up to the last whole portion.
                kept = kept if done % _PORTION else size
    # A portion that was being written is done again.
    os.truncate(path, kept)
    return done // _PORTION * _PORTION


def _lines_of(path: Path, count: int) -> Iterator[_Line]:
    if count:
        with open(path, encoding="utf-8") as records:
            for record in islice(records, 1, count + 1):
                known = json.loads(record)
                yield known["source"], known.get("prefix")


def _append(path: Path, records: Sequence[Record]) -> None:
    with open(path, "ab") as file:
        file.write("".join(f"{json.dumps(record)}\n" for record in records).encode())
        file.flush()
        os.fsync(file.fileno())


def _finish(path: Path, place: Path, as_json: bool) -> None:
    with open(path, encoding="utf-8") as records, open(place, "w", encoding="utf-8", newline="\n") as file:
        next(records)
        for record in records:
            file.write(f"{_line(json.loads(record), as_json)}\n")
