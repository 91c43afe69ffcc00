"""What a run and a score are put together from: files, an objective with its network, batches."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from regard.core.errors import InputError
from regard.core.files import write_whole
from regard.core.json import read_object
from regard.models import load_checkpoint
from regard.text import Tokenizer
from regard.training._data import Side, unit_of, write_examples
from regard.training._examples import Examples
from regard.training._feed import Feed
from regard.training._forms import FORMS
from regard.training._networks import NetworkSpec
from regard.training._settings import FormName, Settings
from regard.training.tasks import Task, TaskInputs
from regard.training.tasks._task import Values


def sides_of(settings: Settings, kind: type[Task], unit: Any = None) -> list[Side]:
    """The examples to learn from, and those to score on.

    Args:
        settings: of the run.
        kind: the objective.
        unit: what one text is, where a run knows it: its files may be gone since they were encoded.

    Raises:
        InputError: files that cannot be read, or have no pairs where the objective reads pairs.
    """
    data = replace(settings.data, unit=unit or unit_of(settings, kind))
    fields = kind.fields(settings.task)
    columns = {name: getattr(data, name) or kind.named.get(name, name) for name in fields}
    return [
        Side(
            settings=data,
            columns=columns,
            has_tags=kind.has_tags,
            seed=settings.seed,
            is_valid=is_valid,
        )
        for is_valid in (False, True)
    ]


def family_of(settings: Settings, kind: type[Task]) -> str:
    """The family of the network: that of the checkpoint, where there is one."""
    origin = kind.origin(settings.start, settings.task)
    return settings.family or kind.family if origin is None else load_checkpoint(origin).family


def task_of(
    settings: Settings,
    kind: type[Task],
    tokenizer: Tokenizer,
    family: str,
    *,
    rows: Iterable[tuple[Values, str]],
    folder: Path,
) -> Task:
    """The objective with its network; `rows` and `folder` are those of `TaskInputs`."""
    is_own = settings.family is None and settings.start is None
    wanted = NetworkSpec(
        start=settings.start,
        family=family,
        sizes={**(kind.sizes if is_own else {}), **settings.model},
        length=settings.batch.length,
        seed=settings.seed,
    )
    return kind.made(TaskInputs(wanted=wanted, tokenizer=tokenizer, rows=rows, folder=folder), settings.task)


def form_of(settings: Settings, task: Task) -> FormName:
    """How examples become rows of a batch.

    Raises:
        InputError: a form that the objective does not have.
    """
    form = settings.batch.form or task.forms[0]
    if form not in task.forms:
        raise InputError(
            f"batch.form must be {' or '.join(task.forms)} for {settings.objective}; got {form!r}."
        )
    return form


def encode_side(settings: Settings, task: Task, side: Side, folder: Path, say: Callable[[str], None]) -> None:
    """Encode a set of files into a folder, unless that has been done; the file about it comes last."""
    about = folder.with_name(f"{folder.name}.json")
    if side.is_valid and not side.is_there:
        return
    if about.exists():
        then: Any = read_object(about)["files"]
        for file, now in side.files().items():
            is_told = side.is_valid and not side.settings.valid  # of a part of the same files
            if now != then.get(file) and not is_told:
                say(f"{file} is not what it was when the run began; it goes on with the texts of then")
        return
    folder.parent.mkdir(exist_ok=True)
    say(f"encoding the texts: {folder.name}")
    files = side.files()
    taken = write_examples(
        side,
        task,
        folder,
        length=settings.batch.length,
        longer=settings.data.longer or task.longer,
        cuts=form_of(settings, task) != "blocks",
    )
    for told in taken.told(settings.batch.length):
        say(told)
    write_whole(about, json.dumps({**asdict(taken), "files": files, "unit": side.settings.unit}).encode())


def feed_of(settings: Settings, task: Task, folder: Path, *, rank: int = 0, world: int = 1) -> Feed:
    """The encoded examples of a folder as batches."""
    examples = Examples.open(folder)
    return Feed(
        form=FORMS[form_of(settings, task)](
            examples=examples, columns=task.sized, batch=settings.batch, beyond=task.beyond
        ),
        task=task,
        seed=settings.seed,
        accumulate=settings.batch.accumulate,
        rank=rank,
        world=world,
    )
