"""Orders, batches and rows: each example once, within the limits, and a function of seed and epoch alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from regard.core.errors import InputError
from regard.training import _feed
from regard.training._feed import blocks, buckets, generator, pack, seed_of, share, shuffled


def drawn(count: int, most: int) -> Any:
    """Lengths with a long tail, as of sentences."""
    return np.minimum(np.random.default_rng(count).geometric(0.06, count), most)


def flat(batches: list[Any]) -> list[int]:
    return [number for batch in batches for number in batch.tolist()]


ORDERS: dict[str, Any] = {
    "shuffled": lambda **key: shuffled(101, **key).tolist(),
    "buckets": lambda **key: flat(buckets(drawn(101, 40), tokens=97, pool=3, **key)),
    "pack": lambda **key: flat(pack(drawn(101, 40), row_length=53, **key)),
    "blocks": lambda **key: blocks(1009, length=7, **key).tolist(),
}


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_is_a_function_of_seed_and_epoch(name: str) -> None:
    order = ORDERS[name]
    keys = [(0, 0), (0, 1), (1, 0), (1, 1)]
    found = [order(seed=seed, epoch=epoch) for seed, epoch in keys]
    assert len(set(map(tuple, found))) == 4
    assert [order(seed=seed, epoch=epoch) for seed, epoch in keys] == found


def test_an_order_is_the_same_on_every_machine() -> None:
    # Written down once: a run that goes on with another version of numpy must find its order again.
    assert shuffled(11, seed=3, epoch=5).tolist() == [0, 5, 2, 1, 3, 4, 9, 10, 6, 7, 8]
    assert generator(3, 5, purpose="mask").bit_generator.random_raw() == 13193951499441078349
    assert seed_of(3, 5, purpose="mask") == 641337586832884527


def test_every_place_is_as_likely() -> None:
    places = np.array([shuffled(5, seed=0, epoch=epoch) for epoch in range(2000)])
    counts = np.array([(places == number).sum(axis=0) for number in range(5)])
    assert abs(counts - 400).max() < 5 * np.sqrt(2000 * 0.2 * 0.8)


def test_random_numbers_know_their_place_alone() -> None:
    keys = [((0, 1), "a"), ((1, 0), "a"), ((0, 1), "b"), ((0, 1, 0), "a"), ((0,), "a"), ((0, 11), "a")]
    numbers = {generator(7, *parts, purpose=purpose).random() for parts, purpose in keys}
    seeds = {seed_of(7, *parts, purpose=purpose) for parts, purpose in keys}
    assert len(numbers) == len(seeds) == len(keys)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert seed_of(np.int64(7), np.int32(0), purpose="a") == seed_of(7, 0, purpose="a")


@pytest.mark.parametrize("count", [0, 1, 2, 101, 1009])
@pytest.mark.parametrize(
    ("tokens", "examples", "pool"),
    [(97, None, 100), (97, None, 1), (7, None, 3), (None, 13, 100), (97, 3, 5), (10**6, None, 100)],
)
def test_buckets(count: int, tokens: int | None, examples: int | None, pool: int) -> None:
    lengths = drawn(count, 40)
    batches = buckets(lengths, seed=1, epoch=2, tokens=tokens, examples=examples, pool=pool)
    assert sorted(flat(batches)) == list(range(count))
    for batch in batches:
        assert len(batch) <= (examples or count)
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= (tokens or np.inf)


def test_buckets_have_little_padding() -> None:
    lengths = drawn(5000, 200)
    batches = buckets(lengths, seed=0, epoch=0, tokens=1009)
    padded = sum(len(batch) * lengths[batch].max() for batch in batches)
    assert lengths.sum() / padded > 0.95
    assert lengths.sum() / (1009 * len(batches)) > 0.9  # and are nearly full
    # In an order of chance: no drift from short to long.
    means = [lengths[batch].mean() for batch in batches]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.2


@pytest.mark.parametrize("count", [0, 1, 2, 101, 1009])
@pytest.mark.parametrize(("row_length", "pool"), [(40, 10_000), (40, 50), (257, 10_000)])
def test_pack(monkeypatch: pytest.MonkeyPatch, count: int, row_length: int, pool: int) -> None:
    monkeypatch.setattr(_feed, "_POOL", pool)
    lengths = drawn(count, 40)
    rows = pack(lengths, row_length=row_length, seed=1, epoch=2)
    assert sorted(flat(rows)) == list(range(count))
    assert all(len(row) and lengths[row].sum() <= row_length for row in rows)
    if count == 1009 and row_length == 257:
        assert lengths.sum() / (row_length * len(rows)) > 0.97


def test_pack_fills_rows_where_it_can() -> None:
    # Seven pairs that fill a row exactly, and no other way to fill one: best fit decreasing finds it.
    lengths = [51, 49, 53, 47, 59, 41, 61, 39, 67, 33, 71, 29, 73, 27]
    rows = pack(lengths, row_length=100, seed=0, epoch=0)
    assert [sum(lengths[each] for each in row) for row in rows] == [100] * 7


@pytest.mark.parametrize("total", [8, 9, 14, 15, 16, 100, 1009])
def test_every_token_is_a_target_once(total: int) -> None:
    length, offsets = 7, set()
    for epoch in range(40):
        starts = blocks(total, length=length, seed=0, epoch=epoch)
        targets = sorted(place for start in starts for place in range(start + 1, start + length + 1))
        first, last = targets[0], targets[-1]
        assert targets == list(range(first, last + 1))
        assert first - 1 < length
        assert total - 1 - last < length
        offsets.add(first - 1)
    assert offsets == set(range(min(length, total - length)))


@pytest.mark.parametrize("count", [0, 1, 5, 6, 11, 12, 13])
@pytest.mark.parametrize(("world", "accumulate"), [(1, 1), (1, 3), (2, 3), (3, 2), (4, 1)])
def test_share(count: int, world: int, accumulate: int) -> None:
    batches = [f"b{number}" for number in range(count)]
    ranks = [share(batches, rank=rank, world=world, accumulate=accumulate) for rank in range(world)]
    assert {tuple(map(len, steps)) for steps in ranks} == {tuple(map(len, ranks[0]))}
    assert all(len(step) == accumulate for step in ranks[0][:-1])
    # Step by step, the micro-batches of all ranks are the next ones.
    taken = [
        [each for micro in zip(*step, strict=True) for each in micro if each is not None]
        for step in zip(*ranks, strict=True)
    ]
    size = world * accumulate
    assert taken == [batches[start : start + size] for start in range(0, count, size)]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: buckets([1], seed=0, epoch=0), "tokens or examples must be given"),
        (lambda: buckets([1], seed=0, epoch=0, tokens=0), "tokens must be a whole number, at least 1"),
        (lambda: buckets([[1]], seed=0, epoch=0, tokens=1), r"lengths must be a row .* got shape \(1, 1\)"),
        (lambda: pack([1, 9], row_length=8, seed=0, epoch=0), "at least 9, the tokens of example 1; got 8"),
        (lambda: blocks(7, length=7, seed=0, epoch=0), "length must be below 7, the tokens of the text"),
        (lambda: share([1], rank=2, world=2, accumulate=1), "rank must be a whole number, from 0 to 1"),
    ],
)
def test_what_is_refused(call: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        call()
