"""Scores of a model on files: the same numbers as while it is trained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from regard.core.errors import InputError, RegardError
from regard.core.json import read_object
from regard.models import Loaded, Network, load_checkpoint
from regard.training._about import amount
from regard.training._claim import SETTINGS
from regard.training._configuration import read_settings
from regard.training._evaluate import sums_over, written
from regard.training._names import check_names
from regard.training._parts import encode_side, feed_of, sides_of, task_of
from regard.training._prepare import check
from regard.training._ranks import Ranks
from regard.training._result import MODEL
from regard.training._run import Run
from regard.training._settings import Settings
from regard.training.tasks import TASKS, Distillation

_LONGEST = 512
"""Positions of a row for a model that says nothing else."""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """What a model is worth on some files.

    Attributes:
        model: what was scored.
        objective: as which objective.
        examples, tokens: how many texts, and how many tokens they have.
        scores: numbers by name.
        details: what is more than a number, as JSON has it: the confusion of labels, kinds of spans, how
            BLEU was computed.
    """

    model: str
    objective: str
    examples: int
    tokens: int
    scores: Mapping[str, float]
    details: Mapping[str, Any]


def score(
    model: str | Path,
    data: Sequence[str | Path],
    *,
    target: Sequence[str | Path] = (),
    objective: str | None = None,
    changes: Sequence[str] = (),
    on_message: Callable[[str], None] = lambda _: None,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> Scored:
    """Score the model of a run, or any checkpoint, on files.

    Of a run the settings are its own, so that on its validation files the scores are those that it had.

    Args:
        model: the folder of a run, or a checkpoint, by folder or name.
        data: files.
        target: for parallel files, the other side.
        objective: what is scored; None for the run's own, or what the checkpoint's head is for.
        changes: of the settings, as in `read_settings`.
        on_message: gets what is being done, in words.
        on_progress: gets how many tokens have been read, of how many about.

    Raises:
        InputError: a checkpoint without the head that the objective needs, or data that cannot be used.
        RegardError: scores that are not finite.

    Example:
        >>> import pathlib, tempfile
        >>> from regard.training import read_settings, score, train
        >>> place = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (place / "text.csv").write_text("text,label\\nfine,good\\nsad,bad\\n" * 20)
        >>> settings = read_settings("classify", data={"train": [str(place / "text.csv")]}, steps=2,
        ...     tokenizer={"kind": "characters"}, batch={"length": 16, "rows": 2},
        ...     model={"d_model": 8, "num_layers": 1, "num_heads": 2, "d_ff": 11})
        >>> _ = train(settings, place / "run")
        >>> sorted(score(place / "run", [place / "text.csv"]).scores)
        ['accuracy', 'loss', 'macro_f1']
    """
    run, name = _found(model)
    loaded = load_checkpoint(name)
    settings = _settings(run, loaded, objective, changes)
    kind = TASKS[settings.objective]
    config: Any = loaded.network.config
    if kind is not Distillation and config.head != kind.head:
        raise InputError(
            f"model must have a head of kind {kind.head!r} for {settings.objective}; {name} has "
            f"{'none' if config.head is None else repr(config.head)}. Train one with `regard train "
            f"{settings.objective} --from {name}`."
        )
    files, targets = tuple(map(str, data)), tuple(map(str, target))
    settings = replace(
        settings,
        start=str(name),
        family=None,
        model={},
        data=replace(settings.data, train=files, train_target=targets, valid=files, valid_target=targets),
    )
    check(settings)
    with TemporaryDirectory(prefix="regard-") as place:
        return _scored(settings, loaded, Path(place), str(model), on_message, on_progress)


def _scored(
    settings: Settings,
    loaded: Loaded,
    place: Path,
    name: str,
    say: Callable[[str], None],
    on_progress: Callable[[int, int], None],
) -> Scored:
    _, side = sides_of(settings, kind := TASKS[settings.objective])
    tokenizer = loaded.require_tokenizer()
    task = task_of(settings, kind, tokenizer, loaded.family, rows=(), folder=place)
    for beside in task.beside:
        if not (loaded.source.folder / beside).is_dir():
            raise InputError(f"model must have its {beside} in a folder of that name; {name} has none.")
    folder = place / "data" / "valid"
    encode_side(settings, task, side, folder, say)
    feed, ranks = feed_of(settings, task, folder), Ranks()
    about: Any = read_object(folder.with_name("valid.json"))
    task.to(ranks.device)
    run = Run(
        folder=place,
        settings=settings,
        family=loaded.family,
        task=task,
        train=feed,
        valid=feed,
        bytes=about["bytes"],
        steps=0,
        ranks=ranks,
        samples=about["samples"],
    )
    examples, told = amount(feed)
    sums = sums_over(task, run, feed.in_order(), lambda done: on_progress(done, told))
    scores = task.scores(sums)
    if not all(map(isfinite, scores.values())):
        raise RegardError(f"model gives scores that are not finite: the weights of {name} are damaged.")
    if task.samples:
        say(f"writing {len(run.samples):,} texts for {' and '.join(task.signatures)}")
    own = written(task, run) if task.samples else {}
    signed = {"signatures": run.signatures} if task.samples else {}
    return Scored(
        model=name,
        objective=settings.objective,
        examples=examples,
        tokens=told,
        scores=scores | own,
        details=task.details(sums) | signed,
    )


def _found(model: str | Path) -> tuple[Path | None, str | Path]:
    """The folder of a run, if there is one, and the checkpoint."""
    folder = Path(model)
    if (folder / SETTINGS).is_file():
        if not (folder / MODEL).is_dir():
            raise InputError(f"{folder} must be a run that has a model; it has none yet: train on.")
        return folder, folder / MODEL
    is_of_run = folder.name == MODEL and (folder.parent / SETTINGS).is_file()
    return folder.parent if is_of_run else None, model


def _settings(run: Path | None, loaded: Loaded, objective: str | None, changes: Sequence[str]) -> Settings:
    if run is not None:
        stored: Any = read_object(run / SETTINGS)
        own = stored["objective"]
        if objective in (None, own):
            return read_settings(own, file=run / SETTINGS, changes=changes)
    settings = read_settings(objective or _objective_of(loaded), changes=changes)
    check_names([settings.objective], TASKS)
    if any(change.startswith("batch.length") for change in changes):
        return settings
    limits = [loaded.network.limit(kind) or _LONGEST for kind in loaded.network.prefixes]
    return replace(settings, batch=replace(settings.batch, length=min(_LONGEST, *limits)))


def _objective_of(loaded: Loaded) -> str:
    """What the head of a checkpoint is for."""
    network: Network = loaded.network
    config: Any = network.config
    language = "seq2seq" if len(network.prefixes) == 2 else "clm"
    known = {"masked-lm": "mlm", "sequence": "classify", "token": "tag", "replaced": "electra"}
    objective = {**known, "language-model": language}.get(config.head)
    if objective is None:
        raise InputError(
            f"model must have a head that can be scored; {loaded.source.name} has none. `regard train` gives "
            "it one."
        )
    return objective
