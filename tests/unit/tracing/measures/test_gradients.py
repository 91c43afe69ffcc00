"""Gradients against finite differences; integrals, and relevance, against loops and whole matrices."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import lens_models
import regard
from regard.core import Taps, memory
from regard.core.errors import InputError
from regard.models import Output
from regard.tracing import Trace, Zero
from tolerances import FP32_OF_LARGEST, assert_close_to_largest
from unit.models import tiny
from unit.tracing import measured
from unit.tracing.measured import NETWORKS, kinds, traced

STEP = 1e-5
DIFFERENCE, ROUNDING = 1e-4, 1e-9
"""Of a central difference: relative to the largest slope, for STEP squared times the third derivative; and
what 1e-16 of the number leaves over STEP."""


def number(output: Output) -> Tensor:
    """Something of every entry of the output, none like another."""
    state = output.last_hidden_state[0]
    ramp = torch.linspace(-1.0, 1.0, state.numel(), dtype=state.dtype).view_as(state)
    return (ramp * torch.sin(state)).sum()


def value(trace: Trace, writes: dict[str, Callable[[Tensor], Tensor]]) -> float:
    state = measured.seen(trace, [], writes)["last_hidden_state"]
    return float(number(Output(last_hidden_state=state)))


def check(trace: Trace, name: str, gradient: Tensor) -> None:
    """Some entries of a gradient against how the number changes with them."""
    generator = torch.Generator().manual_seed(len(name))
    scale = float(gradient.abs().max())
    assert scale > 1e-7, name
    largest = int(gradient.abs().argmax())
    for place in [largest, int(torch.randint(gradient.numel(), (), generator=generator))]:

        def moved(by: float, place: int = place) -> Callable[[Tensor], Tensor]:
            def move(x: Tensor) -> Tensor:
                x = x.clone(memory_format=torch.contiguous_format)
                x.view(-1)[place] += by
                return x

            return move

        above, below = (value(trace, {name: moved(sign * STEP)}) for sign in (1.0, -1.0))
        slope = (above - below) / (2 * STEP)
        assert abs(slope - float(gradient.flatten()[place])) < DIFFERENCE * scale + ROUNDING, (name, place)


@pytest.mark.parametrize("name", ["encoder", "decoder", "bart", "gemma2", "deberta-v2"])
def test_finite_differences(name: str) -> None:
    network = NETWORKS[name]()
    trace = traced(network)
    taps = [
        each
        for each in network.tap_names()
        if not each.endswith((".inputs", "logits", "scores")) and (".1." in each or "embeddings" in each)
    ]
    found = trace.gradients(of=number, at=taps)
    assert list(found) == taps  # in the order of the forward pass
    for each, gradient in found.items():
        check(trace, each, gradient)


def test_scores_too() -> None:
    trace = traced(NETWORKS["encoder"]())
    found = trace.gradients(of=number, at="layers.*.attention.scores")
    assert list(found) == [f"layers.{layer}.attention.scores" for layer in range(2)]
    for name, gradient in found.items():
        check(trace, name, gradient)


@pytest.mark.parametrize("family", ["bert", "gpt2", "bart"])
def test_through_the_lens(family: str) -> None:
    # Those whose code keeps double precision: others have norms in float32.
    model = regard.lens(lens_models.FAMILIES[family]().double())
    both = len(model.network.prefixes) == 2
    trace = model.trace(token_ids=measured.IDS, target_ids=measured.TARGET_IDS if both else None)
    prefix = measured.prefix(trace, trace.kinds[-1])
    names = [f"{prefix}layers.1.attention.{each}" for each in ("q", "weights", "context", "output")]
    for name, gradient in trace.gradients(of=number, at=[*names, f"{prefix}embeddings.tokens"]).items():
        check(trace, name, gradient)


@pytest.mark.parametrize("trainable", [True, False])
def test_the_model_is_left_as_it_was(trainable: bool) -> None:
    network = NETWORKS["decoder"]().requires_grad_(trainable)
    trace = traced(network)
    found = trace.gradients(of=number, at=["layers.2.input", "layers.1.attention.weights"])
    assert all(parameter.grad is None for parameter in network.parameters())
    assert all(parameter.requires_grad == trainable for parameter in network.parameters())
    assert not any(each.requires_grad for each in found.values())
    check(trace, "layers.2.input", found["layers.2.input"])
    check(trace, "layers.1.attention.weights", found["layers.1.attention.weights"])


def test_a_model_s_gradients_at_a_text() -> None:
    model = regard.load()
    text, tap = "time flies like an arrow", "layers.5.attention.weights"

    def of(output: Output) -> Tensor:
        return output.last_hidden_state[0, 1, 7]

    trace = model.trace(text)
    one, other = model.gradients(text, of=of, at=tap), trace.gradients(of=of, at=[tap])
    assert torch.equal(one[tap], other[tap])
    assert torch.equal(model.gradients(trace, of=of, at=tap)[tap], one[tap])
    # Only the row of the token that is read matters in the last layer.
    assert not one[tap][0, :, 2:].any()
    assert one[tap][0, :, 1].any()
    assert model.gradients(text, of=of, at="layers.5.output")["layers.5.output"][0, 1, 7] == 1.0


def test_of_an_edited_model() -> None:
    model = regard.Model(tiny.loaded(NETWORKS["decoder"]()))
    plain = model.trace(token_ids=measured.IDS)
    edited = model.edited(Zero("context", layer=0, head=1))
    trace = edited.trace(token_ids=measured.IDS)
    found = trace.gradients(of=number, at="layers.0.input")["layers.0.input"]
    zeroing = trace.value_zeroing(0)
    written = {"layers.0.attention.context": lambda x: x.index_fill(1, torch.tensor(1), 0.0)}
    place = int(found.abs().argmax())

    def moved(by: float) -> dict[str, Callable[[Tensor], Tensor]]:
        step = torch.zeros_like(found)
        step.view(-1)[place] = by
        return written | {"layers.0.input": lambda x: x + step}

    slope = (value(plain, moved(STEP)) - value(plain, moved(-STEP))) / (2 * STEP)
    assert abs(slope - float(found.view(-1)[place])) < DIFFERENCE * float(found.abs().max()) + ROUNDING
    assert (found - plain.gradients(of=number, at="layers.0.input")["layers.0.input"]).abs().max() > 1e-3
    assert (zeroing - plain.value_zeroing(0)).abs().max() > 1e-4


def test_what_a_number_does_not_depend_on_is_zero() -> None:
    trace = traced(NETWORKS["both"]())

    def of(output: Output) -> Tensor:
        assert output.encoder_state is not None
        return output.encoder_state[0, 0, 0]

    found = trace.gradients(of=of, at=["encoder.layers.0.input", "decoder.layers.0.input"])
    assert found["encoder.layers.0.input"].any()
    assert found["decoder.layers.0.input"].shape == (1, 5, 30)
    assert not found["decoder.layers.0.input"].any()


def gradients(of: Any = number, at: Any = "layers.0.input") -> Callable[[Trace], object]:
    return lambda trace: trace.gradients(of=of, at=at)


def integrals(**arguments: Any) -> Callable[[Trace], object]:
    return lambda trace: trace.integrated_gradients(of=number, **arguments)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (gradients(lambda out: out.last_hidden_state), r"of must give one number; got .*\(1, 7, 30\)"),
        (gradients(lambda out: 3.0), "with its graph .*; got float"),
        (gradients(lambda out: out.last_hidden_state.argmax()), "got torch.int64"),
        (gradients(lambda out: out.last_hidden_state.sum().detach()), "no .item"),
        (gradients(lambda out: out.last_hidden_state.sum() / 0), "of must give a finite number; got"),
        (gradients(at="layers.7.input"), "no tap is called 'layers.7.input'"),
        (gradients(at=[]), "at must be the name of a tap"),
        (gradients(at=[3]), "at must be the name of a tap"),
        (gradients(at="layers.0.attention.inputs"), "'layers.0.attention.inputs' shows a record"),
        (torch.inference_mode()(gradients()), r"inside torch\.inference_mode"),
        (integrals(baseline=31), "baseline must be an id from 0 to 30; got 31"),
        (integrals(baseline=True), "baseline must be a token's id, a tensor, or None for zeros; got bool"),
        (integrals(baseline=torch.zeros(29)), r"\(7, 30\) or \(30,\); got torch.float32 of shape \(29,\)"),
        (integrals(steps=0), "steps must be a whole number, from 1 to 1000; got 0"),
        (integrals(kind="decoder"), 'kind must be "encoder"'),
    ],
)
def test_what_cannot_be_differentiated(ask: Callable[[Trace], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask(traced(NETWORKS["encoder"]()))


def test_attention_that_would_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    trace = traced(NETWORKS["encoder"]())
    for ask, instead in (
        (lambda: trace.relevance(of=number), "take attention_gradients of one layer"),
        (lambda: trace.attention_gradients(1, 0, of=number), "take gradients at q, k and v"),
    ):
        with pytest.raises(InputError, match=rf"attention of 7 tokens, .* are free; .*{instead}"):
            ask()


# --- integrated gradients


def along(trace: Trace, kind: str, baseline: Tensor, parts: int) -> np.ndarray:
    """The integral by Simpson's rule, the gradient by torch at each place."""
    name = f"{measured.prefix(trace, kind)}embeddings.tokens"
    x = measured.seen(trace, [name])[name]
    network: Any = trace.require_model().network
    arguments = {}
    if len(network.prefixes) == 2:
        arguments["decoder_token_ids"] = torch.tensor([measured.TARGET_IDS])
    total = torch.zeros_like(x)
    for place in range(2 * parts + 1):
        weight = (1 if place in (0, 2 * parts) else 4 if place % 2 else 2) / (6 * parts)
        leaf = (baseline + place / (2 * parts) * (x - baseline)).clone().requires_grad_()
        taps = Taps({name: lambda value, leaf=leaf: leaf})
        number(network(torch.tensor([measured.IDS]), taps=taps, **arguments)).backward(inputs=[leaf])
        assert leaf.grad is not None
        total += weight * leaf.grad
    product: np.ndarray = (total * (x - baseline))[0].numpy()
    return product


@pytest.mark.parametrize(("name", "kind"), [("encoder", "encoder"), ("bart", "decoder")])
def test_the_integral(name: str, kind: Any) -> None:
    network: Any = NETWORKS[name]()
    trace = traced(network)
    found = trace.integrated_gradients(of=number, baseline=2, steps=24, kind=kind)
    tap = f"{measured.prefix(trace, kind)}embeddings.tokens"
    row = network.stack(kind).embeddings.tokens.weight[2].detach()
    wanted = along(trace, kind, row.expand(1, len(found.tokens), -1), 40)
    assert_close_to_largest(found.by_entry, wanted, 1e-4)  # of Simpson's rule
    assert_close_to_largest(found.attributions, found.by_entry.sum(dim=1), FP32_OF_LARGEST)
    assert found.value == pytest.approx(value(trace, {}), abs=1e-12)
    at_baseline = value(trace, {tap: lambda x: row.expand_as(x)})
    assert found.baseline_value == pytest.approx(at_baseline, abs=1e-12)
    assert abs(found.error) < 1e-3 * abs(found.value - found.baseline_value)
    total = float(found.by_entry.double().sum())
    assert total - (found.value - found.baseline_value) == pytest.approx(found.error, abs=1e-5)
    with pytest.warns(UserWarning, match="with steps=1. Give more steps"):
        coarse = trace.integrated_gradients(of=number, baseline=2, steps=1, kind=kind)
    assert abs(coarse.error) > 10 * abs(found.error)
    assert repr(found).startswith(f"IntegratedGradients({len(found.tokens)} tokens, ")
    title, _, _, first, *others = str(found).splitlines()
    assert title.startswith(f"From {found.baseline_value:.6g} to {found.value:.6g}; ")
    assert first.split() == [found.tokens[0], f"{float(found.attributions[0]):+.3f}"]
    assert len(others) == len(found.tokens) - 1


def test_baselines() -> None:
    trace = traced(NETWORKS["encoder"]())
    zeros = trace.integrated_gradients(of=number)
    assert torch.equal(
        zeros.by_entry, trace.integrated_gradients(of=number, baseline=torch.zeros(30)).by_entry
    )
    assert torch.equal(
        zeros.by_entry, trace.integrated_gradients(of=number, baseline=torch.zeros(7, 30)).by_entry
    )
    same = trace.integrated_gradients(of=number, baseline=3)  # of the first token
    assert not same.by_entry[0].any()
    assert same.by_entry[1].any()


def test_a_jump_at_the_baseline_is_told() -> None:
    # A model with RMSNorm and nothing added: the zero vector is the one place where length counts.
    trace = traced(NETWORKS["decoder"]())
    with pytest.warns(UserWarning, match=r"add up to .* where the effect is .*: off by \d+% with steps=32"):
        jump = trace.integrated_gradients(of=number)
    assert jump.missed == abs(jump.error) / abs(jump.value - jump.baseline_value) > 0.5
    assert f"{jump.missed:.1%} of the effect" in repr(jump)
    told = trace.integrated_gradients(of=number, baseline=0, steps=64)
    assert abs(told.error) < 1e-4 * abs(told.value - told.baseline_value)


# --- attention and its gradient


@pytest.mark.parametrize(("name", "kind"), kinds("encoder", "decoder", "both"))
def test_attention_times_its_gradient(name: str, kind: Any) -> None:
    trace = traced(NETWORKS[name]())
    tap = f"{measured.attention(trace, kind, 1)}.weights"
    gradient = trace.gradients(of=number, at=tap)[tap][0].numpy()
    wanted = measured.weights(trace, kind, 1) * gradient
    assert_close_to_largest(trace.attention_gradients(1, of=number, kind=kind), wanted, FP32_OF_LARGEST)
    assert_close_to_largest(trace.attention_gradients(1, 2, of=number, kind=kind), wanted[2], FP32_OF_LARGEST)


@pytest.mark.parametrize(
    ("name", "kind"), [each for each in kinds("encoder", "decoder", "both") if each[1] != "cross"]
)
def test_relevance_is_the_product_of_the_matrices(name: str, kind: Any) -> None:
    trace = traced(NETWORKS[name]())
    whole = np.eye(len(trace.stack(kind).tokens))
    for layer in trace.layers_of(kind):
        product = trace.attention_gradients(layer, of=number, kind=kind).double().numpy()
        whole = whole + np.maximum(product, 0.0).mean(axis=0) @ whole
    assert_close_to_largest(trace.relevance(of=number, kind=kind), whole, FP32_OF_LARGEST)
    assert_close_to_largest(trace.relevance(-2, of=number, kind=kind), whole[-2:-1], FP32_OF_LARGEST)


def test_relevance_with_a_sink_through_the_lens() -> None:
    trace = regard.lens(lens_models.FAMILIES["gpt_oss"]()).trace(token_ids=measured.IDS)
    assert trace.attention_gradients(1, of=number).shape == (4, 7, 8)
    assert trace.relevance(3, of=number).shape == (1, 7)
