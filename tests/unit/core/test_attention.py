"""Both forms of attention against plain Python loops, forward and gradient, over a grid of everything."""

from functools import cache

import pytest
import torch

from regard.core import (
    AttentionInputs,
    Causal,
    Padding,
    Predicate,
    Window,
    attention_weights,
    fused_attention,
    reference_attention,
)
from tolerances import FP32_OF_LARGEST, FP64, assert_close_to_largest
from unit.core import oracle
from unit.core.cases import MASKS, Case, Form, Made
from unit.core.grid import GRID, PLAIN

TOLERANCE = {torch.float64: FP64, torch.float32: FP32_OF_LARGEST}


@cache
def _made(case: Case) -> tuple[Made, oracle.Result]:
    made = Made(case)
    return made, made.expected()


@pytest.mark.parametrize("case", [*GRID, *PLAIN], ids=str)
def test_context_and_gradients_are_those_of_the_oracle(case: Case, form: Form) -> None:
    made, expected = _made(case)
    for dtype, tolerance in TOLERANCE.items():
        inputs, leaves = made.record(dtype)
        context = form(inputs)
        assert context.dtype == dtype
        assert_close_to_largest(context, expected.context, tolerance)
        gradients = torch.autograd.grad(context, list(leaves.values()), made.upstream.to(dtype))
        wanted = {"q": expected.d_q, "k": expected.d_k, "v": expected.d_v}
        if made.bias is not None:
            wanted["bias"] = made.expected_bias_gradient(expected)
        if made.sinks is not None:
            wanted["sinks"] = expected.d_sinks
        for name, gradient in zip(leaves, gradients, strict=True):
            assert_close_to_largest(gradient, wanted[name], tolerance)


@pytest.mark.parametrize("mask", MASKS)
def test_heads_of_a_single_number(mask: str, form: Form) -> None:
    # In double precision only: with one product a score, what the largest entry is may itself cancel.
    made = Made(Case(mask=mask, kv_heads=2, queries=7, keys=5, d_k=1, d_v=1, layout="transposed"))
    expected = made.expected()
    inputs, leaves = made.record(torch.float64)
    context = form(inputs)
    assert_close_to_largest(context, expected.context, FP64)
    gradients = torch.autograd.grad(context, list(leaves.values()), made.upstream.double())
    for gradient, wanted in zip(gradients, (expected.d_q, expected.d_k, expected.d_v), strict=True):
        assert_close_to_largest(gradient, wanted, FP64)


@pytest.mark.parametrize("case", [case for case in GRID if case.queries == 7], ids=str)
def test_every_quantity_of_the_reference_is_that_of_the_oracle(case: Case) -> None:
    made, expected = _made(case)
    attention = reference_attention(made.record(torch.float64)[0])
    for name in ("scores", "scaled_scores", "masked_scores", "weights"):
        wanted = torch.tensor(getattr(expected, name), dtype=torch.float64)
        actual = getattr(attention, name)
        if "padd" in case.mask or case.mask == "nested":
            # What stands at a padded key before the mask is nobody's business: it is silenced.
            seen = torch.tensor(expected.masked_scores)[..., : wanted.shape[3]] > float("-inf")
            actual, wanted = actual[seen], wanted[seen]
        assert_close_to_largest(actual, wanted, FP64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "mask", ["none", "padding", "causal", "window & causal", "predicate heads", "padded item"]
)
@pytest.mark.parametrize("bias", ["none", "dense"])
def test_half_precision_rounds_the_weights_and_the_context_and_nothing_else(
    mask: str, bias: str, dtype: torch.dtype, form: Form
) -> None:
    made = Made(Case(mask=mask, bias=bias, kv_heads=2, queries=7, keys=7)).rounded(dtype)
    expected = made.expected()
    context = form(made.record(dtype)[0])
    assert context.dtype == dtype
    # A rounding is half an eps: one of the weights before they meet the values, one of the context.
    bound = torch.finfo(dtype).eps * made.v.abs().max().item()
    apart = (context.double() - torch.tensor(expected.context, dtype=torch.float64)).abs().max().item()
    assert apart <= bound


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mask", ["none", "causal & padding"])
def test_weights_of_half_precision_inputs_are_float32(mask: str, dtype: torch.dtype) -> None:
    made = Made(Case(mask=mask, kv_heads=2, queries=7, keys=7)).rounded(dtype)
    inputs, _ = made.record(dtype)
    for weights in (reference_attention(inputs).weights, attention_weights(inputs)):
        assert weights.dtype == torch.float32
        assert_close_to_largest(weights, made.expected().weights, FP32_OF_LARGEST)


@pytest.mark.parametrize("kind", ["left padding", "predicate", "window", "causal"])
def test_long_rows_whose_first_keys_are_hidden(kind: str) -> None:
    # torch's kernel reads 512 keys at a time; here some of its portions are hidden as a whole.
    length, first = 1400, 1100
    mask = {
        "left padding": Padding((torch.arange(length) >= first)[None]),
        "predicate": Predicate(lambda i, j: (j >= first) & (i >= 0)),
        "window": Window(left=30, right=5),
        "causal": Causal(offset=-700),
    }[kind]
    leaves = [torch.randn(1, 2, length, width, requires_grad=True) for width in (8, 8, 5)]
    inputs = AttentionInputs(q=leaves[0], k=leaves[1], v=leaves[2], mask=mask)
    upstream = torch.randn(1, 2, length, 5)
    contexts = fused_attention(inputs), reference_attention(inputs).context
    assert_close_to_largest(*contexts, FP32_OF_LARGEST)
    gradients = [torch.autograd.grad(context, leaves, upstream) for context in contexts]
    for actual, wanted in zip(*gradients, strict=True):
        assert_close_to_largest(actual, wanted, FP32_OF_LARGEST)


def test_the_fused_form_has_gradients_of_gradients_or_says_so() -> None:
    inputs, leaves = Made(Case(mask="causal")).record(torch.float64)
    (first,) = torch.autograd.grad(fused_attention(inputs).sum(), [leaves["q"]], create_graph=True)
    with pytest.raises(RuntimeError, match=r"not implemented|does not require grad|derivative"):
        torch.autograd.grad(first.square().sum(), [leaves["k"]])
