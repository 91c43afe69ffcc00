"""Keys and values kept: what comes back, where it lies, and masks of what is left to do."""

import pytest
import torch
from torch import Tensor

from regard.core import Causal, KeyValueCache, Mask, Padding, Predicate, Segments, Window
from regard.core.errors import InputError

BATCH, HEADS, K_DIM, V_DIM = 3, 2, 5, 7


def keys(start: int, stop: int) -> tuple[Tensor, Tensor]:
    """Keys and values that hold their own position, and their row."""
    place = torch.arange(start, stop).view(1, 1, -1, 1) + 1000.0 * torch.arange(BATCH).view(-1, 1, 1, 1)
    return place.expand(BATCH, HEADS, -1, K_DIM), -place.expand(BATCH, HEADS, -1, V_DIM)


def positions(got: tuple[Tensor, Tensor], row: int = 0) -> list[int]:
    k, v = got
    assert torch.equal(k[..., :1], -v[..., :1])
    return [int(each) for each in k[row, 0, :, 0]]


@pytest.mark.parametrize("sizes", [[1] * 150, [7, 1, 90, 1, 51], [150]])
@pytest.mark.parametrize("window", [None, 0, 4, 70])
def test_what_queries_see_comes_back_in_order(sizes: list[int], window: int | None) -> None:
    cache, read = KeyValueCache(window=window), 0
    for size in sizes:
        first = 0 if window is None else max(0, read - window)
        assert (cache.length, cache.first) == (read, first)
        assert positions(cache.append(*keys(read, read + size))) == list(range(first, read + size))
        read += size


def test_a_token_moves_nothing_but_itself() -> None:
    cache = KeyValueCache()
    places = {cache.append(*keys(n, n + 1))[0].data_ptr() for n in range(500)}
    # The first tensor, then room for 32 more, sixteen times; an address that was freed may come back.
    assert len(places) <= 17


def test_a_window_needs_no_more_memory_for_a_longer_text() -> None:
    cache = KeyValueCache(window=10)
    sizes = {cache.append(*keys(n, n + 1))[0].untyped_storage().nbytes() for n in range(500)}
    assert max(sizes) <= 4 * BATCH * HEADS * K_DIM * (10 + 64 + 1)


def test_what_was_handed_in_is_never_written_over() -> None:
    k, v = (each.clone() for each in keys(0, 5))
    before = k.clone()
    cache = KeyValueCache()
    cache.append(k, v)
    cache.cut(2)
    assert positions(cache.append(*keys(7, 9))) == [0, 1, 7, 8]
    assert torch.equal(k, before)


def test_rows_change_places() -> None:
    cache = KeyValueCache()
    cache.pick(torch.tensor([1]))  # of nothing read, nothing
    cache.append(*keys(0, 2))
    cache.append(*keys(2, 3))
    cache.pick(torch.tensor([2, 0, 2, 1]))
    assert [positions(cache.since(1), row) for row in range(4)] == [
        [2001, 2002],
        [1, 2],
        [2001, 2002],
        [1001, 1002],
    ]


def test_a_window_is_cut_as_far_as_it_still_sees() -> None:
    cache = KeyValueCache(window=3)
    for n in range(80):
        cache.append(*keys(n, n + 1))
    with pytest.raises(InputError, match=r"from \d+ to 80 \(a window of 3 has let go of the rest\); got 5"):
        cache.cut(5)
    cache.cut(78)
    assert positions(cache.append(*keys(78, 80))) == [75, 76, 77, 78, 79]


def test_refusals() -> None:
    with pytest.raises(InputError, match="window must be at least 0"):
        KeyValueCache(window=-1)
    cache = KeyValueCache()
    with pytest.raises(InputError, match="position must be from 0 to 0; got 0"):
        cache.since(0)
    k, v = keys(0, 2)
    cache.append(k, v)
    with pytest.raises(InputError, match="length must be from 0 to 2; got 3"):
        cache.cut(3)
    with pytest.raises(InputError, match=r"k must go on .* got torch.float64"):
        cache.append(k.double(), v.double())
    with pytest.raises(InputError, match=r"v must go on .*\(3, 2, 7\); got torch.float32 with \(3, 2, 1\)"):
        cache.append(k, v[..., :1])
    with pytest.raises(InputError, match=r"Call under torch\.no_grad\(\)"):
        cache.append(k.clone().requires_grad_(), v)


REAL = torch.rand(2, 9) < 0.5
MASKS: dict[str, Mask] = {
    "causal": Causal(),
    "offset": Causal(offset=2),
    "window": Causal() & Window(left=2),
    "both sides": Window(left=3, right=1, offset=1),
    "padding": Padding(REAL) & Causal(),
    "segments": Segments(torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2, 2]])),
    "predicate": Predicate(lambda query, key: (query * key) % 3 == 1) & Causal(),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize(("query", "key"), [(0, 0), (4, 0), (8, 3), (6, 6)])
def test_a_mask_counted_from_later_positions(mask: Mask, query: int, key: int) -> None:
    whole, later = mask.dense(9, 9).expand(-1, -1, 9, 9), mask.since(query, key)
    got = later.dense(9 - query, 9 - key).expand(-1, -1, 9 - query, 9 - key)
    assert torch.equal(got, whole[:, :, query:, key:])
    later.check(batch=2, q_len=9 - query, k_len=9 - key)
    for first in range(9 - query):
        start, stop = later.key_range(first, first, 9 - key)
        assert not got[:, :, first, :start].any()
        assert not got[:, :, first, stop:].any()
    simple = later.simplified(9 - query, 9 - key)
    simpler = torch.ones_like(got) if simple is None else simple.dense(9 - query, 9 - key).expand_as(got)
    assert torch.equal(simpler, got)
