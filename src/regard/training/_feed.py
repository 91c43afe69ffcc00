"""The batches of a run: a pure function of the seed, the epoch and the process, whatever ran before."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from regard.training._batch import Batch, Example
from regard.training._forms import Form
from regard.training._losses import NOT_A_TARGET
from regard.training._sampler import generator, share
from regard.training.tasks._task import Task

Picked = Sequence[Any] | None
"""A micro-batch of a plan; None for a process that has none where others have."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Feed:
    """A set of examples as micro-batches.

    Args:
        form: the set, and how its examples become rows.
        task: makes a batch of rows.
        seed: of the order, and of what a task draws.
        accumulate: micro-batches a step and process.
        rank, world: this process, and how many there are.
    """

    form: Form
    task: Task
    seed: int
    accumulate: int = 1
    rank: int = 0
    world: int = 1

    def steps(self, epoch: int, *, done: int = 0) -> Sequence[Sequence[Picked]]:
        """For each step of an epoch the micro-batches of this process.

        Args:
            epoch: 0 is the first.
            done: how many micro-batches of it, over all processes, have been used already.
        """
        rest = self.form.plan(seed=self.seed, epoch=epoch)[done:]
        return share(rest, rank=self.rank, world=self.world, accumulate=self.accumulate)

    @property
    def a_step(self) -> int:
        """Micro-batches a step, over all processes."""
        return self.world * self.accumulate

    def batch(self, picked: Picked, epoch: int, number: int) -> Batch:
        """A micro-batch; of None one without a target, for a process that has no more.

        Args:
            picked: one of `steps`.
            epoch, number: where in the run it stands, over all processes: with the seed all that its random
                numbers depend on. So they do not depend on how many processes there are.
        """
        draw = generator(self.seed, epoch, number, purpose="batch")
        return self._batch(picked, lambda _: draw)

    def in_order(self) -> Iterator[Batch]:
        """Every example once, for scoring: the share of this process.

        What is drawn for an example depends on what it holds alone. So scores depend neither on the seed nor
        on which examples share a batch. All processes get as many batches; what some have too few of is
        without a target.
        """
        plan = self.form.once()
        for start in range(0, len(plan), self.world):
            number = start + self.rank
            yield self._batch(plan[number] if number < len(plan) else None, _of_example)

    def _batch(self, picked: Picked, draw: Callable[[Example], np.random.Generator]) -> Batch:
        items = self.form.once()[0][:1] if picked is None else picked
        rows = [self.form.row(item) for item in items]
        made = self.task.batch(rows, [[draw(example) for example in row] for row in rows])
        if picked is not None:
            return made
        labels = made.labels.new_full(made.labels.shape, NOT_A_TARGET)
        return replace(made, labels=labels, counts=dict.fromkeys(made.counts, 0), examples=0)


def _of_example(example: Example) -> np.random.Generator:
    tokens = next(iter(example.values()))
    return generator(0, *tokens, purpose="score")
