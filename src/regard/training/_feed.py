"""The batches of a run: a pure function of the seed, the epoch and the process, whatever ran before."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regard.training._batch import Batch
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
        if picked is not None:
            return self.task.batch([self.form.row(item) for item in picked], draw)
        first = self.form.once()[0][:1]
        empty = self.task.batch([self.form.row(item) for item in first], draw)
        labels = empty.labels.new_full(empty.labels.shape, NOT_A_TARGET)
        return replace(empty, labels=labels, counts=dict.fromkeys(empty.counts, 0), examples=0)

    def in_order(self) -> Iterator[Batch]:
        """Every example once, for scoring, drawn alike each time: the share of this process.

        All processes get as many batches; what some have too few of is without a target.
        """
        plan = self.form.once()
        for start in range(0, len(plan), self.world):
            number = start + self.rank
            yield self.batch(plan[number] if number < len(plan) else None, -1, number)
