"""What is masked reaches nothing: rows that see nobody, 1e30 behind a mask, NaN in the padding."""

import itertools

import pytest
import torch
from torch import Tensor

from regard.core import (
    AttentionInputs,
    Causal,
    Padding,
    Window,
    attention_scores,
    attention_weights,
    fused_attention,
    reference_attention,
)
from tolerances import FP32_OF_LARGEST, assert_close_to_largest
from unit.core.cases import BATCH, HEADS, MASKS, Case, Form, Made
from unit.core.grid import named

PADDED = [name for name in MASKS if "padd" in name] + ["nested"]
EXTRAS = {
    "plain": {},
    "softcap": {"softcap": 1.5},
    "bias": {"bias": "dense"},
    "all": {"bias": "computed", "softcap": 1.5, "dropped": True},
}


def _run(form: Form, made: Made, upstream: Tensor) -> dict[str, Tensor]:
    inputs, leaves = made.record(torch.float32)
    context = form(inputs)
    gradients = torch.autograd.grad(context, list(leaves.values()), upstream)
    return {"context": context.detach(), **dict(zip(leaves, gradients, strict=True))}


def _case(mask: str, extras: str) -> Case:
    return Case(mask=mask, kv_heads=3, queries=7, keys=7, **EXTRAS[extras])


def _sees(made: Made) -> Tensor:
    """bool (batch, heads, queries, keys), from the rule."""
    spans = [range(n) for n in (BATCH, HEADS, made.case.queries, made.case.keys)]
    return torch.tensor(
        [[[[made.rule(b, h, i, j) for j in spans[3]] for i in spans[2]] for h in spans[1]] for b in spans[0]]
    )


@pytest.mark.parametrize("mask", [name for name in MASKS if name != "none"])
def test_1e30_behind_a_mask_changes_nothing_for_those_who_may_not_see_it(mask: str, form: Form) -> None:
    for extras, key in itertools.product(("plain", "all"), (0, 4)):
        made, poisoned = Made(_case(mask, extras)), Made(_case(mask, extras))
        poisoned.k[:, :, key] = poisoned.v[:, :, key] = 1e30
        hidden = ~_sees(made)[..., key]
        # Only rows to which the key is hidden have a say in the gradients.
        upstream = made.upstream * hidden[..., None]
        clean, actual = _run(form, made, upstream), _run(form, poisoned, upstream)
        with named(made.case):
            assert_close_to_largest(actual["context"][hidden], clean["context"][hidden], FP32_OF_LARGEST)
            for name in clean.keys() - {"context"}:
                assert_close_to_largest(actual[name], clean[name], FP32_OF_LARGEST)


@pytest.mark.parametrize("mask", PADDED)
def test_what_stands_in_the_padding_changes_nothing(mask: str, form: Form) -> None:
    for extras, filling in itertools.product(("plain", "all"), (float("nan"), 1e30)):
        made, poisoned = Made(_case(mask, extras)), Made(_case(mask, extras))
        padding = _padding(made)
        assert padding.any()
        for tensor in (poisoned.k, poisoned.v):
            tensor.masked_fill_(padding[:, None, :, None], filling)
        clean, actual = _run(form, made, made.upstream), _run(form, poisoned, made.upstream)
        with named(made.case):
            for name in clean:
                assert_close_to_largest(actual[name], clean[name], FP32_OF_LARGEST)
            for name in "kv":
                of_padding = padding[:, None, None].expand(-1, 3, actual[name].shape[3], -1)
                assert (actual[name].mT[of_padding] == 0).all()


@pytest.mark.parametrize("mask", PADDED)
def test_what_stands_in_the_padding_changes_no_score_weight_or_single_head(mask: str, form: Form) -> None:
    made, poisoned = Made(_case(mask, "all")), Made(_case(mask, "all"))
    for tensor in (poisoned.k, poisoned.v):
        tensor.masked_fill_(_padding(made)[:, None, :, None], float("nan"))
    clean, actual = made.record(torch.float32)[0], poisoned.record(torch.float32)[0]
    for read in (attention_scores, attention_weights):
        assert_close_to_largest(read(actual), read(clean), FP32_OF_LARGEST)
        assert_close_to_largest(read(actual.head(4)), read(clean.head(4)), FP32_OF_LARGEST)
    assert_close_to_largest(form(actual.head(4)), form(clean)[:, 4:5], FP32_OF_LARGEST)


def _padding(made: Made) -> Tensor:
    """bool (batch, keys): the padded keys, as `cases` lays them out."""
    padded = torch.tensor([[j != 1 and (3 * j + b) % 4 == 0 for j in range(7)] for b in range(BATCH)])
    if made.case.mask == "padding for all":
        padded = padded[:1].expand(BATCH, -1)
    if made.case.mask.endswith("padded item"):
        padded = torch.cat([torch.ones_like(padded[:1]), padded[1:]])
    if made.case.mask == "padding & padding":
        padded = padded | padded[:1]
    return padded


@pytest.mark.parametrize(
    ("mask", "extras"),
    [
        *itertools.product(
            ["padded item", "causal & padded item", "predicate empty", "causal empty"], EXTRAS
        ),
        *itertools.product(["none", "window & causal", "padded item"], ["minus infinity"]),
    ],
)
def test_a_row_that_may_attend_to_nothing_is_zero_with_finite_gradients(
    mask: str, extras: str, form: Form
) -> None:
    case = Case(mask=mask, bias="minus infinity", kv_heads=3, queries=7, keys=7)
    made = Made(case if extras == "minus infinity" else _case(mask, extras))
    empty = ~_sees(made).any(-1)
    if extras == "minus infinity":
        empty[:, :, 2] = True
    assert empty.any()
    results = _run(form, made, made.upstream)
    assert (results["context"][empty] == 0).all()
    assert (results["context"][~empty] != 0).any()
    assert all(tensor.isfinite().all() for tensor in results.values())
    assert (results["q"][empty] == 0).all()
    weights = attention_weights(made.record(torch.float32)[0])
    assert (weights[empty] == 0).all()
    torch.testing.assert_close(weights[~empty].sum(-1), torch.ones_like(weights[~empty][..., 0]))


@pytest.mark.parametrize("extras", EXTRAS)
@pytest.mark.parametrize(
    "mask",
    [Causal(offset=-50), Window(left=1, right=1, offset=90), Padding(torch.zeros(2, 7, dtype=torch.bool))],
)
def test_attention_to_nothing_at_all_still_has_gradients(mask, extras: str, form: Form) -> None:
    made = Made(_case("none", extras))
    made.mask = mask
    results = _run(form, made, made.upstream)
    assert all((tensor == 0).all() for tensor in results.values())


def test_1e30_behind_the_mask_of_a_long_row() -> None:
    # torch's kernel reads 512 keys at a time: a portion of nothing but hidden keys comes first.
    length = 1200
    q, k, v = (torch.randn(1, 2, length, 8) for _ in range(3))
    mask = Window(left=10, right=10)
    clean = fused_attention(AttentionInputs(q=q, k=k, v=v, mask=mask))
    k[:, :, :600] = 1e30
    v[:, :, :600] = 1e30
    inputs = AttentionInputs(q=q, k=k, v=v, mask=mask)
    for context in (fused_attention(inputs), reference_attention(inputs).context):
        assert_close_to_largest(context[:, :, 610:], clean[:, :, 610:], FP32_OF_LARGEST)
