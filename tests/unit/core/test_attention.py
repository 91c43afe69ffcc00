"""Both forms of attention against plain Python loops, forward and gradient, over a grid of everything."""

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.core import (
    AttentionInputs,
    Causal,
    Padding,
    Predicate,
    SeededDropout,
    Window,
    _blocks,
    attention_weights,
    fused_attention,
    reference_attention,
)
from tolerances import FP32_OF_LARGEST, FP64, assert_close_to_largest
from unit.core.cases import MASKS, Case, Form, Made
from unit.core.grid import GRID, PLAIN, SINGLE, named, worked_out

TOLERANCE = {torch.float64: FP64, torch.float32: FP32_OF_LARGEST}


@pytest.mark.parametrize("mask", MASKS)
def test_context_and_gradients_are_those_of_the_oracle(mask: str, form: Form) -> None:
    for case in (*GRID, *PLAIN):
        if case.mask == mask:
            with named(case):
                _check(case, form)


def _check(case: Case, form: Form) -> None:
    """With all gradients, without any, and without those of bias and sinks."""
    made, expected = worked_out(case)
    wanted = {"q": expected.d_q, "k": expected.d_k, "v": expected.d_v}
    if made.bias is not None:
        wanted["bias"] = made.expected_bias_gradient(expected)
    if made.sinks is not None:
        wanted["sinks"] = expected.d_sinks
    wanted = {name: torch.as_tensor(values, dtype=torch.float64) for name, values in wanted.items()}
    right = torch.tensor(expected.context, dtype=torch.float64)
    for dtype, tolerance in TOLERANCE.items():
        if dtype == torch.float32 and case not in SINGLE:
            continue
        inputs, leaves = made.record(dtype)
        context = form(inputs)
        assert context.dtype == dtype
        assert_close_to_largest(context, right, tolerance)
        gradients = torch.autograd.grad(context, list(leaves.values()), made.upstream.to(dtype))
        for name, gradient in zip(leaves, gradients, strict=True):
            assert_close_to_largest(gradient, wanted[name], tolerance)
        with torch.no_grad():
            assert_close_to_largest(form(inputs), right, tolerance)
    if case.bias != "none" or case.sinks:
        inputs, leaves = made.record(torch.float64, learns=False)
        gradients = torch.autograd.grad(form(inputs), [leaves[n] for n in "qkv"], made.upstream.double())
        for name, gradient in zip("qkv", gradients, strict=True):
            assert_close_to_largest(gradient, wanted[name], FP64)


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


@pytest.mark.parametrize("mask", MASKS)
def test_every_quantity_of_the_reference_is_that_of_the_oracle(mask: str) -> None:
    for case in GRID:
        if case.mask == mask and case.queries == 7:
            with named(case):
                _check_quantities(case)


def _check_quantities(case: Case) -> None:
    made, expected = worked_out(case)
    attention = reference_attention(made.record(torch.float64)[0])
    for name in ("scores", "scaled_scores", "masked_scores", "weights"):
        wanted = torch.tensor(getattr(expected, name), dtype=torch.float64)
        actual = getattr(attention, name)
        if "padd" in case.mask or case.mask == "nested":
            # What stands at a padded key before the mask is nobody's business: it is silenced.
            seen = torch.tensor(expected.masked_scores)[..., : wanted.shape[3]] > float("-inf")
            actual, wanted = actual[seen], wanted[seen]
        assert_close_to_largest(actual, wanted, FP64)


HALVES: list[dict[str, Any]] = [
    *({"mask": mask} for mask in ("none", "padding", "window & causal", "predicate heads", "padded item")),
    *({"mask": mask, "bias": "dense"} for mask in ("none", "causal & padding", "padded item")),
    {"mask": "causal & padding", "bias": "computed"},
    {"mask": "causal & padding", "sinks": True},
    {"mask": "padded item", "softcap": 1.5},
    {"mask": "causal & padding", "softcap": 1.5, "bias": "dense"},
]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_rounds_the_weights_and_the_context_and_nothing_else(
    dtype: torch.dtype, form: Form
) -> None:
    for options in HALVES:
        case = Case(kv_heads=2, queries=7, keys=7, **options)
        made = Made(case).rounded(dtype)
        expected = torch.tensor(made.expected().context, dtype=torch.float64)
        for grad in (True, False):
            with named(case), torch.set_grad_enabled(grad):
                context = form(made.record(dtype)[0])
                assert context.dtype == dtype
                # Half an eps a rounding: of the weights before they meet the values, and of the context.
                bound = torch.finfo(dtype).eps * made.v.abs().max().item()
                assert (context.double() - expected).abs().max().item() <= bound


def test_gradients_of_half_precision_are_added_up_in_single(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 1,024 queries gives half to either value: bfloat16 cannot count beyond 256 by ones."""
    monkeypatch.setattr(_blocks, "_FEWEST_ROWS", 2)
    q = torch.zeros(1, 1, 1024, 1).bfloat16()
    k, v = torch.zeros(2, 1, 1, 2, 1).bfloat16()
    inputs = AttentionInputs(q=q, k=k, v=v.requires_grad_(), dropout=SeededDropout(0.0, seed=1))
    fused_attention(inputs).sum().backward()
    assert v.grad is not None
    assert v.grad.flatten().tolist() == [512, 512]


def test_checkpointed_blocks_hold_nothing() -> None:
    """What a checkpoint lets go of is held by nobody else, and is made again in the backward pass."""
    alive: list[weakref.ref[Tensor]] = []
    x = torch.randn(3, 1, 2, 7, 5, requires_grad=True)

    def attend(x: Tensor) -> Tensor:
        q, k, v = (x * 2).unbind()
        alive[:] = [weakref.ref(each) for each in (q, k, v)]
        return fused_attention(AttentionInputs(q=q, k=k, v=v, dropout=SeededDropout(0.3, seed=1)))

    (expected,) = torch.autograd.grad(attend(x).square().sum(), x)
    context = checkpoint(attend, x, use_reentrant=False)
    assert [each() for each in alive] == [None] * 3
    (gradient,) = torch.autograd.grad(context.square().sum(), x)
    assert torch.equal(gradient, expected)


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
