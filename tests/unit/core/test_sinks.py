"""Sinks: a column of the softmax without a value, against transformers' gpt-oss and hand numbers."""

import math
from types import SimpleNamespace

import pytest
import torch
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

from regard.core import (
    AttentionInputs,
    Causal,
    Padding,
    Window,
    attention_scores,
    attention_weights,
    reference_attention,
)
from tolerances import FP32_OF_LARGEST, FP64, WEIGHTS, assert_close_to_largest
from unit.core.cases import Case, Form, Made


def test_a_sink_takes_its_share_and_gives_nothing(form: Form) -> None:
    # Two keys with score 0 and a sink with score ln 2: shares 1/4, 1/4, 1/2.
    inputs = AttentionInputs(
        q=torch.zeros(1, 1, 1, 2),
        k=torch.zeros(1, 1, 2, 2),
        v=torch.tensor([[[[4.0], [8.0]]]]),
        sinks=torch.tensor([math.log(2.0)]),
    )
    torch.testing.assert_close(form(inputs), torch.tensor([[[[3.0]]]]))
    torch.testing.assert_close(attention_weights(inputs), torch.tensor([[[[0.25, 0.25, 0.5]]]]))
    torch.testing.assert_close(attention_scores(inputs), torch.tensor([[[[0.0, 0.0, math.log(2.0)]]]]))


@pytest.mark.parametrize("mask", [None, Causal(), Causal() & Window(left=3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sinks_are_those_of_gpt_oss(mask, dtype: torch.dtype, form: Form) -> None:
    heads, kv_heads, length, width = 6, 2, 11, 5
    q = torch.randn(3, heads, length, width, dtype=dtype)
    k, v = (torch.randn(3, kv_heads, length, width, dtype=dtype) for _ in "kv")
    sinks = torch.randn(heads, dtype=dtype).requires_grad_()
    added = None
    if mask is not None:
        added = torch.zeros(1, 1, length, length, dtype=dtype)
        added.masked_fill_(~mask.dense(length, length), torch.finfo(dtype).min)
    module = SimpleNamespace(num_key_value_groups=heads // kv_heads, sinks=sinks, training=False)
    theirs, weights = eager_attention_forward(module, q, k, v, added, scaling=width**-0.5)
    inputs = AttentionInputs(q=q, k=k, v=v, mask=mask, sinks=sinks)
    tolerance = FP64 if dtype == torch.float64 else FP32_OF_LARGEST
    context = form(inputs)
    assert_close_to_largest(context, theirs.transpose(1, 2), tolerance)
    upstream = torch.randn_like(context)
    (ours,) = torch.autograd.grad(context, sinks, upstream)
    assert_close_to_largest(ours, torch.autograd.grad(theirs, sinks, upstream.transpose(1, 2))[0], tolerance)
    with torch.no_grad():  # another path
        assert_close_to_largest(form(inputs), theirs.transpose(1, 2), tolerance)
        rows = attention_weights(inputs)
    assert rows.shape == (3, heads, length, length + 1)
    torch.testing.assert_close(rows[..., :-1], weights, atol=WEIGHTS, rtol=0)
    torch.testing.assert_close(rows.sum(-1), torch.ones_like(rows[..., 0]))


@pytest.mark.parametrize("mask", ["none", "causal & padding", "predicate items", "causal empty"])
def test_parts_and_heads_have_the_sink_as_their_last_column(mask: str, form: Form) -> None:
    made = Made(Case(mask=mask, bias="dense", kv_heads=2, queries=7, keys=7, sinks=True))
    inputs, _ = made.record(torch.float64)
    whole = reference_attention(inputs)
    expected = made.expected()
    assert_close_to_largest(whole.weights, expected.weights, FP64)
    for read, matrix in ((attention_scores, whole.masked_scores), (attention_weights, whole.weights)):
        assert_close_to_largest(read(inputs), matrix, FP64)
        part = read(inputs, torch.tensor([4, 1]), torch.tensor([7, 0, 3]))
        assert_close_to_largest(part, matrix[:, :, [4, 1]][..., [7, 0, 3]], FP64)
        assert_close_to_largest(read(inputs, keys=range(6, 8)), matrix[..., 6:], FP64)
        assert_close_to_largest(read(inputs.head(4)), matrix[:, 4:5], FP64)
    with torch.no_grad():
        assert_close_to_largest(form(inputs.head(-2)), whole.context[:, 4:5], FP64)


def test_there_is_no_column_after_the_sink() -> None:
    inputs, _ = Made(Case(queries=7, keys=7, sinks=True)).record(torch.float32)
    with pytest.raises(ValueError, match="keys must be from 0 to 7; got 8"):
        attention_weights(inputs, keys=range(7, 9))


def test_a_query_that_sees_only_the_sink_gets_zero(form: Form) -> None:
    inputs = AttentionInputs(
        **{name: torch.randn(1, 2, 3, 5) for name in "qkv"},
        mask=Padding(torch.zeros(1, 3, dtype=torch.bool)),
        sinks=torch.tensor([0.5, float("-inf")]),
    )
    assert (form(inputs) == 0).all()
    weights = attention_weights(inputs)
    assert weights[0, :, :, 3].tolist() == [[1.0] * 3, [0.0] * 3]
