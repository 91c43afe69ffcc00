"""From rows of data to examples on disk, by the tokenizer of the run."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from regard.core.errors import CheckpointError, InputError
from regard.core.files import write_whole
from regard.core.json import read_object
from regard.core.wording import reason
from regard.models import load_checkpoint
from regard.text import Tokenizer, train_tokenizer, write_tokenizer
from regard.training._data import Split, Values
from regard.training._examples import Examples
from regard.training._folder import Say
from regard.training._settings import FormName, Settings, TokenizerSettings
from regard.training.tasks._task import Task

_AT_ONCE = 1000
"""Rows that are encoded together: tokenizers are faster with many texts."""


def make_tokenizer(settings: Settings, kind: type[Task], split: Split, target: Path, say: Say) -> None:
    """Put the tokenizer of a run into a folder, unless it is there.

    It is the one that is given, or the checkpoint's, or one that is learned from the texts.
    """
    if target.is_dir():
        return
    given, origin = settings.tokenizer, kind.origin(settings.start, settings.task)
    if given.path is not None:
        made = _read(Path(given.path), settings.family or kind.family)
    elif origin is not None:
        made = load_checkpoint(origin).require_tokenizer()
    else:
        made = _learned(given, kind, split, say)
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)  # of a run that was killed here
    temporary.mkdir()
    write_tokenizer(made, temporary, max_length=settings.batch.length)
    temporary.rename(target)


def _read(path: Path, family: str) -> Tokenizer:
    made = None
    if path.is_dir() or path.name == "tokenizer.json":
        made = Tokenizer.from_folder(path if path.is_dir() else path.parent, model_type=family)
    else:
        try:
            made = Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeError) as error:
            raise InputError(f"tokenizer.path must be a tokenizer.json; {path}: {reason(error)}.") from error
    if made is None:
        raise InputError(f"tokenizer.path must be a tokenizer.json or a folder with one; got {path}.")
    return made


def _learned(given: TokenizerSettings, kind: type[Task], split: Split, say: Say) -> Tokenizer:
    sort = given.kind or kind.tokenizer_kind
    say(f"learning the tokenizer from the texts to learn from: {sort}")
    return train_tokenizer(
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
            if now != then.get(file) and not split.is_share:
                say(f"{file} is not what it was when the run began; it goes on with the texts of then")
        return
    folder.parent.mkdir(exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed before it wrote the file about it
    say(f"encoding the texts: {folder.name}")
    files, report = split.files(), EncodingReport()
    examples = _encoded(settings, task, split, report)
    first = next(examples, None)  # before a folder is begun that would stay empty
    if first is None:
        raise InputError(_why_empty(split, report))
    Examples.write(folder, chain([first], examples), tuple(task.columns))
    for line in report.lines(settings.batch.length):
        say(line)
    write_whole(about, json.dumps({**asdict(report), "files": files, "unit": split.settings.unit}).encode())


def _encoded(
    settings: Settings, task: Task, split: Split, report: EncodingReport
) -> Iterator[Mapping[str, Sequence[int]]]:
    """The examples of all rows; `report` counts what becomes of these."""
    fit = _Fit(task, settings, report)
    rows = iter(split)
    while batch := list(islice(rows, _AT_ONCE)):
        kept = [(values, place) for values, place in batch if _has_text(values)]
        for values, place in kept:
            if refused := task.refusal(values):
                raise InputError(f"{place}: {refused}.")
        report.rows += len(batch)
        report.blank += len(batch) - len(kept)
        for example, (values, place) in zip(_encode_rows(task, kept), kept, strict=True):
            fitted = list(fit(example, place))
            report.bytes += len(task.predicted(values).encode()) if fitted else 0
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
                told = str(error).replace("texts[0]", "the text")
                raise InputError(f"{place}: {told.rstrip('.')}.") from error
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
