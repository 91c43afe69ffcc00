"""The losses against sums written out in double precision, and a piece of the logits at a time."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch.nn import functional

from regard.core.errors import InputError
from regard.training import _losses
from regard.training._losses import (
    NOT_A_TARGET,
    cross_entropy,
    distillation,
    kl_divergence,
    language_sums,
    smoothed_entropy,
)
from tolerances import FP64, assert_close_to_largest
from unit.training.small import WORDS, network

LOGITS = torch.randn(3, 5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
TARGETS = torch.tensor([[0, 6, NOT_A_TARGET, 2, 2], [3, 3, 3, 3, 3], [NOT_A_TARGET, 1, 5, 4, 0]])


def by_hand(smoothing: float, *, minus_entropy: bool) -> float:
    total = 0.0
    for row, targets in zip(LOGITS.tolist(), TARGETS.tolist(), strict=True):
        for logits, target in zip(row, targets, strict=True):
            if target == NOT_A_TARGET:
                continue
            norm = math.log(sum(math.exp(each) for each in logits))
            for v, logit in enumerate(logits):
                q = (1 - smoothing) * (v == target) + smoothing / len(logits)
                total -= q * (logit - norm)
                if minus_entropy and q:
                    total += q * math.log(q)
    return total


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_the_losses_are_their_formulas(smoothing: float) -> None:
    actual = cross_entropy(LOGITS, TARGETS, smoothing=smoothing)
    assert_close_to_largest(actual, by_hand(smoothing, minus_entropy=False), FP64)
    actual = kl_divergence(LOGITS, TARGETS, smoothing=smoothing)
    assert_close_to_largest(actual, by_hand(smoothing, minus_entropy=True), FP64)


def test_cross_entropy_and_kl_are_equal_but_for_a_constant() -> None:
    grads = []
    for loss in (cross_entropy, kl_divergence):
        logits = LOGITS.clone().requires_grad_()
        loss(logits, TARGETS, smoothing=0.1).backward()
        grads.append(logits.grad)
    assert_close_to_largest(grads[0], grads[1], FP64)
    apart = cross_entropy(LOGITS, TARGETS, smoothing=0.1) - kl_divergence(LOGITS, TARGETS, smoothing=0.1)
    assert_close_to_largest(apart, 13 * smoothed_entropy(7, 0.1), FP64)


def test_kl_is_nothing_where_the_model_gives_the_smoothed_target() -> None:
    q = torch.full((1, 7), 0.1 / 7, dtype=torch.float64)
    q[0, 4] += 0.9
    assert abs(float(kl_divergence(q.log(), torch.tensor([4]), smoothing=0.1))) < FP64


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_distillation_is_its_formula(temperature: float) -> None:
    teacher = LOGITS.flip(0)
    total = 0.0
    for ours, theirs in zip(LOGITS.flatten(0, 1).tolist(), teacher.flatten(0, 1).tolist(), strict=True):
        p, q = ([math.exp(each / temperature) for each in row] for row in (ours, theirs))
        p, q = [each / sum(p) for each in p], [each / sum(q) for each in q]
        total += temperature**2 * sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))
    assert_close_to_largest(distillation(LOGITS, teacher, temperature=temperature), total, FP64)


def test_half_precision_is_summed_in_single() -> None:
    assert cross_entropy(LOGITS.bfloat16(), TARGETS).dtype == torch.float32


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: cross_entropy(LOGITS, TARGETS, smoothing=1.0), "smoothing must be at least 0 and below 1"),
        (lambda: distillation(LOGITS, LOGITS, temperature=0.0), "temperature must be positive; got 0"),
        (lambda: distillation(LOGITS, LOGITS[:, :, 1:]), "must have one shape"),
    ],
    ids=["smoothing", "temperature", "shape"],
)
def test_what_makes_no_loss_is_refused(call, told) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=told):
        call()


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

    found = language_sums(made, states, labels, partial(cross_entropy, smoothing=0.1))["loss"]
    assert_close_to_largest(found.detach(), whole.detach(), FP64)
    for actual, wanted in zip(torch.autograd.grad(3.0 * found, learned), expected, strict=True):
        assert_close_to_largest(actual, wanted, FP64)

    with torch.no_grad():
        sums = language_sums(made.eval(), states, labels)
    plain = functional.cross_entropy(logits.reshape(-1, len(WORDS)), labels.reshape(-1), reduction="sum")
    assert_close_to_largest(sums["loss"], plain.detach(), FP64)
    assert int(sums["right"]) == int((logits.argmax(-1) == labels).sum())


def test_without_targets_every_parameter_has_a_gradient_of_zero() -> None:
    made = network("gpt2")
    none = torch.full_like(LABELS, NOT_A_TARGET)
    language_sums(made, torch.randn(2, 5, 12), none)["loss"].backward()
    assert float(made.head.output.weight.grad.abs().max()) == 0.0
