"""How examples become rows of a batch, and rows micro-batches: three ways."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from regard.core.errors import InputError
from regard.training._batch import Row
from regard.training._examples import Examples
from regard.training._sampler import blocks, buckets, pack, shuffled
from regard.training._settings import BatchSettings

Lengths = np.ndarray[Any, Any]


class Form(Protocol):
    """From a set of examples to micro-batches.

    Args:
        examples: the set.
        columns: the columns that a row holds.
        batch: how much a micro-batch holds.
        beyond: how many tokens of an example are only predicted, and take no room in a row.
    """

    @property
    def examples(self) -> Examples:
        """The set."""
        ...

    @property
    def columns(self) -> Sequence[str]:
        """Those that a row holds."""
        ...

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[Any]]:
        """The micro-batches of an epoch, each a list of rows: a pure function of its arguments."""
        ...

    def once(self) -> Sequence[Sequence[Any]]:
        """Micro-batches for scoring: every target once, always the same."""
        ...

    def length(self, item: Any) -> int:
        """How many positions a row of the plan takes."""
        ...

    def row(self, item: Any) -> Row:
        """A row of the plan."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class _OfExamples:
    examples: Examples
    columns: Sequence[str]
    batch: BatchSettings
    beyond: int = 0

    @cached_property
    def _lengths(self) -> Lengths:
        return longest(self.examples, self.columns) - self.beyond


class Rows(_OfExamples):
    """A text a row, texts of like length together, so that little is padding."""

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        """Buckets by the longer of an example's columns."""
        size = {"tokens": self.batch.tokens} if self.batch.tokens else {"examples": self.batch.rows}
        return [picked.tolist() for picked in buckets(self._lengths, seed=seed, epoch=epoch, **size)]

    def once(self) -> Sequence[Sequence[int]]:
        """As in the first epoch."""
        return self.plan(seed=0, epoch=0)

    def length(self, item: int) -> int:
        """Of the longer of the example's columns."""
        return int(self._lengths[item])

    def row(self, item: int) -> Row:
        """One example."""
        return (self.examples[item],)


class Packed(_OfExamples):
    """Several whole texts a row, which do not see each other."""

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[Sequence[int]]]:
        """Rows that are nearly full, in chance order."""
        rows = pack(self._lengths, row_length=self.batch.length, seed=seed, epoch=epoch)
        order = shuffled(len(rows), seed=seed, epoch=epoch)
        return _chunks([rows[place].tolist() for place in order], self.batch)

    def once(self) -> Sequence[Sequence[Sequence[int]]]:
        """As in the first epoch."""
        return self.plan(seed=0, epoch=0)

    def length(self, item: Sequence[int]) -> int:
        """Of all examples of the row."""
        return int(self._lengths[item].sum())

    def row(self, item: Sequence[int]) -> Row:
        """The examples of a row."""
        return [self.examples[each] for each in item]


class Blocks(_OfExamples):
    """All texts as one, cut into rows of equal length at places that differ from epoch to epoch.

    A row holds one token more than it has targets: the first is only read.
    """

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        """Where blocks begin, in chance order."""
        length = self.batch.length
        if self._total <= length:
            raise InputError(
                f"batch.length must be below {self._total:,}, the tokens of all texts together, to cut them "
                f"into blocks; got {length}. Give more text, or shorter blocks."
            )
        starts = blocks(self._total, length=length, seed=seed, epoch=epoch)
        return _chunks(starts.tolist(), self.batch)

    def once(self) -> Sequence[Sequence[int]]:
        """From the first token to the last; the last block may be shorter."""
        return _chunks(list(range(0, self._total - 1, self.batch.length)), self.batch)

    @property
    def _total(self) -> int:
        return len(self.examples.flat(self.columns[0]))

    def length(self, item: int) -> int:
        """As of all blocks."""
        return self.batch.length

    def row(self, item: int) -> Row:
        """The tokens of a block, and the one before."""
        stop = item + self.batch.length + 1
        return ({name: np.asarray(self.examples.flat(name)[item:stop], np.int64) for name in self.columns},)


FORMS: Mapping[str, Callable[..., Form]] = {"rows": Rows, "packed": Packed, "blocks": Blocks}
"""By the name that settings give."""


def longest(examples: Examples, columns: Sequence[str]) -> Lengths:
    """For each example its longest column."""
    lengths: Lengths = np.max([examples.lengths(name) for name in columns], axis=0)
    return lengths


def _chunks(rows: Sequence[Any], batch: BatchSettings) -> list[Sequence[Any]]:
    """Rows of equal length by as many as a micro-batch takes."""
    size = max(1, batch.tokens // batch.length) if batch.tokens else batch.rows
    return [rows[start : start + size] for start in range(0, len(rows), size)]
