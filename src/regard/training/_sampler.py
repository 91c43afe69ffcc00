"""Which examples make which batch: functions of seed and epoch alone, so that a run goes on from anywhere.

Random numbers are counter-based: they depend on their place in a run, and on nothing that was drawn before.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from regard.core.arguments import whole
from regard.core.errors import InputError

Batch = TypeVar("Batch")
Whole = np.ndarray[Any, np.dtype[np.int64]]

_POOL = 10_000
"""Examples that `pack` sorts together."""


def seed_of(seed: int, *parts: int, purpose: str) -> int:
    """A seed for one place in a run, such as epoch and step, below 2 ** 63: bits of the SHA-256 of all given.

    What is drawn there is the `purpose`: two purposes have nothing to do with each other.
    """
    return int.from_bytes(_digest(seed, parts, purpose)[:8], "little") >> 1


def generator(seed: int, *parts: int, purpose: str) -> np.random.Generator:
    """Random numbers for one place in a run; arguments as of `seed_of`."""
    return np.random.Generator(np.random.Philox(key=_key(seed, parts, purpose)))


def _key(seed: int, parts: Sequence[int], purpose: str) -> int:
    return int.from_bytes(_digest(seed, parts, purpose)[:16], "little")


def _digest(seed: int, parts: Sequence[int], purpose: str) -> bytes:
    return hashlib.sha256(" ".join(map(str, (purpose, int(seed), *map(int, parts)))).encode()).digest()


def shuffled(count: int, *, seed: int, epoch: int, purpose: str = "examples") -> Whole:
    """The numbers below `count` in an order of chance.

    The order of random keys: of numpy's random streams only the bits themselves stay the same between
    versions.
    """
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
    most_tokens = np.inf if tokens is None else whole("tokens", tokens, least=1)
    most = max(len(sizes), 1) if examples is None else whole("examples", examples, least=1)
    order = shuffled(len(sizes), seed=seed, epoch=epoch)
    per_batch = min(most, max(1.0, most_tokens / max(1.0, float(sizes.mean())))) if len(sizes) else 1
    width = max(1, int(whole("pool", pool, least=1) * per_batch))
    for number, start in enumerate(range(0, len(order), width)):
        part = order[start : start + width]
        # Up and down in turn: where two pools meet, lengths are alike, and no short batch is left over.
        order[start : start + width] = part[np.argsort(sizes[part], kind="stable")][:: 1 - 2 * (number % 2)]
    cuts, longest, first = [0], 0, 0
    for place, size in enumerate(sizes[order].tolist()):
        longest = max(longest, size)
        if place > first and ((place - first + 1) * longest > most_tokens or place - first == most):
            cuts.append(place)
            longest, first = size, place
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
    there = 0  # bit n is set where a row with room for n more tokens is
    for example, size in zip(examples, sizes, strict=True):
        fitting = there >> size
        if fitting:
            left = size + (fitting & -fitting).bit_length() - 1
            row = by_room[left].pop()
            if not by_room[left]:
                there ^= 1 << left
        else:
            left, row = room, len(rows)
            rows.append([])
        rows[row].append(example)
        by_room[left - size].append(row)
        there |= 1 << (left - size)
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
    ways = min(length, targets - length + 1)  # at least one block must fit behind the first token
    key = np.random.Philox(key=_key(seed, (epoch,), "grid")).random_raw(1)
    starts = np.arange(int(key[0] % ways), targets - length + 1, length)
    return starts[shuffled(len(starts), seed=seed, epoch=epoch, purpose="blocks")]


def share(batches: Sequence[Batch], *, rank: int, world: int, accumulate: int) -> list[list[Batch | None]]:
    """The micro-batches of one process, by step of the optimiser.

    A step takes the next `world` x `accumulate` of them, whoever computes them: so two processes take the
    steps that one takes which accumulates twice as many. The last step takes what is left.

    Example:
        >>> [share("abcdefg", rank=rank, world=2, accumulate=2) for rank in (0, 1)]
        [[['a', 'c'], ['e', 'g']], [['b', 'd'], ['f', None]]]
    """
    world, accumulate = whole("world", world, least=1), whole("accumulate", accumulate, least=1)
    rank = whole("rank", rank, least=0, most=world - 1)
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
