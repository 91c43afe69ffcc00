"""The batches of a run: a pure function of the seed, the epoch and the process, whatever ran before.

A form says how examples become rows, and rows micro-batches; a feed shares these among the processes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from regard.core.errors import InputError
from regard.training._batch import Batch, Example, Row
from regard.training._examples import Examples
from regard.training._losses import NOT_A_TARGET
from regard.training._sampler import blocks, buckets, generator, pack, share, shuffled
from regard.training._settings import BatchSettings
from regard.training.tasks._task import Task

Picked = Sequence[Any] | None
"""A micro-batch of a plan; None for a process that has none where others have."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Form(ABC):
    """From a set of examples to micro-batches, each a list of items, of which each is a row.

    `columns` are those that a row holds. An example may be `beyond` tokens longer than its row: these are
    only predicted, and take no room.
    """

    examples: Examples
    columns: Sequence[str]
    batch: BatchSettings
    beyond: int = 0

    @abstractmethod
    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[Any]]:
        """The micro-batches of an epoch: a pure function of its arguments."""

    def once(self) -> Sequence[Sequence[Any]]:
        """Micro-batches for scoring: every target once, always the same."""
        # Not the run's seed: runs that differ in it alone are scored alike.
        return self.plan(seed=0, epoch=0)

    @abstractmethod
    def length(self, item: Any) -> int:
        """How many positions a row of the plan takes."""

    @abstractmethod
    def row(self, item: Any) -> Row:
        """A row of the plan."""

    @cached_property
    def _lengths(self) -> np.ndarray[Any, Any]:
        """For each example its longest column, in positions of a row."""
        lengths: np.ndarray[Any, Any] = np.max([self.examples.lengths(name) for name in self.columns], axis=0)
        return lengths - self.beyond

    def _chunks(self, rows: Sequence[Any]) -> list[Sequence[Any]]:
        """Rows of equal length by as many as a micro-batch takes."""
        batch = self.batch
        size = max(1, batch.tokens // batch.length) if batch.tokens else batch.rows
        return [rows[start : start + size] for start in range(0, len(rows), size)]


class RowPerText(Form):
    """A text a row, texts of like length together, so that little is padding."""

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        size = {"tokens": self.batch.tokens} if self.batch.tokens else {"examples": self.batch.rows}
        return [picked.tolist() for picked in buckets(self._lengths, seed=seed, epoch=epoch, **size)]

    def length(self, item: int) -> int:
        return int(self._lengths[item])

    def row(self, item: int) -> Row:
        return (self.examples[item],)


class PackedRows(Form):
    """Several whole texts a row, which do not see each other; rows that are nearly full, in chance order."""

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[Sequence[int]]]:
        rows = pack(self._lengths, row_length=self.batch.length, seed=seed, epoch=epoch)
        order = shuffled(len(rows), seed=seed, epoch=epoch)
        return self._chunks([rows[place].tolist() for place in order])

    def length(self, item: Sequence[int]) -> int:
        return int(self._lengths[item].sum())

    def row(self, item: Sequence[int]) -> Row:
        return [self.examples[each] for each in item]


class Blocks(Form):
    """All texts as one, cut into rows of equal length at places that differ from epoch to epoch.

    A row holds one token more than it has targets: the first is only read.
    """

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        length = self.batch.length
        if self._total <= length:
            raise InputError(
                f"batch.length must be below {self._total:,}, the tokens of all texts together, to cut them "
                f"into blocks; got {length}. Give more text, or shorter blocks."
            )
        return self._chunks(blocks(self._total, length=length, seed=seed, epoch=epoch).tolist())

    def once(self) -> Sequence[Sequence[int]]:
        """From the first token to the last; the last block may be shorter."""
        return self._chunks(list(range(0, self._total - 1, self.batch.length)))

    @property
    def _total(self) -> int:
        return len(self.examples.flat(self.columns[0]))

    def length(self, item: int) -> int:
        return self.batch.length

    def row(self, item: int) -> Row:
        stop = item + self.batch.length + 1
        return ({name: np.asarray(self.examples.flat(name)[item:stop], np.int64) for name in self.columns},)


FORMS: Mapping[str, type[Form]] = {"rows": RowPerText, "packed": PackedRows, "blocks": Blocks}
"""By the name that settings give."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Feed:
    """A set of examples as micro-batches, for process `rank` of `world`."""

    form: Form
    task: Task
    seed: int
    accumulate: int = 1
    rank: int = 0
    world: int = 1

    def steps(self, epoch: int, *, done: int = 0) -> Sequence[Sequence[Picked]]:
        """For each step that is left of an epoch, the micro-batches of this process.

        The first epoch is 0; `done` micro-batches of it, over all processes, have been used already.
        """
        rest = self.form.plan(seed=self.seed, epoch=epoch)[done:]
        return share(rest, rank=self.rank, world=self.world, accumulate=self.accumulate)

    @property
    def per_step(self) -> int:
        """Micro-batches a step, over all processes."""
        return self.world * self.accumulate

    def amount(self) -> tuple[int, int]:
        """The texts and the tokens of the set."""
        examples = self.form.examples
        return len(examples), sum(int(examples.lengths(name).sum()) for name in self.form.columns)

    def batch(self, picked: Picked, epoch: int, number: int) -> Batch:
        """A micro-batch; of None one without a target, for a process that has no more.

        Its random numbers depend on the seed, the epoch and its number over all processes: so they do not
        depend on how many processes there are.
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
        # A process without a batch still runs one: the exchange of gradients waits for every process.
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
