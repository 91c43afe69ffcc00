"""Errors measured and judged: hand-made records with a known mistake."""

import math
from dataclasses import replace

import pytest
import torch

from regard.core import AttentionInputs, Causal, reference_attention
from regard.core.errors import RegardError
from regard.models import LayerParity, Parity, bound_of, layer_parity, output_error


@pytest.fixture
def inputs() -> AttentionInputs:
    return AttentionInputs(
        q=torch.randn(2, 6, 11, 5), k=torch.randn(2, 3, 13, 5), v=torch.randn(2, 3, 13, 7), mask=Causal(2)
    )


def test_a_true_record_has_the_errors_of_rounding(inputs: AttentionInputs) -> None:
    context = reference_attention(inputs).context
    found = layer_parity("decoder", 3, inputs, context)
    assert (found.kind, found.layer) == ("decoder", 3)
    assert 0 < found.context < 1e-6
    assert 0 < found.weights < 1e-6


def test_the_error_is_the_largest_relative_to_the_largest_entry(inputs: AttentionInputs) -> None:
    context = reference_attention(inputs).context
    largest = float(context.abs().max())
    wrong = context.clone()
    wrong[1, 4, 9, 2] += 0.25
    found = layer_parity("encoder", 0, inputs, wrong)
    scale = max(largest, float(wrong.abs().max()))
    assert found.context == pytest.approx(0.25 / scale, rel=1e-3)


@pytest.mark.parametrize(
    "change", [{"scale": 0.5}, {"mask": None}, {"softcap": 1.0}, {"bias": torch.eye(11, 13)[None, None]}]
)
def test_a_record_of_something_else_is_far_off(inputs: AttentionInputs, change: dict[str, object]) -> None:
    context = reference_attention(inputs).context
    assert layer_parity("encoder", 0, replace(inputs, **change), context).context > 1e-2


def test_rows_that_may_attend_to_nothing_are_left_out() -> None:
    x = torch.randn(1, 1, 3, 4)
    inputs = AttentionInputs(q=x, k=x, v=x, mask=Causal(-1))
    found = layer_parity("encoder", 0, inputs, reference_attention(inputs).context)
    assert found.weights < 1e-6
    assert found.context < 1e-6


def test_a_nan_is_an_infinite_error(inputs: AttentionInputs) -> None:
    context = reference_attention(inputs).context
    context[0, 0, 0, 0] = math.nan
    assert not layer_parity("encoder", 0, inputs, context).context < 1.0


def test_outputs_are_compared_bit_for_bit() -> None:
    one = torch.tensor([1.0, -4.0, math.nan])
    assert output_error([one], [one.clone()]) == 0.0
    assert output_error([one], [torch.tensor([1.0, -4.0 + 1e-3, math.nan])]) == pytest.approx(
        2.5e-4, rel=1e-3
    )
    assert output_error([one], [torch.tensor([1.0, -4.0, 0.0])]) == math.inf
    assert output_error([one], [one[:2]]) == math.inf


def exact(**fields: float) -> LayerParity:
    return LayerParity(kind="cross", layer=1, **({"weights": 1e-9, "context": 1e-8} | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parity", "message"),
    [
        (Parity(layers=(exact(context=1e-3),), output=0.0, bound=1e-5), "cross attention layer 1: weights x"),
        (Parity(layers=(exact(context=math.nan),), output=0.0, bound=1e-5), "weights x values differ"),
        (Parity(layers=(exact(weights=1e-3),), output=0.0, bound=1e-5), "cross attention layer 1: rows of"),
        (Parity(layers=(exact(),), output=1e-3, bound=1e-5), "model: the output differs from the untouched"),
    ],
)
def test_what_does_not_hold_is_named(parity: Parity, message: str) -> None:
    with pytest.raises(RegardError, match=message):
        parity.check("model")


def test_what_holds_passes() -> None:
    parity = Parity(layers=(exact(), exact(context=3e-7)), output=None, bound=bound_of(torch.float32))
    parity.check("model")
    assert (parity.weights, parity.context, parity.largest) == (1e-9, 3e-7, 3e-7)
    assert Parity(layers=(), output=2e-7, bound=1e-5).largest == 2e-7


def test_it_shows_itself() -> None:
    """A row a layer; what was not checked is a dash."""
    layers = (
        LayerParity(kind="encoder", layer=0, weights=1e-9, context=2e-7),
        LayerParity(kind="cross", layer=1, weights=None, context=3e-6, heads=4e-8),
    )
    lines = str(Parity(layers=layers, output=0.0, bound=2e-5)).splitlines()
    assert lines[0] == "Largest error 3.0e-06, of 2.0e-05 that rounding explains; output 0.0e+00"
    assert [line.split() for line in lines[2:]] == [
        ["kind", "layer", "weights", "context", "heads"],
        ["encoder", "0", "1.0e-09", "2.0e-07", "-"],
        ["cross", "1", "-", "3.0e-06", "4.0e-08"],
    ]
