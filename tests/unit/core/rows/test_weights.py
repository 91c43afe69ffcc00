"""Weights and scores of any rows and keys, and single heads, computed later from the record alone."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from regard.core import (
    AttentionInputs,
    Padding,
    SeededDropout,
    attention_errors,
    attention_scores,
    attention_weights,
    fused_attention,
    reference_attention,
)
from regard.core.errors import InputError
from tolerances import FP32_OF_LARGEST, FP64, assert_close_to_largest
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


def test_a_head_that_is_not_there_is_refused() -> None:
    inputs, _ = Made(Case()).record(torch.float32)
    for index in (6, -7):
        with pytest.raises(InputError, match=f"head must be from 0 to 5, .*got {index}"):
            inputs.head(index)


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_they_hold_for_both_forms(mask: str, sinks: bool) -> None:
    case = Case(mask=mask, bias="dense", softcap=1.5, kv_heads=2, queries=7, keys=7, sinks=sinks)
    for dtype, bound in ((torch.float64, FP64), (torch.float32, 4 * FP32_OF_LARGEST)):
        inputs, _ = Made(case).record(dtype)
        for context in (fused_attention(inputs), reference_attention(inputs).context):
            errors = attention_errors(inputs, context)
            assert errors.row_sum < FP64
            assert errors.context < bound


@pytest.mark.parametrize("where", [(0, 0, 0, 0), (1, 5, 6, 4), (0, 3, 2, 1)])
def test_one_wrong_number_is_found_and_measured(where: tuple[int, ...]) -> None:
    inputs, _ = Made(Case(mask="causal & padding", kv_heads=2, queries=7, keys=7)).record(torch.float64)
    context = fused_attention(inputs).detach().clone()
    context[where] += 0.125
    assert attention_errors(inputs, context).context == pytest.approx(0.125, abs=FP64)


def test_another_head_layout_or_a_missing_mask_is_found() -> None:
    inputs, _ = Made(Case(mask="causal", kv_heads=2, queries=7, keys=7)).record(torch.float32)
    context = fused_attention(inputs)
    tiled = AttentionInputs(q=inputs.q, k=inputs.k.flip(1), v=inputs.v.flip(1), mask=inputs.mask)
    open_ = AttentionInputs(q=inputs.q, k=inputs.k, v=inputs.v)
    for wrong in (tiled, open_):
        assert attention_errors(wrong, context).context > 0.01


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("where", ["context", "v", "q"])
def test_what_is_not_finite_is_infinitely_wrong(where: str, value: float) -> None:
    inputs, _ = Made(Case(queries=7, keys=7)).record(torch.float32)
    tensors = {name: getattr(inputs, name).detach().clone() for name in "qkv"}
    tensors["context"] = fused_attention(inputs).detach().clone()
    tensors[where][0, 2, 3, 1] = value
    context = tensors.pop("context")
    assert attention_errors(AttentionInputs(**tensors), context).context == math.inf


def test_nan_in_the_padding_does_not_matter() -> None:
    tensors = {name: torch.randn(1, 2, 5, 3) for name in "qkv"}
    tensors["k"][:, :, 4] = tensors["v"][:, :, 4] = math.nan
    inputs = AttentionInputs(**tensors, mask=Padding(torch.arange(5)[None] < 4))
    assert attention_errors(inputs, fused_attention(inputs)).context < FP32_OF_LARGEST


def test_it_works_by_blocks_of_rows() -> None:
    tensors = {name: torch.randn(1, 2, 700, 3, dtype=torch.float64) for name in "qkv"}
    inputs = AttentionInputs(**tensors)
    context = fused_attention(inputs)
    assert attention_errors(inputs, context).context < FP64
    context[0, 1, 699, 2] += 1
    assert attention_errors(inputs, context).context == pytest.approx(1.0)
