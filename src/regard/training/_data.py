"""From files to rows of data, and from rows to examples on disk, by the tokenizer of the run."""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from regard.core.errors import CheckpointError, InputError
from regard.core.files import folder_to_disk, plain_file, read_object, write_whole
from regard.core.wording import reason
from regard.data import Files, ParallelRows, Row, Rows, TextSource, Unit, open_sources
from regard.models import family_of, load_checkpoint
from regard.text import Tokenizer, train_tokenizer, write_tokenizer
from regard.training._batch import Examples
from regard.training._feed import generator
from regard.training._folder import Say
from regard.training._settings import DataSettings, FormName, Settings, TokenizerSettings
from regard.training.tasks._task import Task, Values

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
        # Sizes and dates tell whether the texts are still those that were encoded.
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
        # With files of their own, no share is set apart.
        share = 0.0 if settings.valid else settings.valid_share
        for number, row in enumerate(self._rows(*self._names, columns)):
            values = tuple(row.values[name] for name in columns)
            if share and settings.unit == "file":  # of few long texts the ends are set apart, not some texts
                # The last part of each text is for scoring.
                text = row.text(columns[0])
                edge = len(text) - int(len(text) * share)
                yield (text[edge:] if self.is_valid else text[:edge],), row.place
            elif not share or self._is_apart(number, share) == self.is_valid:
                yield values, row.place

    def _is_apart(self, number: int, share: float) -> bool:
        # By the row's number alone: so both splits are read one row at a time, and agree without being kept.
        return float(generator(self.seed, number, purpose="valid").random()) < share

    def _rows(self, files: Sequence[str], targets: Sequence[str], columns: Sequence[str]) -> Iterable[Row]:
        unit, encoding, csv = self.settings.unit or "line", self.settings.encoding, self.settings.csv
        # Words and tags a line; texts are paragraphs.
        if self.has_tags and all(Path(each).suffix in _TAGGED for each in files):
            return _tagged_rows(Rows(files, unit="paragraph", encoding=encoding), columns)
        # Two lists of files, read line by line beside each other.
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
        # Columns between word and tag, such as parts of speech, are passed over.
        lines = [line.split() for line in row.text().split("\n") if not line.startswith("# ")]
        # CoNLL 2003's mark of a new document.
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
    # A run that goes on has decided this before.
    data = replace(settings.data, unit=unit or _unit_of(settings, kind))
    fields = kind.fields(settings.task)
    # A column's name in the settings, in the objective, or the field's own.
    columns = {name: getattr(data, name) or kind.named.get(name, name) for name in fields}
    learned = Split(
        settings=data, columns=columns, has_tags=kind.has_tags, seed=settings.seed, is_valid=False
    )
    return learned, replace(learned, is_valid=True)


def _unit_of(settings: Settings, kind: type[Task]) -> Unit:
    """What one text is: as the settings say, else the objective's own, which only plain text can have."""
    data = settings.data
    read = (data.train, data.valid or data.train)
    files = (Files(paths, csv=data.csv, encoding=data.encoding) for paths in read)
    # Only plain text can be taken as a whole file.
    train, valid = (all(isinstance(one, TextSource) for one in open_sources(each)) for each in files)
    if "target" in kind.reads and not data.train_target and train:
        raise InputError(
            f"data.train_target must name the other side of the texts: {settings.objective} reads pairs. Or "
            "give files with columns, such as CSV."
        )
    return data.unit or (kind.unit if train and valid else "line")


_AT_ONCE = 1000
"""Rows that are encoded together: tokenizers are faster with many texts."""


def make_tokenizer(settings: Settings, kind: type[Task], split: Split, target: Path, say: Say) -> None:
    """Put the tokenizer of a run into a folder, unless it is there.

    It is the one that is given, or the checkpoint's, or one that is learned from the texts.
    """
    # A run that goes on has one.
    if target.is_dir():
        return
    spec, origin = settings.tokenizer, kind.origin(settings.start, settings.task)
    # A file, else the checkpoint's, else one learned from the texts.
    if spec.path is not None:
        tokenizer = _read(Path(spec.path), settings.family or kind.family)
    elif origin is not None:
        tokenizer = load_checkpoint(origin).require_tokenizer()
    else:
        tokenizer = _learned(spec, kind, split, say)
    # Under its own name it is whole.
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)  # of a run that was killed here
    temporary.mkdir()
    write_tokenizer(tokenizer, temporary, max_length=settings.batch.length)
    folder_to_disk(temporary)
    temporary.rename(target)


def _read(path: Path, family: str) -> Tokenizer:
    tokenizer = None
    if path.is_dir() or path.name == "tokenizer.json":
        tokenizer = Tokenizer.from_folder(
            path if path.is_dir() else path.parent, tokenizer_class=family_of(family).tokenizer_class
        )
    else:
        try:
            tokenizer = Tokenizer.from_str(plain_file(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeError) as error:
            raise InputError(f"tokenizer.path must be a tokenizer.json; {path}: {reason(error)}.") from error
    if tokenizer is None:
        raise InputError(f"tokenizer.path must be a tokenizer.json or a folder with one; got {path}.")
    return tokenizer


def _learned(given: TokenizerSettings, kind: type[Task], split: Split, say: Say) -> Tokenizer:
    sort = given.kind or kind.tokenizer_kind
    say(f"learning the tokenizer from the texts to learn from: {sort}")
    return train_tokenizer(
        # `values` hold labels too, which are no texts.
        (text for values, _ in split for text in kind.texts_of(values) if isinstance(text, str)),
        kind=sort,
        size=given.size,
        lowercase=given.lowercase,
        marks=kind.marks,
        # A character that only other texts have must not end a run.
        special=("[UNK]",) if sort == "characters" and kind.marks is None else (),
    )


@dataclass(kw_only=True)
class EncodingReport:
    """How many texts were read, left out, cut or split.

    Args:
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

    def lines(self, length: int) -> list[str]:
        """The counts in words, but for those that are 0."""
        kinds = {"blank": "were blank or too short, and left out"} | {
            name: f"were longer than {length} tokens and were {name}" for name in ("cut", "dropped", "split")
        }
        counts = {words: getattr(self, name) for name, words in kinds.items()}
        return [f"{count:,} texts {words}" for words, count in counts.items() if count]


def form_of(settings: Settings, task: Task) -> FormName:
    """How examples become rows of a batch; refused where the objective does not have that form."""
    form = settings.batch.form or task.forms[0]
    # The objective's own form comes first in its list.
    if form not in task.forms:
        raise InputError(
            f"batch.form must be {' or '.join(task.forms)} for {settings.objective}; got {form!r}."
        )
    return form


def encode_split(settings: Settings, task: Task, split: Split, folder: Path, say: Say) -> None:
    """Encode rows into a folder, unless that has been done; the file about it comes last."""
    about = folder.with_name(f"{folder.name}.json")
    if not split.is_there:
        return
    if about.exists():
        then: Any = read_object(about)["files"]
        for file, now in split.files().items():
            # Where both splits are of the same files, these are named once.
            # The texts were encoded already: a change is told, not followed.
            if now != then.get(file) and not split.is_share:
                say(f"{file} is gone or has another date; the run goes on with the texts of then")
        return
    folder.parent.mkdir(exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed before it wrote the file about it
    say(f"encoding the texts: {folder.name}")
    files, report = split.files(), EncodingReport()
    # A generator: `report` is filled while they are written.
    examples = _encoded(settings, task, split, report)
    first = next(examples, None)  # before a folder is begun that would stay empty
    if first is None:
        raise InputError(_why_empty(split, report))
    Examples.write(folder, chain([first], examples), tuple(task.columns))
    for line in report.lines(settings.batch.length):
        say(line)
    # With this file the split is done.
    write_whole(about, json.dumps({**asdict(report), "files": files, "unit": split.settings.unit}).encode())


def repeated(learned: Examples, scored: Examples) -> int:
    """How many examples to score on are also among those to learn from, by the hash of their values."""

    def hashes(examples: Examples) -> Iterator[int]:
        for number in range(len(examples)):
            yield hash(tuple(values.tobytes() for values in examples[number].values()))

    # Hashes of all examples to score on fit in memory; those to learn from are only looked up.
    wanted = Counter(hashes(scored))
    shared = {each for each in hashes(learned) if each in wanted}
    return sum(wanted[each] for each in shared)


def _encoded(
    settings: Settings, task: Task, split: Split, report: EncodingReport
) -> Iterator[Mapping[str, Sequence[int]]]:
    """The examples of all rows; `report` counts what becomes of these."""
    # What is too long is cut, split, dropped or refused.
    fit = _Fit(task, settings, report)
    rows = iter(split)
    while batch := list(islice(rows, _AT_ONCE)):
        # Blank rows are counted, and left out.
        kept = [(values, place) for values, place in batch if _has_text(values)]
        for values, place in kept:
            if refused := task.refusal(values):
                raise InputError(f"{place}: {refused}.")
        report.rows += len(batch)
        report.blank += len(batch) - len(kept)
        for example, (values, place) in zip(_encode_rows(task, kept), kept, strict=True):
            fitted = list(fit(example, place))
            report.bytes += len(task.predicted(values).encode()) if fitted else 0
            # Samples are whole texts: a cut one has no whole translation.
            if len(report.samples) < task.samples and fitted == [example]:
                report.samples.append(values)
            yield from fitted


def _encode_rows(task: Task, kept: Sequence[tuple[Values, str]]) -> list[dict[str, Sequence[int]]]:
    """The examples of some rows; an error names the row."""
    if not kept:
        return []
    try:
        return list(task.encode([values for values, _ in kept]))
    # All at once is quick; which row it was is looked for only where something is wrong.
    except (InputError, CheckpointError):  # a tokenizer that lacks something is a checkpoint's fault
        for values, place in kept:
            try:
                list(task.encode([values]))
            except (InputError, CheckpointError) as error:
                message = str(error).replace("texts[0]", "the text")
                raise InputError(f"{place}: {message.rstrip('.')}.") from error
        raise


def _why_empty(split: Split, report: EncodingReport) -> str:
    """Why there is no example."""
    if split.is_share:
        what = "sets none of the texts apart" if not report.rows else "sets nothing apart that is long enough"
        return (
            f"data.valid_share, {split.settings.valid_share}, {what} to score on: give more texts, a larger "
            "share, or 0 to score on none."
        )
    return (
        f"data.{'valid' if split.is_valid else 'train'} must hold at least one text of two tokens or more "
        f"that is not too long; of {report.rows:,} texts {report.blank:,} are blank or shorter and "
        f"{report.dropped:,} longer."
    )


def _has_text(values: Values) -> bool:
    return all(value is not None and value != [] and str(value).strip() for value in values)


class _Fit:
    """Cuts, splits, drops or refuses an example longer than `batch.length`: as `data.longer` says."""

    def __init__(self, task: Task, settings: Settings, report: EncodingReport) -> None:
        self.task, self.report = task, report
        self.longer = settings.data.longer or task.longer
        self.length = settings.batch.length
        # Where all texts become one that is cut into blocks, none is too long.
        self.any_length = form_of(settings, task) == "blocks"

    def __call__(self, example: Mapping[str, Sequence[int]], place: str) -> Iterator[Mapping[str, Any]]:
        task, report, length = self.task, self.report, self.length
        # The longest side of a pair decides.
        size = max(len(example[name]) for name in task.sized)
        if self.any_length or task.beyond < size <= length + task.beyond:
            yield example
        elif size <= task.beyond:  # nothing stands before its only token to predict it from
            report.blank += 1
        elif self.longer == "split":
            report.split += 1
            yield from task.split(example, length)
        elif self.longer == "cut":
            report.cut += 1
            yield task.cut(example, length)
        elif self.longer == "drop":
            report.dropped += 1
        else:
            raise InputError(
                f"{place}: has {size} tokens, and batch.length is {length}; give a larger length, or set "
                "data.longer to cut, drop or split."
            )
