"""From files to rows of data: those that a run learns from, and those that it is scored on."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.core.errors import InputError
from regard.data import ParallelRows, Row, Rows, TextSource, Unit, open_sources
from regard.training._sampler import generator
from regard.training._settings import DataSettings, Settings
from regard.training.tasks._task import Task

Values = tuple[Any, ...]
"""One row of data: the values of what the objective reads."""

_TAGGED = (".txt", ".conll", ".bio", ".iob", ".iob2")
"""Endings of files that hold a word and its tag a line."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """The rows to learn from, or those to score on.

    Args:
        settings: where the files are, and what a text of them is; without a unit it is a line.
        columns: for each field that the objective reads, the column that has it where files have columns.
        has_tags: whether plain text is a word and its tag a line, with blank lines between texts.
        seed: of the rows that are set apart.
        is_valid: whether the rows to score on are meant.
    """

    settings: DataSettings
    columns: Mapping[str, str]
    has_tags: bool
    seed: int
    is_valid: bool

    @property
    def is_there(self) -> bool:
        """Whether there are such rows."""
        return not self.is_valid or bool(self.settings.valid) or self.settings.valid_share > 0.0

    @property
    def is_share(self) -> bool:
        """Whether these are a part of the files to learn from."""
        return self.is_valid and not self.settings.valid

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
        settings, columns = self.settings, list(self.columns.values())
        share = 0.0 if settings.valid else settings.valid_share
        for number, row in enumerate(self._rows(*self._names, columns)):
            values = tuple(row.values[name] for name in columns)
            if share and settings.unit == "file":  # of few long texts the ends are set apart, not some texts
                text = row.text(columns[0])
                edge = len(text) - int(len(text) * share)
                yield (text[edge:] if self.is_valid else text[:edge],), row.place
            elif not share or self._is_apart(number, share) == self.is_valid:
                yield values, row.place

    def _is_apart(self, number: int, share: float) -> bool:
        # Of its number alone: so both splits are read one row at a time, and agree without being kept.
        return float(generator(self.seed, number, purpose="valid").random()) < share

    def _rows(self, files: Sequence[str], targets: Sequence[str], columns: Sequence[str]) -> Iterable[Row]:
        unit, encoding, csv = self.settings.unit or "line", self.settings.encoding, self.settings.csv
        if self.has_tags and all(Path(each).suffix in _TAGGED for each in files):
            return _tagged_rows(Rows(files, unit="paragraph", encoding=encoding), columns)
        if targets:
            sides = zip(columns, (files, targets), strict=True)
            return ParallelRows({name: Rows(paths, unit=unit, encoding=encoding) for name, paths in sides})
        return Rows(files, columns, unit=unit, csv=csv, encoding=encoding)


def _tagged_rows(texts: Rows, columns: Sequence[str]) -> Iterator[Row]:
    """Texts in which each line holds a word first and its tag last, as rows of words and tags.

    Lines that begin with "#" and a blank are remarks, and "-DOCSTART-" is no word.

    Source: Tjong Kim Sang and De Meulder 2003, arXiv cs/0306050, section 2.2.
    """
    for row in texts:
        lines = [line.split() for line in row.text().split("\n") if not line.startswith("# ")]
        lines = [line for line in lines if line[0] != "-DOCSTART-"]
        for line in lines:
            if len(line) < 2:
                raise InputError(f"the text from {row.place} on: {line[0]!r} has no tag on its line.")
        if lines:
            values = ([line[0] for line in lines], [line[-1] for line in lines])
            yield Row(dict(zip(columns, values, strict=True)), row.place)


def splits_of(settings: Settings, kind: type[Task], unit: Unit | None = None) -> tuple[Split, Split]:
    """The rows to learn from, and those to score on.

    A run that goes on knows what one text is, its `unit`: its files may be gone since they were encoded.
    """
    data = replace(settings.data, unit=unit or _unit_of(settings, kind))
    fields = kind.fields(settings.task)
    columns = {name: getattr(data, name) or kind.named.get(name, name) for name in fields}
    learned = Split(
        settings=data, columns=columns, has_tags=kind.has_tags, seed=settings.seed, is_valid=False
    )
    return learned, replace(learned, is_valid=True)


def _unit_of(settings: Settings, kind: type[Task]) -> Unit:
    """What one text is: as the settings say, else the objective's own, which only plain text can have."""
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
