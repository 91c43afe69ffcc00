"""From files to examples: what a run learns from, and what it is scored on."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from regard.core.errors import CheckpointError, InputError
from regard.data import ParallelRows, Row, Rows, TextSource, Unit, open_sources
from regard.training._examples import Examples
from regard.training._sampler import generator
from regard.training._settings import DataSettings, Settings
from regard.training._tagged import CONLL, TaggedRows
from regard.training.tasks._task import Task

_AT_ONCE = 1000

Values = tuple[Any, ...]
"""One row of data: the values of what the objective reads."""


@dataclass(kw_only=True)
class Taken:
    """What became of the texts.

    Attributes:
        rows: read.
        blank: left out, since they hold no text, or too little to predict anything from.
        cut, dropped, split: those that were too long, by what became of them.
        bytes: of what is predicted, in UTF-8.
        samples: the first rows that stayed whole, as many as the objective wants.
    """

    rows: int = 0
    blank: int = 0
    cut: int = 0
    dropped: int = 0
    split: int = 0
    bytes: int = 0
    samples: list[Values] = field(default_factory=list)

    def told(self, length: int) -> list[str]:
        """What somebody should know, in words."""
        kinds = {"blank": "were blank or too short, and left out"} | {
            name: f"were longer than {length} tokens and were {name}" for name in ("cut", "dropped", "split")
        }
        return [
            f"{getattr(self, name):,} texts {words}" for name, words in kinds.items() if getattr(self, name)
        ]


@dataclass(frozen=True, kw_only=True)
class Side:
    """A set of files: those to learn from, or those to score on.

    Args:
        settings: where they are, and what a text is; without a unit it is a line.
        columns: for each field that the objective reads, the column that has it where files have columns.
        has_tags: whether plain text is a word and its tag a line, with blank lines between texts.
        seed: of the rows that are set apart.
        is_valid: whether the set to score on is meant.
    """

    settings: DataSettings
    columns: Mapping[str, str]
    has_tags: bool
    seed: int
    is_valid: bool

    @property
    def is_there(self) -> bool:
        """Whether there is such a set."""
        return not self.is_valid or bool(self.settings.valid) or self.settings.valid_share > 0.0

    def files(self) -> dict[str, list[int] | None]:
        """The files, each with its size and the time of its last change; None for one that is not there."""
        found = {name: Path(name) for names in self._names for name in names}
        states = {name: path.stat() if path.is_file() else None for name, path in found.items()}
        return {name: state and [state.st_size, state.st_mtime_ns] for name, state in states.items()}

    @property
    def _names(self) -> tuple[Sequence[str], Sequence[str]]:
        """The files of the texts and of their targets."""
        settings = self.settings
        if settings.valid and self.is_valid:
            return settings.valid, settings.valid_target
        return settings.train, settings.train_target

    def __iter__(self) -> Iterator[tuple[Values, str]]:
        """Each row, with its place for messages."""
        settings = self.settings
        files, targets = self._names
        share = 0.0 if settings.valid else settings.valid_share
        columns = list(self.columns.values())
        for number, row in enumerate(self._rows(files, targets, columns)):
            values = tuple(row.values[name] for name in columns)
            if share and settings.unit == "file":
                text = row.text(columns[0])
                edge = len(text) - int(len(text) * share)
                yield (text[edge:] if self.is_valid else text[:edge],), row.place
            elif not share or self._is_apart(number, share) == self.is_valid:
                yield values, row.place

    def _is_apart(self, number: int, share: float) -> bool:
        return float(generator(self.seed, number, purpose="valid").random()) < share

    def _rows(self, files: Sequence[str], targets: Sequence[str], columns: Sequence[str]) -> Iterable[Row]:
        unit, encoding, csv = self.settings.unit or "line", self.settings.encoding, self.settings.csv
        if self.has_tags and all(Path(each).suffix in CONLL for each in files):
            return TaggedRows(files, columns, encoding=encoding)
        if targets:
            sides = zip(columns, (files, targets), strict=True)
            return ParallelRows({name: Rows(paths, unit=unit, encoding=encoding) for name, paths in sides})
        return Rows(files, columns, unit=unit, csv=csv, encoding=encoding)


def unit_of(settings: Settings, kind: type[Task]) -> Unit:
    """What one text is: as the settings say, else the objective's own, which only plain text can have.

    Raises:
        InputError: files that cannot be read, or have no pairs where the objective reads pairs.
    """
    data = settings.data
    train, valid = (
        all(isinstance(one, TextSource) for one in open_sources(files, csv=data.csv, encoding=data.encoding))
        for files in (data.train, data.valid or data.train)
    )
    if "target" in kind.reads and not data.train_target and train:
        raise InputError(
            f"data.train_target must name the other side of the texts: {settings.objective} reads pairs. Or "
            "give files with columns, such as CSV."
        )
    return data.unit or (kind.unit if train and valid else "line")


def write_examples(
    side: Side,
    task: Task,
    folder: Path,
    *,
    length: int,
    longer: str,
    cuts: bool,
    on_rows: Callable[[int], None] = lambda _: None,
) -> Taken:
    """Encode a set of files, once.

    Args:
        side: the files.
        task: encodes them.
        folder: where the examples go.
        length: the most tokens of an example.
        longer: what becomes of those that are longer.
        cuts: whether examples may not be longer; where they become blocks, they may.
        on_rows: is told how many rows have been read.

    Raises:
        InputError: a row that is no text, or is too long and to be refused; no row at all.
    """
    taken = Taken()

    def encoded() -> Iterator[Mapping[str, Sequence[int]]]:
        rows = iter(side)
        while batch := list(islice(rows, _AT_ONCE)):
            kept = [(values, place) for values, place in batch if _has_text(values)]
            for values, place in kept:
                if refused := task.refusal(values):
                    raise InputError(f"{place}: {refused}.")
            taken.rows += len(batch)
            taken.blank += len(batch) - len(kept)
            on_rows(taken.rows)
            if kept:
                for example, (values, place) in zip(_encoded(task, kept), kept, strict=True):
                    fitted = list(_fitted(example, task, length if cuts else None, longer, place, taken))
                    taken.bytes += len(task.predicted(values).encode()) if fitted else 0
                    if len(taken.samples) < task.samples and fitted == [example]:
                        taken.samples.append(values)
                    yield from fitted

    shutil.rmtree(
        folder, ignore_errors=True
    )  # of a run that was killed before it had written the file about it
    examples = encoded()
    first = next(examples, None)
    if first is None:
        raise InputError(_nothing(side, taken))
    Examples.write(folder, chain([first], examples), tuple(task.columns))
    return taken


def _encoded(task: Task, kept: Sequence[tuple[Values, str]]) -> list[dict[str, Sequence[int]]]:
    """The examples of some rows; an error names the row."""
    try:
        return list(task.encode([values for values, _ in kept]))
    except (InputError, CheckpointError):  # a tokenizer that lacks something is a checkpoint's fault
        for values, place in kept:
            try:
                list(task.encode([values]))
            except (InputError, CheckpointError) as error:
                told = str(error).replace("texts[0]", "the text")
                raise InputError(f"{place}: {told.rstrip('.')}.") from error
        raise


def _nothing(side: Side, taken: Taken) -> str:
    """Why there is no example."""
    name = "data.valid" if side.is_valid and side.settings.valid else "data.train"
    if side.is_valid and not side.settings.valid:
        what = "sets none of the texts apart" if not taken.rows else "sets nothing apart that is long enough"
        return (
            f"data.valid_share, {side.settings.valid_share}, {what} to score on: give more texts, a larger "
            "share, or 0 to score on none."
        )
    return (
        f"{name} must hold at least one text of two tokens or more that is not too long; of {taken.rows:,} "
        f"texts {taken.blank:,} are blank or shorter and {taken.dropped:,} longer."
    )


def _has_text(values: Values) -> bool:
    return all(value is not None and value != [] and str(value).strip() for value in values)


def _fitted(
    example: Mapping[str, Sequence[int]],
    task: Task,
    length: int | None,
    longer: str,
    place: str,
    taken: Taken,
) -> Iterator[Mapping[str, Sequence[int]]]:
    size = max(len(example[name]) for name in task.sized)
    if length is None or task.beyond < size <= length + task.beyond:
        yield example
    elif size <= task.beyond:  # nothing stands before its only token to predict it from
        taken.blank += 1
    elif longer == "split":
        taken.split += 1
        yield from task.split(example, length)
    elif longer == "cut":
        taken.cut += 1
        yield task.cut(example, length)
    elif longer == "drop":
        taken.dropped += 1
    else:
        raise InputError(
            f"{place}: has {size} tokens, and batch.length is {length}; give a larger length, or set "
            "data.longer to cut, drop or split."
        )
