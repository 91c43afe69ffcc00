"""Dropout by hash: the right share, no trace of order in it, and the same answer for any block.

Every statistic is a count of fair events with a known variance, held to 6 standard deviations: a chance of
2e-9 each of a false alarm were the seeds not fixed, below 1e-6 in all.
"""

import itertools
import math

import pytest
import torch
from torch import Tensor

from regard.core import AttentionInputs, SeededDropout, reference_attention
from regard.core.errors import InputError
from unit.core.cases import GivenDropout

SIGMAS = 6.0


def _keep(
    p: float, seed: int, *, batch: int = 1, heads: int = 1, queries: int = 512, keys: int = 512
) -> Tensor:
    rows, columns = torch.arange(queries), torch.arange(keys)
    return SeededDropout(p, seed=seed).keep(batch=batch, heads=heads, queries=rows, keys=columns)


def _assert_share(events: Tensor, share: float) -> None:
    apart = abs(events.double().mean().item() - share)
    assert apart <= SIGMAS * math.sqrt(share * (1 - share) / events.numel())


@pytest.mark.parametrize("seed", [0, 1, 2**40, 2**63 - 1])
@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_the_share_that_is_dropped_is_p(p: float, seed: int) -> None:
    kept = _keep(p, seed, batch=2, heads=3, queries=256)
    assert kept.shape == (2, 3, 256, 512)
    _assert_share(~kept, p)
    for axis in range(4):
        for plane in kept.unbind(axis)[:8]:
            _assert_share(~plane, p)


def test_nothing_is_dropped_at_zero() -> None:
    assert _keep(0.0, seed=0, batch=2, heads=3).all()


SHIFTS = {
    "keys": (0, 0, 0, 1),
    "far keys": (0, 0, 0, 64),
    "queries": (0, 0, 1, 0),
    "far queries": (0, 0, 128, 0),
    "diagonals": (0, 0, 1, 1),
    "anti-diagonals": (0, 0, 1, -1),
    "heads": (0, 1, 0, 0),
    "heads and queries": (0, 1, 1, 0),
    "items": (1, 0, 0, 0),
    "items and heads": (1, 1, 0, 0),
    "items and keys": (1, 0, 0, 1),
}


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("seed", [0, 7])
def test_neighbours_agree_as_often_as_strangers(shift: str, seed: int) -> None:
    kept = _keep(0.5, seed, batch=3, heads=3, queries=256, keys=256)
    _assert_share(kept == kept.roll(SHIFTS[shift], dims=(0, 1, 2, 3)), 0.5)


@pytest.mark.parametrize(("one", "two"), [(0, 1), (1, 2), (6, 7), (0, 2**24), (0, 2**44), (5, 5 + 2**62)])
def test_seeds_that_are_neighbours_have_nothing_in_common(one: int, two: int) -> None:
    first, second = (_keep(0.5, seed, batch=2, heads=2, queries=256, keys=256) for seed in (one, two))
    _assert_share(first == second, 0.5)
    # Nor is one the other with its rows, columns, heads or items in another order.
    rows = {plane[i].numpy().tobytes() for plane in first.flatten(0, 1) for i in range(256)}
    assert not rows & {plane[i].numpy().tobytes() for plane in second.flatten(0, 1) for i in range(256)}
    for shift in SHIFTS.values():
        _assert_share(first == second.roll(shift, dims=(0, 1, 2, 3)), 0.5)


def test_all_rows_of_an_item_differ() -> None:
    rows = _keep(0.5, seed=3, batch=3, heads=5, queries=64, keys=64).flatten(0, 2)
    assert len({row.numpy().tobytes() for row in rows}) == len(rows) == 3 * 5 * 64


def test_a_block_is_that_block_of_the_whole() -> None:
    whole = _keep(0.3, seed=11, batch=2, heads=3, queries=31, keys=29)
    dropout = SeededDropout(0.3, seed=11)
    for rows, columns in itertools.product(
        (torch.arange(31), torch.arange(7, 19), torch.tensor([30, 2, 2])),
        (torch.arange(5, 29), torch.tensor([28, 0])),
    ):
        block = dropout.keep(batch=2, heads=3, queries=rows, keys=columns)
        assert torch.equal(block, whole[:, :, rows][..., columns])


def test_both_forms_drop_the_same_weights(form) -> None:
    leaves = [torch.randn(2, 4, 9, 3, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    inputs = AttentionInputs(q=leaves[0], k=leaves[1], v=leaves[2], dropout=SeededDropout(0.4, seed=1))
    given = GivenDropout(0.4, _keep(0.4, 1, batch=2, heads=4, queries=9, keys=9))
    wanted = reference_attention(
        AttentionInputs(q=leaves[0], k=leaves[1], v=leaves[2], dropout=given)
    ).context
    torch.testing.assert_close(form(inputs), wanted, rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad(context.square().sum(), leaves) for context in (form(inputs), wanted)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-11)


def test_the_weights_of_the_record_are_those_before_dropout() -> None:
    q = torch.randn(1, 1, 5, 3)
    attention = reference_attention(AttentionInputs(q=q, k=q, v=q, dropout=SeededDropout(0.5, seed=1)))
    torch.testing.assert_close(attention.weights.sum(-1), torch.ones(1, 1, 5))


@pytest.mark.parametrize("p", [-0.1, 1.0, math.nan])
def test_what_is_refused(p: float) -> None:
    with pytest.raises(InputError, match="p must be a probability with 0 <= p < 1; got"):
        SeededDropout(p, seed=1)
    for seed in (-1, 2**63):
        with pytest.raises(InputError, match=f"seed must be an integer with 0 <= seed < 2.63; got {seed}"):
            SeededDropout(0.1, seed=seed)
