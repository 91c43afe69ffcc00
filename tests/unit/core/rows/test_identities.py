"""The identities of attention: they hold for what the forms compute, and tell what is wrong."""

import math

import pytest
import torch

from regard.core import (
    AttentionInputs,
    Padding,
    attention_errors,
    fused_attention,
    reference_attention,
)
from tolerances import FP32_OF_LARGEST, FP64
from unit.core.cases import MASKS, Case, Made


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
