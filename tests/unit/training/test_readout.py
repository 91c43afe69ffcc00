"""Losses a piece of the logits at a time, against all logits at once."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.nn import functional

from regard.training import NOT_A_TARGET, _losses, cross_entropy
from regard.training._losses import loss_of, right, sums_of
from tolerances import FP64, assert_close_to_largest
from unit.training.small import WORDS, network

LABELS = torch.tensor([[5, 6, NOT_A_TARGET, 7, 8], [NOT_A_TARGET, 9, 10, 11, NOT_A_TARGET]])
EVERY = LABELS.clamp(min=5)  # there is a target at every place
HEADS = [
    pytest.param("gpt2", {}, id="tied"),
    pytest.param("bert", {"head": "masked-lm"}, id="dense"),
    pytest.param("t5", {}, id="scaled"),
    pytest.param("gemma2", {"final_softcap": 3.0, "num_kv_heads": 1}, id="capped"),
]


@pytest.mark.parametrize(
    ("rows", "labels"), [(1, LABELS), (3, LABELS), (7, LABELS), (8, LABELS), (4, EVERY), (10, EVERY)]
)
@pytest.mark.parametrize(("family", "more"), HEADS)
def test_loss_and_gradients_are_those_of_all_logits_at_once(
    family: str, more: dict[str, float], rows: int, labels: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_losses, "_ENTRIES", rows * len(WORDS))
    made = network(family, **more).double()
    states = torch.randn(2, 5, 12, dtype=torch.float64, requires_grad=True)
    learned = [states, *(each for each in made.head.parameters() if each.requires_grad)]

    logits = made.readout(states, normed=True)
    whole = functional.cross_entropy(
        logits.reshape(-1, len(WORDS)), labels.reshape(-1), reduction="sum", label_smoothing=0.1
    )
    expected = torch.autograd.grad(3.0 * whole, learned)

    found = loss_of(made, states, labels, partial(cross_entropy, smoothing=0.1))
    assert_close_to_largest(found.detach(), whole.detach(), FP64)
    for actual, wanted in zip(torch.autograd.grad(3.0 * found, learned), expected, strict=True):
        assert_close_to_largest(actual, wanted, FP64)

    with torch.no_grad():
        sums = sums_of(made, states, labels, {"loss": cross_entropy, "right": right})
    plain = functional.cross_entropy(logits.reshape(-1, len(WORDS)), labels.reshape(-1), reduction="sum")
    assert_close_to_largest(sums["loss"], plain.detach(), FP64)
    assert int(sums["right"]) == int((logits.argmax(-1) == labels).sum())


def test_without_targets_every_parameter_has_a_gradient_of_zero() -> None:
    made = network("gpt2")
    none = torch.full_like(LABELS, NOT_A_TARGET)
    loss_of(made, torch.randn(2, 5, 12), none, cross_entropy).backward()
    assert float(made.head.output.weight.grad.abs().max()) == 0.0
