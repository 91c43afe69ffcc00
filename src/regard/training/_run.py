"""A run that is ready for its first step, or its next: made from settings, and kept in a folder.

Its tokenizer and its encoded examples are made once, and read from then on.
"""

import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, isfinite
from pathlib import Path
from typing import Any

import torch

from regard.core.arguments import one_of, table
from regard.core.errors import TrainingError
from regard.core.files import locked, read_object
from regard.models import FAMILIES, family_of, load_checkpoint
from regard.text import Tokenizer
from regard.training._batch import Examples
from regard.training._checkpoints import RunState, last_checkpoint, what_stays
from regard.training._data import Split, encode_split, form_of, make_tokenizer, repeated, splits_of
from regard.training._feed import FORMS, Feed
from regard.training._folder import DATA, LABELS, TOKENIZER, Say, lock_settings, make_folder
from regard.training._networks import NetworkSpec
from regard.training._products import fastest_products
from regard.training._ranks import Ranks
from regard.training._settings import OptimiserSettings, Settings, check_limits
from regard.training.tasks import TASKS, Task, TaskInputs
from regard.training.tasks._task import Values

Schedule = Callable[[int, int, int], float]
"""From the step (1 is the first), the steps of warming up and all steps to a share of the peak, 0 to 1."""


def constant(step: int, warmup: int, steps: int) -> float:
    """min(1, s / w)."""
    del steps
    return min(1.0, step / max(1, warmup))


def inverse_sqrt(step: int, warmup: int, steps: int) -> float:
    """min(s / w, sqrt(w / s)): the schedule of "Attention is all you need", as a share of its peak.

    There the peak is 1 / sqrt(d_model w), which `lr` replaces.

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 5.3, equation 3.
    """
    del steps
    width = max(1, warmup)
    # Both are 1 at s = w: Vaswani et al. 2017, eq. 3, divided by its peak.
    return min(step / width, math.sqrt(width / step))


def cosine(step: int, warmup: int, steps: int) -> float:
    """s / w, then (1 + cos(pi t)) / 2, where t goes from 0 after warming up to 1 one step after the last.

    Source: Loshchilov and Hutter 2017, arXiv 1608.03983, equation 5, without restarts.
    """
    return min(step / max(1, warmup), (1.0 + math.cos(math.pi * _through(step, warmup, steps))) / 2.0)


def linear(step: int, warmup: int, steps: int) -> float:
    """s / w, then 1 - t, with t as in `cosine`: the last step still moves.

    Source: Devlin et al. 2019, arXiv 1810.04805, appendix A.2.
    """
    return min(step / max(1, warmup), 1.0 - _through(step, warmup, steps))


def stable(step: int, warmup: int, steps: int) -> float:
    """Warm-up, stable, decay: s / w, then 1, then over the last fifth of the steps 1 - sqrt(t).

    Source: Hu et al. 2024, arXiv 2404.06395, section 4; the decay by a square root: Haegele et al. 2024,
    arXiv 2405.18392, section 3.
    """
    # The last step before the decay.
    begin = steps - max(1, steps // 5)
    return min(step / max(1, warmup), 1.0 - math.sqrt(_through(step, begin, steps)))


SCHEDULES: Mapping[str, Schedule] = {
    "constant": constant,
    "cosine": cosine,
    "inverse-sqrt": inverse_sqrt,
    "linear": linear,
    "stable": stable,
}
"""By the name that settings give."""


def learning_rate(
    name: str, step: int, *, peak: float, floor: float = 0.0, warmup: int = 0, steps: int = 1
) -> float:
    """The learning rate of one step: floor + (peak - floor) share after warming up, peak share before.

    Args:
        name: "constant", "cosine", "inverse-sqrt", "linear" or "stable".
        step: 1 is the first.
        peak: where the share is 1.
        floor: what it would be one step after the last; of "constant" and "inverse-sqrt", below which it
            does not fall.
        warmup: steps that it rises over.
        steps: of the whole training.

    Raises:
        InputError: an unknown schedule.

    Example:
        >>> round(learning_rate("cosine", 1050, peak=1e-3, floor=1e-4, warmup=100, steps=1999), 6)
        0.00055
    """
    # From 0 to 1.
    share = SCHEDULES[one_of("schedule", name, SCHEDULES)](step, warmup, steps)
    if step < warmup:  # from 0, not from the floor
        return peak * share
    # It never reaches 0, so that the floor is a limit, not a goal.
    if name == "inverse-sqrt":
        return max(floor, peak * share)
    return floor + (peak - floor) * share


def rate_of(
    settings: OptimiserSettings, step: int, steps: int, *, schedule: str, peak: float | None = None
) -> float:
    """The learning rate of a step by the settings; `schedule` is the objective's, where they name none."""
    top = settings.lr if peak is None else peak
    return learning_rate(
        settings.schedule or schedule,
        step,
        peak=top,
        floor=settings.floor * top,
        # A tenth of all steps, unless it is said.
        warmup=steps // 10 if settings.warmup is None else settings.warmup,
        steps=steps,
    )


def has_same_rates(settings: OptimiserSettings, done: int, one: int, other: int, *, schedule: str) -> bool:
    """Whether the steps done had the same learning rates in a run of `one` and in one of `other` steps."""
    return all(
        rate_of(settings, step, one, schedule=schedule) == rate_of(settings, step, other, schedule=schedule)
        for step in range(1, done + 1)
    )


def _through(step: int, begin: int, steps: int) -> float:
    """How far a step is between the last at the peak and the first after the run."""
    # Without warming up the first step is at the peak.
    begin = max(1, begin)
    return min(1.0, max(0.0, (step - begin) / max(1, steps + 1 - begin)))


STEPS = 2000
"""How many the optimiser takes, where neither steps nor epochs are given."""

_PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}

_FREE = ("keep", "save_every", "shard", "watch", "watch_every")
"""Settings that change no parameter: a run may go on with others."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """A run before its first step, or its next.

    Args:
        folder: where everything of it is.
        settings: what it is a function of.
        family: of the network that is written.
        unit: what one text is, of plain text.
        task: the objective, with the network and the tokenizer.
        train, valid: the sets; `valid` is None where nothing is scored.
        bytes: of the texts of `valid`, in UTF-8.
        steps: in all.
        ranks: the processes.
        samples: rows of `valid` that are written anew for a score.
    """

    folder: Path
    settings: Settings
    family: str
    unit: str = "line"
    task: Task
    train: Feed
    valid: Feed | None
    bytes: int
    steps: int
    ranks: Ranks
    samples: Sequence[Sequence[Any]] = ()

    def computing(self) -> AbstractContextManager[Any]:
        """Matrix products in the precision of the settings; all else stays as it is."""
        # In float32 products may come from oneDNN; otherwise autocast.
        precision = _PRECISIONS[self.settings.precision]
        if precision == torch.float32:
            return fastest_products()
        return torch.autocast(self.ranks.device.type, precision)

    @property
    def best(self) -> str:
        """The score that decides."""
        return self.settings.best or self.task.best

    @property
    def epochs(self) -> float:
        """How often all of the data is read."""
        return self.steps / max(1, len(self.train.steps(0)))

    @property
    def signatures(self) -> dict[str, str]:
        """How the scores of what is written anew are computed, and over how many texts."""
        texts = 0 if self.valid is None else len(self.valid.form.examples)
        over = f"the first {len(self.samples):,} of {texts:,} texts"
        return {name: f"{each}, {over}" for name, each in self.task.signatures.items()}

    def is_due(self, every: int, step: int) -> bool:
        """Whether something is done after a step: after every so many, and after the last."""
        return step % every == 0 or step == self.steps

    def is_over(self, progress: RunState) -> bool:
        """Whether all steps are done, or there were too many scores without a better one."""
        patience = self.settings.patience
        return progress.step >= self.steps or (patience is not None and progress.waited >= patience)

    def is_better(self, score: float, best: float | None) -> bool:
        """Whether a score is better than the best so far."""
        is_bigger_better = self.task.is_bigger_better(self.best)
        return best is None or (score > best if is_bigger_better else score < best)

    def judged(self, progress: RunState, scores: Mapping[str, float]) -> RunState:
        """Where the run stands after a score."""
        if not isfinite(scores["loss"]):
            raise TrainingError(
                f"the loss on the texts to score on is {scores['loss']} after step {progress.step}; "
                f"{what_stays(self.folder)}. Begin in another folder with a lower optimiser.lr."
            )
        # `best` may be any score of the task.
        score = scores[self.best]
        if self.is_better(score, progress.best):
            return replace(progress, best=score, best_step=progress.step, waited=0)
        return replace(progress, waited=progress.waited + 1)


@contextmanager
def prepare(settings: Settings, folder: Path, ranks: Ranks, say: Say) -> Iterator[Run]:
    """Make the folder of a run, or open it again; it is this run's alone meanwhile."""
    kind = check(settings)
    if ranks.is_first:
        make_folder(folder)
    # The first process holds the lock for all.
    # Two runs in one folder would overwrite each other.
    with locked(folder, ".lock") if ranks.is_first else nullcontext():
        begun = last_checkpoint(folder)
        # What may differ, and what is made anew if it does.
        free, derived = partial(_free, settings, kind, begun), (TOKENIZER, DATA, LABELS)
        ranks.together(lambda: lock_settings(folder, settings, say, step=begun, free=free, made=derived))
        ranks.together(lambda: _remove_unfinished(folder))
        # What was decided when the texts were encoded holds: their files may be gone by now.
        about = folder / DATA / "train.json"
        unit: Any = read_object(about).get("unit") if about.is_file() else None
        # To learn from, and to score on.
        splits = splits_of(settings, kind, unit)
        ranks.together(lambda: make_tokenizer(settings, kind, splits[0], folder / TOKENIZER, say))
        yield _prepared(settings, kind, splits, folder, ranks, say)


def check(settings: Settings) -> type[Task]:
    """The objective, once the settings do not contradict each other."""
    one_of("objective", settings.objective, TASKS)
    kind = TASKS[settings.objective]
    one_of("family", settings.family or kind.family, FAMILIES)  # before a tokenizer is learned for it
    table("task", settings.task, kind.options())
    check_limits(settings)
    return kind


def _free(settings: Settings, kind: type[Task], begun: int, theirs: Mapping[str, Any]) -> Sequence[str]:
    """Settings that the steps so far do not depend on: a run may go on with others."""
    # More steps are allowed while the learning rates so far stay what they were.
    before, now = theirs["steps"] or STEPS, settings.steps or STEPS
    if begun <= now and has_same_rates(settings.optimiser, begun, before, now, schedule=kind.schedule):
        return (*_FREE, "steps")
    return _FREE


def _remove_unfinished(folder: Path) -> None:
    """Remove what a run that was killed was writing."""
    # The lock is held: whoever wrote these is dead.
    for path in (*folder.glob(".regard-*.tmp"), *folder.glob(f"{DATA}/.regard-*.tmp")):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _prepared(
    settings: Settings, kind: type[Task], splits: Sequence[Split], folder: Path, ranks: Ranks, say: Say
) -> Run:
    # A teacher gives the family and the tokenizer too.
    origin = kind.origin(settings.start, settings.task)
    family = settings.family or kind.family if origin is None else load_checkpoint(origin).family
    tokenizer = Tokenizer.from_folder(folder / TOKENIZER, tokenizer_class=family_of(family).tokenizer_class)
    assert tokenizer is not None
    # The network comes before the texts: an error in its sizes shows at once.
    task = task_of(settings, kind, tokenizer, family, rows=splits[0], folder=folder)
    places = [folder / DATA / name for name in ("train", "valid")]

    def write() -> None:
        # Told once, not each time a run goes on.
        is_new = not places[0].is_dir()
        for split, place in zip(splits, places, strict=True):
            encode_split(settings, task, split, place, say)
        if is_new and places[1].is_dir():
            learned, scored = map(Examples.open, places)
            if count := repeated(learned, scored):
                say(
                    f"{count:,} of {len(scored):,} texts to score on are among those to learn from: "
                    "the score of these says how well they are remembered"
                )

    ranks.together(write)
    # Without texts to score on there is no such folder.
    train, valid = (feed_of(settings, task, place, ranks) if place.is_dir() else None for place in places)
    assert train is not None
    about: Any = {"bytes": 0, "samples": ()} if valid is None else read_object(folder / DATA / "valid.json")
    return Run(
        folder=folder,
        settings=settings,
        family=family,
        unit=splits[0].settings.unit or "line",
        task=task,
        train=train,
        valid=valid,
        bytes=about["bytes"],
        steps=_steps(settings, train),
        ranks=ranks,
        samples=about["samples"],
    )


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
    # The objective's own sizes are of its own family.
    is_own = settings.family is None and settings.start is None
    spec = NetworkSpec(
        start=settings.start,
        family=family,
        sizes={**(kind.sizes if is_own else {}), **settings.model},
        length=settings.batch.length,
        seed=settings.seed,
    )
    inputs = TaskInputs(spec=spec, tokenizer=tokenizer, rows=rows, folder=folder)
    return kind.from_inputs(inputs, settings.task)


def feed_of(settings: Settings, task: Task, folder: Path, ranks: Ranks) -> Feed:
    """The encoded examples of a folder as batches."""
    form = FORMS[form_of(settings, task)](
        examples=Examples.open(folder), columns=task.sized, batch=settings.batch, beyond=task.beyond
    )
    accumulate = settings.batch.accumulate
    return Feed(
        form=form, task=task, seed=settings.seed, accumulate=accumulate, rank=ranks.rank, world=ranks.world
    )


def _steps(settings: Settings, train: Feed) -> int:
    if settings.steps is not None:
        return settings.steps
    if settings.epochs is None:
        return STEPS
    # A part of an epoch is as many steps.
    return max(1, ceil(settings.epochs * len(train.steps(0))))
