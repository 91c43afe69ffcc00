"""Norm-weighted attention against loops, value zeroing against the model run with the value set to zero."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import lens_models
import regard
from regard.core import memory
from regard.core.errors import InputError
from regard.models import Network
from regard.models.families.deberta import Convolution
from regard.tracing import Trace
from tolerances import FP32_OF_LARGEST, PARITY_FP32, WEIGHTS, assert_close_to_largest
from unit.models import tiny
from unit.tracing import measured
from unit.tracing.measured import NETWORKS, kinds, traced

ALL = kinds("encoder", "decoder", "both", "bart", "gemma2", "deberta-v2")


def transformed(trace: Trace, kind: Any, layer: int) -> np.ndarray:
    """f_h(x_j) = v_j W_O^h of every head and key, (heads, keys, d_model), by loops over W_O's columns."""
    name = "cross_attention" if kind == "cross" else "attention"
    matrix = getattr(measured.module(trace, kind, layer), name).output.weight.detach().double().numpy()
    inputs = trace.attention_of(layer, kind).inputs
    v, heads = inputs.v[0].double().numpy(), inputs.num_heads
    width = v.shape[2]
    result = np.zeros((heads, v.shape[1], len(matrix)))
    for head, key, place in product(range(heads), range(v.shape[1]), range(width)):
        value = v[head // (heads // len(v)), key, place]
        result[head, key] += value * matrix[:, head * width + place]
    return result


@pytest.mark.parametrize(("name", "kind"), ALL)
def test_weights_times_the_size_of_the_transformed_value(name: str, kind: Any) -> None:
    trace = traced(NETWORKS[name]())
    for layer in trace.layers_of(kind):
        alpha, taken = measured.weights(trace, kind, layer), transformed(trace, kind, layer)
        vectors = alpha[:, :, :, None] * taken[:, None]  # (heads, queries, keys, d_model)
        each = np.linalg.norm(vectors, axis=3)
        assert_close_to_largest(trace.norm_weighted(layer, kind=kind), each, FP32_OF_LARGEST)
        one = trace.norm_weighted(layer, -1, kind=kind, query=slice(1, 3), key=2)
        assert_close_to_largest(one, each[-1, 1:3, 2:3], FP32_OF_LARGEST)
        together = np.linalg.norm(vectors.sum(axis=0), axis=2)
        assert_close_to_largest(trace.norm_weighted_layer(layer, kind=kind), together, FP32_OF_LARGEST)
        some = trace.norm_weighted_layer(layer, kind=kind, query=1, key=slice(0, 3))
        assert_close_to_largest(some, together[1:2, :3], FP32_OF_LARGEST)


def test_more_keys_than_are_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = traced(NETWORKS["decoder"]())
    whole = trace.norm_weighted_layer(1)
    monkeypatch.setattr("regard.tracing.measures._values._KEYS", 2)
    assert_close_to_largest(trace.norm_weighted_layer(1), whole, FP32_OF_LARGEST)


def test_a_sink_has_no_value() -> None:
    model = regard.lens(lens_models.FAMILIES["gpt_oss"]())
    trace = model.trace(token_ids=measured.IDS)
    assert trace.weights(1).shape == (4, 7, 8)
    assert trace.norm_weighted(1).shape == (4, 7, 7)
    assert trace.norm_weighted(1, 2, key=slice(5, 7)).shape == (7, 2)
    assert trace.norm_weighted_layer(1).shape == (7, 7)
    lost = 1.0 - trace.rollout().sum(dim=1)
    assert bool((lost > 0.01).all())  # what went to the sinks
    share = 1.0 - trace.weights(0)[..., 7].double().mean(dim=0)  # of the keys, in the first layer
    assert_close_to_largest(trace.rollout(layer=0).sum(dim=1), 0.5 + 0.5 * share, WEIGHTS)


def test_what_a_projection_is_needed_for_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = traced(NETWORKS["encoder"]())
    with pytest.raises(InputError, match="needs the parameters of tiny, and the trace came without"):
        replace(trace, loaded=None).norm_weighted(0)
    monkeypatch.setattr("regard.models._heads._matrix", lambda module: None)
    for ask in (trace.norm_weighted, trace.norm_weighted_layer):
        with pytest.raises(InputError, match="in encoder layer 1 of tiny none can be seen"):
            ask(1)


def zeroed(trace: Trace, kind: Any, layer: int) -> np.ndarray:
    """1 - cos of a layer's outputs with and without each value, one run of the model each."""
    values = f"{measured.attention(trace, kind, layer)}.v"
    output = f"{measured.prefix(trace, kind)}layers.{layer}.output"
    whole = measured.seen(trace, [output])[output][0].double().numpy()
    columns = []
    for key in range(trace.attention_of(layer, kind).inputs.k_len):

        def zero(v: Tensor, key: int = key) -> Tensor:
            v = v.clone()
            v[:, :, key] = 0.0
            return v

        changed = measured.seen(trace, [output], {values: zero})[output][0].double().numpy()
        cosine = (changed * whole).sum(axis=1)
        columns.append(1.0 - cosine / np.linalg.norm(changed, axis=1) / np.linalg.norm(whole, axis=1))
    return np.stack(columns, axis=1)


def check(trace: Trace, kind: Any, layer: int, tolerance: float = FP32_OF_LARGEST) -> None:
    wanted = zeroed(trace, kind, layer)
    assert wanted.max() > 1e-5
    found = trace.value_zeroing(layer, kind=kind)
    assert_close_to_largest(found, wanted, tolerance)
    some = trace.value_zeroing(layer, kind=kind, query=slice(1, 4), key=slice(2, 5))
    assert_close_to_largest(some, found[1:4, 2:5], tolerance)
    assert_close_to_largest(trace.value_zeroing(layer, kind=kind, query=-1), found[-1:], tolerance)


@pytest.mark.parametrize(("name", "kind"), ALL)
def test_a_layer_worked_out_again_is_the_model_run_again(name: str, kind: Any) -> None:
    trace = traced(NETWORKS[name]())
    for layer in trace.layers_of(kind):
        check(trace, kind, layer)


def test_a_layer_with_a_convolution_beside_it() -> None:
    network = measured.of_family("deberta-v2", convolution=Convolution(kernel_size=3, groups=1))
    for layer in range(2):
        check(traced(network), "encoder", layer)


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "gemma2", "gpt_oss", "t5", "bart"])
def test_through_the_lens(family: str) -> None:
    hf_model, tolerance = lens_models.FAMILIES[family](), PARITY_FP32
    if family not in ("gemma2", "gpt_oss"):  # whose code knows no double precision
        hf_model, tolerance = hf_model.double(), FP32_OF_LARGEST
    model = regard.lens(hf_model)
    both = len(model.network.prefixes) == 2
    trace = model.trace(token_ids=measured.IDS, target_ids=measured.TARGET_IDS if both else None)
    for kind in trace.kinds:
        check(trace, kind, 1, tolerance)


def test_in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    own, seen = traced(NETWORKS["decoder"]()), regard.lens(lens_models.gpt2()).trace(token_ids=measured.IDS)
    for trace in (own, seen):
        whole = trace.value_zeroing(1)
        monkeypatch.setattr("regard.tracing.measures._values._ENTRIES", 2 * 7 * 32 * 4)
        assert (trace.value_zeroing(1) - whole).abs().max() < WEIGHTS


def test_a_token_that_nobody_attends_to_changes_nothing() -> None:
    found = traced(NETWORKS["decoder"]()).value_zeroing(2)
    assert float(found.triu(1).abs().max()) < 1e-12
    assert float(found.diagonal().min()) > 0.0


def test_what_would_take_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = traced(NETWORKS["encoder"]())
    monkeypatch.setattr("regard.tracing.record._trace.MOST_SECONDS", 1e-6)
    with pytest.raises(InputError, match="value zeroing of 7 keys for 7 queries of tiny would take about"):
        trace.value_zeroing(0)
    monkeypatch.undo()
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    with pytest.raises(InputError, match=r"and 1000 bytes are free; ask for some tokens with query= and"):
        trace.value_zeroing(0, query=1)


def test_what_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = traced(NETWORKS["encoder"]())
    with pytest.raises(InputError, match="came without the model"):
        replace(trace, loaded=None).value_zeroing(0)
    with pytest.raises(InputError, match="layer must be from 0 to 1"):
        trace.value_zeroing(2)
    with pytest.raises(InputError, match="values are not in this trace"):
        regard.Model(tiny.loaded(NETWORKS["encoder"]())).trace(
            token_ids=measured.IDS, keep="qk"
        ).value_zeroing(0)
    model = regard.lens(lens_models.bert())
    hidden = [name for name in model.network.tap_names() if name != "layers.0.output"]
    monkeypatch.setattr(type(model.network), "tap_names", lambda self: hidden)
    with pytest.raises(
        InputError, match="output of layer 0, which BertForMaskedLM does not show through the"
    ):
        model.trace(token_ids=measured.IDS).value_zeroing(0)


def test_the_model_stays_as_it_was() -> None:
    network: Network = NETWORKS["encoder"]()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    trace = traced(network)
    trace.value_zeroing(1)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert network.encoder.layers[1].attention is not None  # type: ignore[union-attr]
    assert type(network.encoder.layers[1].attention).__name__ == "MultiHeadAttention"  # type: ignore[union-attr]


def test_short_states_have_the_distances_of_long_ones() -> None:
    """All 1e-15 times as long: below the 1e-12 at which torch stops to divide by the length."""
    network: Any = NETWORKS["encoder"]()
    before = traced(network).value_zeroing(-1)
    norm = network.encoder.layers[-1].ffn_residual.norm
    with torch.no_grad():
        norm.weight *= 1e-15
        norm.bias *= 1e-15
    assert_close_to_largest(traced(network).value_zeroing(-1), before, FP32_OF_LARGEST)
