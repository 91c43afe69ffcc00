"""Scores of a model: of a task while it is trained, and of a run or any checkpoint on files."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.arguments import one_of, path_of, several
from regard.core.errors import InputError, RegardError
from regard.core.files import read_object
from regard.data import unreadable
from regard.models import Loaded, Network, load_checkpoint
from regard.training._batch import Batch
from regard.training._configuration import read_settings
from regard.training._data import encode_split, splits_of
from regard.training._feed import Feed
from regard.training._folder import DATA, MODEL, SETTINGS
from regard.training._ranks import Ranks
from regard.training._run import Run, check, feed_of, task_of
from regard.training._settings import Settings
from regard.training.tasks import TASKS, Distillation

_LONGEST = 512
"""Positions of a row for a model that says nothing else."""


def evaluate(module: nn.Module, run: Run, feed: Feed) -> dict[str, float]:
    """Scores of a set by name: the same on every process and, but for rounding, for any number of them."""
    # Sums over all targets first, then scores of the sums.
    scores = run.task.scores(_sums_over(module, run, feed.in_order()))
    return scores | _written(module, run) if run.task.samples else scores


def check_best(module: nn.Module, run: Run) -> None:
    """Refuse a `best` that is no score of the task, at the cost of one batch."""
    if run.settings.best is not None and run.valid is not None:
        # One batch shows the names of all scores.
        scores = run.task.scores(_sums_over(module, run, islice(run.valid.in_order(), 1)))
        names = [*scores, *run.task.signatures]
        if run.best not in names:
            raise InputError(f"best must be {' or '.join(names)}; got {run.best!r}.")


def _written(module: nn.Module, run: Run) -> dict[str, float]:
    """Scores of what the network writes itself: the first process lets it write, the others wait."""
    network = run.ranks.gathered(run.task.saved, module)
    scores: dict[str, float] = {}

    def write() -> None:
        with run.computing():
            scores.update(run.task.written(network.to(run.ranks.device), run.samples))

    run.ranks.together(write)
    return dict(run.ranks.from_first(scores))


@torch.no_grad()
def _sums_over(
    module: nn.Module, run: Run, batches: Iterable[Batch], on_tokens: Callable[[int], None] = lambda _: None
) -> dict[str, Any]:
    """The sums of a task over the batches of all processes: numbers, and nested lists of them.

    `batches` are those of this process; `on_tokens` is told after each how many tokens have been read.
    """
    tokens = 0
    module.eval()
    sums: dict[str, Tensor] = {}
    for batch in batches:
        with run.computing():
            batch_sums = module(batch.to(run.ranks.device))
        # What sums are divided by, beside them.
        batch_sums |= {f"targets.{name}": torch.tensor(count) for name, count in batch.counts.items()}
        for name, value in batch_sums.items():
            # In float64, so that many batches add up as few do.
            sums[name] = sums.get(name, torch.zeros(())) + value.detach().cpu().double()
        tokens += batch.tokens
        on_tokens(tokens)
    module.train()
    # All sums as one list of numbers, for one exchange between processes.
    flat = torch.cat([each.flatten() for each in sums.values()]).tolist()
    added = run.ranks.sums({str(place): value for place, value in enumerate(flat)})
    sizes = [each.numel() for each in sums.values()]
    # Back into the shapes that they had.
    parts = torch.split(torch.tensor(list(added.values()), dtype=torch.float64), sizes)
    whole = {name: part.reshape(sums[name].shape).tolist() for name, part in zip(sums, parts, strict=True)}
    return {**whole, "bytes": float(run.bytes)}


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
    # Cheap checks first: files, then the model, then its head.
    files = tuple(map(str, several("data", data, "files")))
    targets = tuple(map(str, several("target", target, "files")))
    _check_there((*files, *targets))
    run, name = _found(model)
    loaded = load_checkpoint(name)
    settings = _settings(run, loaded, objective, changes)
    # The head must be of the objective's kind; a distilled model has its teacher's.
    kind = TASKS[settings.objective]
    config: Any = loaded.network.config
    if kind is not Distillation and config.head != kind.head:
        raise InputError(
            f"model must have a head of kind {kind.head!r} for {settings.objective}; {name} has "
            f"{'none' if config.head is None else repr(config.head)}. Train one with `regard train "
            f"{settings.objective} --from {name}`."
        )
    # A run of no steps that starts from the model, and whose texts to score on are the given ones.
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
    kind = TASKS[settings.objective]
    task = task_of(settings, kind, loaded.require_tokenizer(), loaded.family, rows=(), folder=place)
    # ELECTRA's generator, without which nothing is replaced.
    for beside in task.beside:
        if not (loaded.source.folder / beside).is_dir():
            raise InputError(f"model must have its {beside} in a folder of that name; {name} has none.")
    folder, ranks = place / DATA / "valid", Ranks()
    encode_split(settings, task, splits_of(settings, kind)[1], folder, say)
    feed = feed_of(settings, task, folder, ranks)
    about: Any = read_object(folder.with_name("valid.json"))
    # Not a run that trains: only what scoring reads of one.
    run = Run(
        folder=place,
        settings=settings,
        family=loaded.family,
        task=task.to(ranks.device),
        train=feed,
        valid=feed,
        bytes=about["bytes"],
        steps=0,
        ranks=ranks,
        samples=about["samples"],
    )
    texts, tokens = feed.amount()
    # The same road as while it is trained, so that a run's own score comes out again.
    sums = _sums_over(task, run, feed.in_order(), lambda done: on_progress(done, tokens))
    scores, details = task.scores(sums), task.details(sums)
    if not all(map(isfinite, scores.values())):
        raise RegardError(f"model gives scores that are not finite: the weights of {name} are damaged.")
    if task.samples:
        say(f"writing {len(run.samples):,} texts for {' and '.join(task.signatures)}")
        scores, details = scores | _written(task, run), details | {"signatures": run.signatures}
    return Scored(
        model=name,
        objective=settings.objective,
        examples=texts,
        tokens=tokens,
        scores=scores,
        details=details,
    )


def _check_there(files: Iterable[str]) -> None:
    """Refuse a file that is not there before the model is loaded, which takes seconds."""
    for name in files:
        try:
            # "-" is stdin, and patterns are expanded later.
            if name != "-" and not any(each in name for each in "*?["):
                Path(name).stat()
        except (OSError, ValueError) as error:
            raise unreadable(name, error) from error


def _found(model: str | Path) -> tuple[Path | None, str | Path]:
    """The folder of a run, if there is one, and the checkpoint."""
    folder = path_of("model", model)
    if (folder / SETTINGS).is_file():
        if not (folder / MODEL).is_dir():
            raise InputError(f"{folder} must be a run that has a model; it has none yet: train on.")
        return folder, folder / MODEL
    # RUN/model is the run's too: its settings say how the texts are read.
    is_of_run = folder.name == MODEL and (folder.parent / SETTINGS).is_file()
    return folder.parent if is_of_run else None, model


def _settings(run: Path | None, loaded: Loaded, objective: str | None, changes: Sequence[str]) -> Settings:
    if run is not None:
        # The run's settings, for its own objective.
        stored: Any = read_object(run / SETTINGS)
        own = stored["objective"]
        if objective in (None, own):
            return read_settings(own, file=run / SETTINGS, changes=changes)
    settings = read_settings(objective or _objective_of(loaded), changes=changes)
    one_of("objective", settings.objective, TASKS)
    # The user's length counts.
    if any(change.startswith("batch.length") for change in changes):
        return settings
    # No longer than the model takes.
    limits = [loaded.network.limit(kind) or _LONGEST for kind in loaded.network.prefixes]
    return replace(settings, batch=replace(settings.batch, length=min(_LONGEST, *limits)))


def _objective_of(loaded: Loaded) -> str:
    """The objective that fits the head of a checkpoint."""
    network: Network = loaded.network
    config: Any = network.config
    # A language-model head stands on a decoder, or on an encoder-decoder.
    language = "seq2seq" if len(network.prefixes) == 2 else "clm"
    known = {"masked-lm": "mlm", "sequence": "classify", "token": "tag", "replaced": "electra"}
    objective = {**known, "language-model": language}.get(config.head)
    if objective is None:
        raise InputError(
            f"model must have a head that can be scored; {loaded.source.name} has none. `regard train` gives "
            "it one."
        )
    return objective
