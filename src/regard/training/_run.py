"""A run that is ready for its first step, or its next."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from regard.core.errors import TrainingError
from regard.training._checkpoints import Progress, what_stays
from regard.training._feed import Feed
from regard.training._products import fastest_products
from regard.training._ranks import Ranks
from regard.training._settings import Settings
from regard.training.tasks import Task

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """What a run needs before its first step, or its next.

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

    @property
    def precision(self) -> torch.dtype:
        """Of the matrix products."""
        return PRECISIONS[self.settings.precision]

    def computing(self) -> AbstractContextManager[Any]:
        """Matrix products in the precision of the settings; all else stays as it is."""
        if self.precision == torch.float32:
            return fastest_products()
        return torch.autocast(self.ranks.device.type, self.precision)

    @property
    def best(self) -> str:
        """The score that decides."""
        return self.settings.best or self.task.best

    @property
    def signatures(self) -> dict[str, str]:
        """How the scores of what is written anew are computed, and over how many texts."""
        texts = 0 if self.valid is None else len(self.valid.form.examples)
        over = f"the first {len(self.samples):,} of {texts:,} texts"
        return {name: f"{each}, {over}" for name, each in self.task.signatures.items()}

    def is_due(self, every: int, step: int) -> bool:
        """Whether something is done after a step: after every so many, and after the last."""
        return step % every == 0 or step == self.steps

    def is_patience_over(self, progress: Progress) -> bool:
        """Whether there have been so many scores without a better one that training stops."""
        patience = self.settings.patience
        return patience is not None and progress.waited >= patience

    def judged(self, progress: Progress, scores: Mapping[str, float]) -> Progress:
        """Where the run stands after a score."""
        if not isfinite(scores["loss"]):
            raise TrainingError(
                f"the loss on the texts to score on is {scores['loss']} after step {progress.step}; "
                f"{what_stays(self.folder)}. Begin in another folder with a lower optimiser.lr."
            )
        score = scores[self.best]
        if is_better(score, progress.best, bigger=self.task.is_bigger_better(self.best)):
            return replace(progress, best=score, best_step=progress.step, waited=0)
        return replace(progress, waited=progress.waited + 1)


def is_better(score: float, best: float | None, *, bigger: bool) -> bool:
    """Whether a score is better than the best so far.

    Example:
        >>> is_better(1.9, None, bigger=False), is_better(1.9, 1.8, bigger=False)
        (True, False)
    """
    return best is None or (score > best if bigger else score < best)
