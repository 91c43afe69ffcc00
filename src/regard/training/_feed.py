"""The batches of a run: a pure function of the seed, the epoch and the process, whatever ran before.

Random numbers are counter-based: they depend on their place in a run, and on nothing that was drawn before.
So a run goes on from anywhere. A form says how examples become rows, and rows micro-batches; a feed shares
these among the processes.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from regard.core.arguments import whole
from regard.core.errors import InputError
from regard.training._batch import Batch, Example, Examples, Row
from regard.training._losses import NOT_A_TARGET
from regard.training._settings import BatchSettings
from regard.training.tasks._task import Task

_Item = TypeVar("_Item")
Whole = np.ndarray[Any, np.dtype[np.int64]]

_POOL = 10_000
"""Examples that `pack` sorts together."""


def seed_of(seed: int, *parts: int, purpose: str) -> int:
    """A seed for one place in a run, such as epoch and step, below 2 ** 63: bits of the SHA-256 of all given.

    What is drawn there is the `purpose`: two purposes have nothing to do with each other.
    """
    # One bit less: torch takes seeds below 2^63.
    return int.from_bytes(_digest(seed, parts, purpose)[:8], "little") >> 1


def generator(seed: int, *parts: int, purpose: str) -> np.random.Generator:
    """Random numbers for one place in a run; arguments as of `seed_of`."""
    return np.random.Generator(np.random.Philox(key=_key(seed, parts, purpose)))


def _key(seed: int, parts: Sequence[int], purpose: str) -> int:
    return int.from_bytes(_digest(seed, parts, purpose)[:16], "little")


def _digest(seed: int, parts: Sequence[int], purpose: str) -> bytes:
    # The purpose keeps streams apart that have the same numbers.
    return hashlib.sha256(" ".join(map(str, (purpose, int(seed), *map(int, parts)))).encode()).digest()


def shuffled(count: int, *, seed: int, epoch: int, purpose: str = "examples") -> Whole:
    """The numbers below `count` in an order of chance.

    The order of random keys: of numpy's random streams only the bits themselves stay the same between
    versions.
    """
    # Each number gets a random key; the order is that of the keys.
    keys = np.random.Philox(key=_key(seed, (epoch,), purpose)).random_raw(whole("count", count, least=0))
    return np.argsort(keys, kind="stable")


def buckets(
    lengths: ArrayLike,
    *,
    seed: int,
    epoch: int,
    tokens: int | None = None,
    examples: int | None = None,
    pool: int = 100,
) -> list[Whole]:
    """Micro-batches of examples of like length, so that little of them is padding; in an order of chance.

    The examples are shuffled, sorted by length within pools of about `pool` batches, and cut into batches: of
    at most so many `tokens`, padding included, and so many `examples`, by their numbers. A longer example is
    a batch by itself. Every example comes once an epoch.
    """
    sizes = _checked(lengths)
    if tokens is None and examples is None:
        raise InputError("tokens or examples must be given: how much a micro-batch holds.")
    # The limits that are not given do not bind.
    most_tokens = np.inf if tokens is None else whole("tokens", tokens, least=1)
    most = max(len(sizes), 1) if examples is None else whole("examples", examples, least=1)
    # Pools of neighbours in an order of chance are sorted by length, so that batches differ by epoch.
    order = shuffled(len(sizes), seed=seed, epoch=epoch)
    # About how many examples a batch holds; a pool is `pool` batches.
    per_batch = min(most, max(1.0, most_tokens / max(1.0, float(sizes.mean())))) if len(sizes) else 1
    width = max(1, int(whole("pool", pool, least=1) * per_batch))
    for number, start in enumerate(range(0, len(order), width)):
        part = order[start : start + width]
        # Up and down in turn: where two pools meet, lengths are alike, and no short batch is left over.
        order[start : start + width] = part[np.argsort(sizes[part], kind="stable")][:: 1 - 2 * (number % 2)]
    cuts, longest, first = [0], 0, 0
    # A batch costs rows times the longest: it ends before that is too much.
    for place, size in enumerate(sizes[order].tolist()):
        longest = max(longest, size)
        if place > first and ((place - first + 1) * longest > most_tokens or place - first == most):
            cuts.append(place)
            longest, first = size, place
    # Short and long batches come in an order of chance.
    batches = np.split(order, cuts[1:]) if len(order) else []
    return [batches[place] for place in shuffled(len(batches), seed=seed, epoch=epoch, purpose="batches")]


def pack(lengths: ArrayLike, *, row_length: int, seed: int, epoch: int) -> list[Whole]:
    """Rows of several whole examples, nearly full: best-fit decreasing in shuffled pools.

    The numbers of the examples in each row, in an order of chance; every example comes once.
    """
    sizes, room = _checked(lengths), whole("row_length", row_length, least=1)
    if len(sizes) and sizes.max() > room:
        raise InputError(
            f"row_length must be at least {int(sizes.max())}, the tokens of example {int(sizes.argmax())}; "
            f"got {room}. Cut or divide what is longer."
        )
    # Pools differ by epoch, so that the same texts do not share a row each time.
    order, rows = shuffled(len(sizes), seed=seed, epoch=epoch), list[Whole]()
    for start in range(0, len(order), _POOL):
        pool = order[start : start + _POOL]
        # The longest first: what is short fills the gaps that are left.
        pool = pool[np.argsort(-sizes[pool], kind="stable")]
        rows += _packed(pool.tolist(), sizes[pool].tolist(), room)
    return [rows[place] for place in shuffled(len(rows), seed=seed, epoch=epoch, purpose="rows")]


def _packed(examples: list[int], sizes: list[int], room: int) -> list[Whole]:
    """Each example into the fullest row that has room for it, else into a new one."""
    rows: list[list[int]] = []
    by_room: list[list[int]] = [[] for _ in range(room + 1)]
    rooms = 0  # bit n is set where a row with room for n more tokens is
    for example, size in zip(examples, sizes, strict=True):
        # The lowest bit is the row that the example leaves least room in: found at once, however many rows.
        fitting = rooms >> size
        if fitting:
            left = size + (fitting & -fitting).bit_length() - 1
            row = by_room[left].pop()
            # No row has this much room any more.
            if not by_room[left]:
                rooms ^= 1 << left
        else:
            left, row = room, len(rows)
            rows.append([])
        rows[row].append(example)
        by_room[left - size].append(row)
        # The row has less room now.
        rooms |= 1 << (left - size)
    return [np.array(row, np.int64) for row in rows]


def blocks(total: int, *, length: int, seed: int, epoch: int) -> Whole:
    """Where the blocks of one long text begin: each of `length` + 1 tokens, to predict the last `length` of.

    The grid begins at another token each epoch, so that blocks are not always cut at the same places. A token
    is a target once an epoch, but for fewer than `length` at either end.
    """
    targets = whole("total", total, least=1) - 1
    length = whole("length", length, least=1)
    if targets < length:
        raise InputError(f"length must be below {total}, the tokens of the text; got {length}.")
    # As many first places as there are different grids.
    ways = min(length, targets - length + 1)  # at least one block must fit behind the first token
    key = np.random.Philox(key=_key(seed, (epoch,), "grid")).random_raw(1)
    # The grid begins elsewhere in each epoch: texts are cut at other places.
    starts = np.arange(int(key[0] % ways), targets - length + 1, length)
    return starts[shuffled(len(starts), seed=seed, epoch=epoch, purpose="blocks")]


def share(batches: Sequence[_Item], *, rank: int, world: int, accumulate: int) -> list[list[_Item | None]]:
    """The micro-batches of one process, by step of the optimiser.

    A step takes the next `world` x `accumulate` of them, whoever computes them: so two processes take the
    steps that one takes which accumulates twice as many. The last step takes what is left.

    Example:
        >>> [share("abcdefg", rank=rank, world=2, accumulate=2) for rank in (0, 1)]
        [[['a', 'c'], ['e', 'g']], [['b', 'd'], ['f', None]]]
    """
    world, accumulate = whole("world", world, least=1), whole("accumulate", accumulate, least=1)
    rank = whole("rank", rank, least=0, most=world - 1)
    # Batch n of a step goes to process n.
    mine = [
        batches[start + rank] if start + rank < len(batches) else None
        for start in range(0, len(batches), world)
    ]
    # Neighbours go to different processes, so that all have about as much to do in a step.
    return [mine[start : start + accumulate] for start in range(0, len(mine), accumulate)]


def _checked(lengths: ArrayLike) -> Whole:
    sizes = np.asarray(lengths, np.int64)
    if sizes.ndim != 1 or (len(sizes) and sizes.min() < 0):
        raise InputError(f"lengths must be a row of numbers, none below 0; got shape {sizes.shape}.")
    return sizes


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
        # Rows of full length: their number follows from the tokens.
        size = max(1, batch.tokens // batch.length) if batch.tokens else batch.rows
        return [rows[start : start + size] for start in range(0, len(rows), size)]


class RowPerText(Form):
    """A text a row, texts of like length together, so that little is padding."""

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        # By tokens where these are given, else by rows.
        size = {"tokens": self.batch.tokens} if self.batch.tokens else {"examples": self.batch.rows}
        return [picked.tolist() for picked in buckets(self._lengths, seed=seed, epoch=epoch, **size)]

    def length(self, item: int) -> int:
        return int(self._lengths[item])

    def row(self, item: int) -> Row:
        return (self.examples[item],)


class PackedRows(Form):
    """Several whole texts a row, which do not see each other; rows that are nearly full, in chance order."""

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[Sequence[int]]]:
        # Each row is nearly full, so that a batch is a number of rows.
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
        # One token more, the last target.
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
        # The plan is the same for every process; each takes its part.
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
        """A micro-batch. For None an empty one: this process has run out of rows, but takes part in the step.

        Its random numbers depend on the seed, the epoch and its number over all processes: so they do not
        depend on how many processes there are.
        """
        # By the place in the run: a run that goes on draws the same.
        draw = generator(self.seed, epoch, number, purpose="batch")
        return self._batch(picked, lambda _: draw)

    def in_order(self) -> Iterator[Batch]:
        """Every example once, for scoring: the share of this process.

        What is drawn for an example depends on what it holds alone. So scores depend neither on the seed nor
        on which examples share a batch. All processes get as many batches; what some have too few of is
        without a target.
        """
        plan = self.form.once()
        # Every process runs as many batches as the others.
        for start in range(0, len(plan), self.world):
            number = start + self.rank
            yield self._batch(plan[number] if number < len(plan) else None, _of_example)

    def _batch(self, picked: Picked, draw: Callable[[Example], np.random.Generator]) -> Batch:
        # A process without a batch still runs one: the exchange of gradients waits for every process.
        items = self.form.once()[0][:1] if picked is None else picked
        rows = [self.form.row(item) for item in items]
        # Every example gets its own source of chance.
        batch = self.task.batch(rows, [[draw(example) for example in row] for row in rows])
        if picked is not None:
            return batch
        # A stand-in counts for nothing: no targets, no examples.
        labels = batch.labels.new_full(batch.labels.shape, NOT_A_TARGET)
        return replace(batch, labels=labels, counts=dict.fromkeys(batch.counts, 0), examples=0)


def _of_example(example: Example) -> np.random.Generator:
    tokens = next(iter(example.values()))
    # By its tokens: the same masks each time it is scored.
    return generator(0, *tokens, purpose="score")
