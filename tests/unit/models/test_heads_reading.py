"""Which vectors a classifier reads, by hand."""

from functools import partial

import pytest
import torch
from torch import Tensor

from regard.core import Causal, Mask, Padding
from regard.models._heads import (
    LastState,
    Reading,
    every_position,
    first_position,
    last_of,
    last_token,
    mean_of_tokens,
)
from tolerances import FP64, assert_close_to_largest

BATCH, LENGTH, D_MODEL = 3, 5, 7
IDS = torch.tensor([[5, 6, 7, 8, 9], [1, 6, 7, 1, 1], [1, 1, 1, 1, 1]])
REAL = torch.tensor([[True] * 5, [False, True, True, False, False], [False] * 5])


@pytest.fixture
def state() -> Tensor:
    return torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64)


def read(reading: Reading, state: Tensor, *, token_ids: Tensor = IDS, mask: Mask | None = None) -> Tensor:
    return reading(LastState(state=state, token_ids=token_ids, mask=mask))


def rows(state: Tensor, *places: int) -> Tensor:
    return torch.stack([state[row, place] for row, place in enumerate(places)])


def test_the_first_and_every_one(state: Tensor) -> None:
    assert torch.equal(read(first_position, state, mask=Padding(REAL)), rows(state, 0, 0, 0))
    assert torch.equal(read(every_position, state, mask=Padding(REAL)), state)


def test_the_last_by_its_id_whatever_the_mask_says(state: Tensor) -> None:
    for mask in (None, Padding(~REAL), Causal()):
        assert torch.equal(read(partial(last_token, pad_id=1), state, mask=mask), rows(state, 4, 2, 0))


def test_the_last_by_the_mask_where_there_is_no_id(state: Tensor) -> None:
    reading = partial(last_token, pad_id=None)
    assert torch.equal(read(reading, state), rows(state, 4, 4, 4))
    assert torch.equal(read(reading, state, mask=Causal()), rows(state, 4, 4, 4))
    assert torch.equal(read(reading, state, mask=Padding(REAL)), rows(state, 4, 2, 0))
    narrower = Causal() & Padding(REAL) & Padding(torch.tensor([[True, True, False, True, False]]))
    assert torch.equal(read(reading, state, mask=narrower), rows(state, 3, 1, 0))


def test_one_row_of_a_mask_is_for_all(state: Tensor) -> None:
    mask = Padding(torch.tensor([[True, True, True, False, False]]))
    assert torch.equal(read(partial(last_token, pad_id=None), state, mask=mask), rows(state, 2, 2, 2))
    assert_close_to_largest(read(mean_of_tokens, state, mask=mask), state[:, :3].sum(1) / 3, FP64)


def test_where_the_last_stands() -> None:
    assert last_of(REAL).tolist() == [4, 2, 0]


def test_the_mean_is_of_tokens(state: Tensor) -> None:
    state[1, 3] = torch.nan
    expected = torch.stack([state[0].sum(0) / 5, (state[1, 1] + state[1, 2]) / 2, torch.zeros(7)])
    assert_close_to_largest(read(mean_of_tokens, state, mask=Padding(REAL)), expected, FP64)
    narrower = Padding(REAL) & Padding(torch.tensor([[True, True, False, True, True]]))
    assert_close_to_largest(read(mean_of_tokens, state, mask=narrower)[1], state[1, 1], FP64)
    assert_close_to_largest(read(mean_of_tokens, state[:1]), expected[:1], FP64)
