"""Weights and scores of any rows and keys, and single heads, computed later from the record alone."""

import itertools

import pytest
import torch
from torch import Tensor

from regard.core import (
    AttentionInputs,
    SeededDropout,
    attention_scores,
    attention_weights,
    reference_attention,
)
from regard.core.errors import InputError
from tolerances import FP64, assert_close_to_largest
from unit.core.cases import HEADS, MASKS, Case, Form, GivenDropout, Made

CHOICES = {
    "all": None,
    "range": range(2, 5),
    "one": range(4, 5),
    "none": range(0),
    "stepped": range(1, 7, 2),
    "backwards": range(6, -1, -3),
    "picked": torch.tensor([5, 0, 3]),
    "permuted": torch.tensor([3, 6, 0, 2, 5, 1, 4]),
    "repeated": torch.tensor([2, 2, 6, 2]),
    "empty": torch.tensor([], dtype=torch.int64),
}


def _list(choice: range | Tensor | None) -> list[int]:
    return list(range(7)) if choice is None else [int(i) for i in choice]


@pytest.mark.parametrize(
    "case",
    [
        Case(mask="causal & padding", bias="dense", softcap=1.5, dropped=True, kv_heads=2, queries=7, keys=7),
        Case(mask="predicate items", bias="computed", kv_heads=3, queries=7, keys=7),
        Case(mask="padded item", kv_heads=1, queries=7, keys=7, layout="transposed"),
    ],
    ids=str,
)
def test_a_part_is_that_part_of_the_whole(case: Case) -> None:
    inputs, _ = Made(case).record(torch.float64)
    whole = reference_attention(inputs)
    for queries, keys in itertools.product(CHOICES.values(), repeat=2):
        rows, columns = _list(queries), _list(keys)
        for read, matrix in ((attention_scores, whole.masked_scores), (attention_weights, whole.weights)):
            part = read(inputs, queries=queries, keys=keys)
            assert part.shape == (2, HEADS, len(rows), len(columns)), (queries, keys)
            if part.numel():
                assert_close_to_largest(part, matrix[:, :, rows][..., columns], FP64)


@pytest.mark.parametrize("mask", MASKS)
def test_parts_with_queries_and_keys_of_different_number(mask: str) -> None:
    inputs, _ = Made(Case(mask=mask, bias="dense", kv_heads=2, queries=5, keys=11)).record(torch.float64)
    weights = reference_attention(inputs).weights
    part = attention_weights(inputs, torch.tensor([4, 1]), torch.tensor([10, 0, 7, 8]))
    assert_close_to_largest(part, weights[:, :, [4, 1]][..., [10, 0, 7, 8]], FP64)


@pytest.mark.parametrize("read", [attention_scores, attention_weights])
@pytest.mark.parametrize("argument", ["queries", "keys"])
@pytest.mark.parametrize(
    ("positions", "message"),
    [
        (range(5, 8), "from 0 to 6; got 7"),
        (range(-2, 0), "from 0 to 6; got -2"),
        (torch.tensor([1, -1]), "from 0 to 6; got -1"),
        (torch.tensor([1, 7]), "from 0 to 6; got 7"),
        (torch.tensor([[1]]), r"int64 tensor of shape \(n,\); got torch.int64 of shape \(1, 1\)"),
        (torch.tensor([True] * 7), r"int64 tensor of shape \(n,\); got torch.bool"),
        (torch.tensor([1.0]), r"int64 tensor of shape \(n,\); got torch.float32"),
    ],
)
def test_positions_that_are_not_there_are_refused(read, argument: str, positions, message: str) -> None:
    inputs, _ = Made(Case(queries=7, keys=7)).record(torch.float32)
    with pytest.raises(InputError, match=f"{argument} must be .*{message}"):
        read(inputs, **{argument: positions})


@pytest.mark.parametrize(
    ("mask", "bias"), [*((mask, "computed") for mask in MASKS), ("none", "dense"), ("nested", "dense")]
)
def test_a_head_alone_is_that_head(mask: str, bias: str, form: Form) -> None:
    case = Case(mask=mask, bias=bias, softcap=1.5, dropped=True, kv_heads=2, queries=7, keys=7)
    inputs, _ = Made(case).record(torch.float64)
    whole = reference_attention(inputs)
    for index in (0, 3, -2):
        head = inputs.head(index)
        assert head.num_heads == head.k.shape[1] == 1
        assert_close_to_largest(form(head), whole.context[:, [index]], FP64)
        assert_close_to_largest(attention_weights(head), whole.weights[:, [index]], FP64)
        assert_close_to_largest(attention_scores(head.head(0)), whole.masked_scores[:, [index]], FP64)


def test_a_head_alone_draws_its_own_dropout(form: Form) -> None:
    inputs, _ = Made(Case(kv_heads=2)).record(torch.float64)
    for dropout in (SeededDropout(0.4, seed=5), GivenDropout(0.4, torch.rand(2, HEADS, 7, 11) > 0.4)):
        record = AttentionInputs(q=inputs.q, k=inputs.k, v=inputs.v, dropout=dropout)
        whole = reference_attention(record).context
        for index in range(HEADS):
            assert_close_to_largest(form(record.head(index)), whole[:, [index]], FP64)


def test_a_head_alone_keeps_the_tensors_as_views() -> None:
    inputs, leaves = Made(Case(kv_heads=3)).record(torch.float32)
    head = inputs.head(5)
    assert head.q.data_ptr() == leaves["q"][:, 5].data_ptr()
    assert head.k.data_ptr() == leaves["k"][:, 2].data_ptr()


@pytest.mark.parametrize("index", [6, -7])
def test_a_head_that_is_not_there_is_refused(index: int) -> None:
    inputs, _ = Made(Case()).record(torch.float32)
    with pytest.raises(InputError, match=f"head must be from 0 to 5, .*got {index}"):
        inputs.head(index)
