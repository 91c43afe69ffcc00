"""A run's folder: its settings, tokenizer and examples are made once, and read from then on."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from math import ceil, inf
from operator import attrgetter
from pathlib import Path
from typing import Any

from regard.core.errors import InputError
from regard.core.json import read_object
from regard.core.locks import locked
from regard.text import Tokenizer
from regard.training._checkpoints import last_checkpoint
from regard.training._claim import claim, make_folder
from regard.training._data import Side
from regard.training._feed import Feed
from regard.training._names import check_names
from regard.training._optimisers import has_same_rates
from regard.training._parts import encode_side, family_of, feed_of, sides_of, task_of
from regard.training._ranks import Ranks
from regard.training._run import Run
from regard.training._settings import Settings
from regard.training._tokenizers import make_tokenizer
from regard.training.tasks import TASKS, Task
from regard.training.tasks._labels import LABELS

STEPS = 2000
"""Of the optimiser, where neither steps nor epochs are given."""

TOKENIZER, DATA = "tokenizer", "data"

_FREE = ("keep", "save_every", "shard", "watch", "watch_every")
"""Settings that change no parameter: a run may go on with others."""

_ABOVE_0 = (
    *("steps", "epochs", "batch.rows", "batch.tokens", "batch.length", "batch.accumulate", "evaluate_every"),
    *("save_every", "keep", "patience", "watch_every", "optimiser.lr", "optimiser.clip", "optimiser.muon_lr"),
    "optimiser.eps",
)
"""Settings that must be above 0, where they are given."""

_MADE = (TOKENIZER, DATA, LABELS)

Say = Callable[[str], None]
"""Is told what is being done."""


@contextmanager
def prepare(settings: Settings, folder: Path, ranks: Ranks, say: Say) -> Iterator[Run]:
    """Make the folder of a run, or open it again; it is this run's alone meanwhile.

    Raises:
        InputError: the folder holds something else, or a run with other settings; the settings or the data
            cannot be used.
        OutputError: the folder cannot be written, or another process trains in it.
    """
    kind = check(settings)
    if ranks.is_first:
        make_folder(folder)
    with locked(folder, ".lock") if ranks.is_first else nullcontext():
        begun = last_checkpoint(folder)
        free = partial(_free, settings, kind, begun)
        ranks.together(lambda: claim(folder, settings, say, step=begun, free=free, made=_MADE))
        ranks.together(lambda: _remove_unfinished(folder))
        about = folder / DATA / "train.json"
        sides = sides_of(settings, kind, read_object(about).get("unit") if about.is_file() else None)
        ranks.together(lambda: make_tokenizer(settings, kind, sides[0], folder / TOKENIZER, say))
        yield _run(settings, kind, sides, folder, ranks, say)


def _run(
    settings: Settings, kind: type[Task], sides: list[Side], folder: Path, ranks: Ranks, say: Say
) -> Run:
    family = family_of(settings, kind)
    tokenizer = Tokenizer.from_folder(folder / TOKENIZER, model_type=family)
    assert tokenizer is not None
    task = task_of(settings, kind, tokenizer, family, rows=sides[0], folder=folder)

    def write() -> None:
        for side, name in zip(sides, ("train", "valid"), strict=True):
            encode_side(settings, task, side, folder / DATA / name, say)

    ranks.together(write)
    train, valid = (
        feed_of(settings, task, folder / DATA / name, rank=ranks.rank, world=ranks.world)
        if (folder / DATA / name).is_dir()
        else None
        for name in ("train", "valid")
    )
    assert train is not None
    file = folder / DATA / "valid.json"
    about: Any = {"bytes": 0, "samples": ()} if valid is None else read_object(file)
    return Run(
        folder=folder,
        settings=settings,
        family=family,
        unit=sides[0].settings.unit or "line",
        task=task,
        train=train,
        valid=valid,
        bytes=about["bytes"],
        steps=_steps(settings, train),
        ranks=ranks,
        samples=about["samples"],
    )


def check(settings: Settings) -> type[Task]:
    """The objective, once the settings do not contradict each other."""
    check_names([settings.objective], TASKS)
    kind = TASKS[settings.objective]
    check_names(settings.task, list(kind.options()), "task")
    if not settings.data.train:
        raise InputError("data.train must name at least one file.")
    if "-" in (*settings.data.train, *settings.data.train_target):
        raise InputError("data.train must be files: - is read once, and training reads its texts again.")
    if settings.steps is not None and settings.epochs is not None:
        raise InputError("steps must be None where epochs says how long to train; give one of them.")
    for name in _ABOVE_0:
        value = attrgetter(name)(settings)
        if value is not None and not 0 < value < inf:
            raise InputError(f"{name} must be above 0; got {value}.")
    for name in ("average", "optimiser.warmup", "optimiser.weight_decay", "seed"):
        value = attrgetter(name)(settings)
        if value is not None and not 0 <= value < inf:
            raise InputError(f"{name} must be at least 0; got {value}.")
    if not 0.0 <= settings.optimiser.floor <= 1.0:
        raise InputError(f"optimiser.floor must be from 0 to 1; got {settings.optimiser.floor}.")
    if not all(0.0 <= beta < 1.0 for beta in settings.optimiser.betas):
        raise InputError(f"optimiser.betas must be at least 0 and below 1; got {settings.optimiser.betas}.")
    if settings.batch.tokens is not None and settings.batch.tokens < settings.batch.length:
        raise InputError(
            f"batch.tokens must be at least batch.length, {settings.batch.length}, so that the longest text "
            f"fits; got {settings.batch.tokens}."
        )
    if not 0.0 <= settings.data.valid_share < 1.0:
        raise InputError(f"data.valid_share must be at least 0 and below 1; got {settings.data.valid_share}.")
    is_scored = bool(settings.data.valid) or settings.data.valid_share > 0.0
    for name in () if is_scored else ("best", "patience", "average"):
        if getattr(settings, name):
            raise InputError(
                f"{name} must be left out where data.valid_share is 0: it needs texts to score on."
            )
    if settings.average > settings.keep:
        raise InputError(f"average must be at most keep, {settings.keep}; got {settings.average}.")
    return kind


def _free(settings: Settings, kind: type[Task], begun: int, theirs: Mapping[str, Any]) -> Sequence[str]:
    """Settings that the steps so far do not depend on: a run may go on with others."""
    before, now = theirs["steps"] or STEPS, settings.steps or STEPS
    if begun <= now and has_same_rates(settings.optimiser, begun, before, now, schedule=kind.schedule):
        return (*_FREE, "steps")
    return _FREE


def _remove_unfinished(folder: Path) -> None:
    """Remove what a run that was killed was writing."""
    for each in (*folder.glob(".regard-*.tmp"), *folder.glob(f"{DATA}/.regard-*.tmp")):
        if each.is_dir():
            shutil.rmtree(each)
        else:
            each.unlink()


def _steps(settings: Settings, train: Feed) -> int:
    if settings.steps is not None:
        return settings.steps
    if settings.epochs is None:
        return STEPS
    return max(1, ceil(settings.epochs * len(train.steps(0))))
