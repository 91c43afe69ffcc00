"""The worked calculation is the trace's own, and each step follows from the one before."""

import io
import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

from lens_models import FAMILIES
from regard import lens
from regard.blocks import SandwichNorm
from regard.core import Causal
from regard.core.errors import RegardError
from regard.models import Kind, Loaded
from regard.tracing import Explanation, Trace, explain, trace_ids, trace_text
from regard.tracing.pages._explain import Walked, _around
from tolerances import FP32_OF_LARGEST, WEIGHTS, assert_close_to_largest
from unit.models import tiny
from unit.tracing.conftest import TEXT, make_loaded
from unit.tracing.stacks import loaded as of_network

CASES = [("bank", 4, 0, 0), ("the#2", 6, 1, 2), (0, 0, 1, 1), (-1, 8, -1, -1), ("fishing", 2, 0, 2)]


@pytest.mark.parametrize(("token", "row", "layer", "head"), CASES)
def test_is_the_row_that_was_asked_for(
    trace: Trace, token: int | str, row: int, layer: int, head: int
) -> None:
    e = explain(trace, token, layer, head)
    assert (e.token, e.layer, e.head) == (row, layer % 2, head % 3)
    assert (e.num_layers, e.num_heads) == (2, 3)
    q, k, v = (getattr(trace.attention()[layer].inputs, name)[0, head].double().numpy() for name in "qkv")
    assert_close_to_largest(e.q, q[row], FP32_OF_LARGEST)
    assert_close_to_largest(e.k, k, FP32_OF_LARGEST)
    assert_close_to_largest(e.v, v, FP32_OF_LARGEST)
    assert e.scale == pytest.approx(5**-0.5)
    assert_close_to_largest(e.scores, k @ q[row], FP32_OF_LARGEST)
    assert_close_to_largest(e.scaled_scores, k @ q[row] * 5**-0.5, FP32_OF_LARGEST)
    powers = np.exp(k @ q[row] * 5**-0.5)
    assert np.abs(e.weights - powers / powers.sum()).max() < WEIGHTS
    assert_close_to_largest(e.context, powers / powers.sum() @ v, FP32_OF_LARGEST)


@pytest.mark.parametrize(("token", "row", "layer", "head"), CASES)
def test_agrees_with_the_trace(trace: Trace, token: int | str, row: int, layer: int, head: int) -> None:
    e = trace.explain(token, layer, head)
    assert np.abs(e.weights - trace.weights(layer, head)[row].numpy()).max() < WEIGHTS
    assert_close_to_largest(e.masked_scores, trace.scores(layer, head)[row], FP32_OF_LARGEST)
    assert_close_to_largest(e.context, trace.context(layer, head)[row], FP32_OF_LARGEST)
    assert_close_to_largest(e.joined, trace.context(layer)[:, row].flatten(), FP32_OF_LARGEST)
    assert_close_to_largest(e.joined[5 * e.head : 5 * e.head + 5], e.context, FP32_OF_LARGEST)
    assert_close_to_largest(e.learned, trace.embeddings(0)[row], FP32_OF_LARGEST)
    assert_close_to_largest(e.x, trace.source.hidden[e.layer][row], FP32_OF_LARGEST)
    assert_close_to_largest(e.output, trace.attention()[layer].output[row], FP32_OF_LARGEST)
    assert_close_to_largest(e.contextual, trace.embeddings(e.layer + 1)[row], FP32_OF_LARGEST)


def test_the_projections(trace: Trace, loaded: Loaded) -> None:
    e = trace.explain("river", 1, 2)
    attention = loaded.network.encoder.layers[1].attention
    q = attention.q(torch.from_numpy(e.x))[10:15]
    assert_close_to_largest(e.q, q, FP32_OF_LARGEST)
    assert_close_to_largest(e.output, attention.output(torch.from_numpy(e.joined)), FP32_OF_LARGEST)


def test_the_sum_that_layer_0_reads(trace: Trace, loaded: Loaded) -> None:
    e = trace.explain("bank", 0)
    assert e.token_type is not None
    summed = torch.from_numpy(e.learned + e.position + e.token_type)
    assert_close_to_largest(e.x, loaded.network.encoder.embeddings.norm(summed), FP32_OF_LARGEST)


def test_names_all_pieces_and_works_out_the_first(trace: Trace) -> None:
    e = trace.explain("fishing")
    assert (e.token, e.pieces, e.tokens[e.token]) == (2, (2, 3), "fish")
    assert e.token_ids == tuple(trace.token_ids)
    assert (e.layer, e.head) == (1, 0)


def test_a_pair_shows_both_texts(loaded: Loaded) -> None:
    assert trace_text(loaded, "the bank", "by the river").explain("bank").text == "the bank | by the river"


def test_a_mask_shows_between_scaled_and_masked_scores(trace: Trace) -> None:
    passage = trace.source
    masked = tuple(replace(each, inputs=replace(each.inputs, mask=Causal())) for each in passage.attention)
    e = replace(trace, encoder=replace(passage, attention=masked)).explain("bank", 1, 2)
    assert np.isfinite(e.scaled_scores).all()
    assert np.array_equal(np.isneginf(e.masked_scores), np.arange(9) > 4)
    assert np.array_equal(e.weights > 0, np.arange(9) <= 4)
    plain = e.to_json()
    assert plain["masked_scores"][5:] == [None] * 4
    assert plain["masked_scores"][:5] == pytest.approx(e.masked_scores[:5])
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


def test_half_precision(load_tiny: Callable[..., Loaded]) -> None:
    loaded = load_tiny()
    loaded.network.to(torch.float16)
    e = trace_text(loaded, "the bank").explain("bank")
    assert {getattr(e, name).dtype for name in ("q", "weights", "context", "joined")} == {np.dtype("float32")}


def test_a_sink_is_no_key() -> None:
    trace = lens(FAMILIES["gpt_oss"]()).trace(token_ids=[11, 12, 13, 14, 15])
    whole = trace.weights(1, 2)[3]
    e = trace.explain(3, 1, 2)
    for each in (e.weights, e.masked_scores, e.scores, e.k, e.v):
        assert len(each) == len(e.key_tokens) == 5
    assert e.sink is not None
    assert 0 < e.sink < 1
    assert e.sink == pytest.approx(float(whole[5]), abs=WEIGHTS)
    assert np.abs(e.weights - whole[:5].numpy()).max() < WEIGHTS
    assert_close_to_largest(e.masked_scores[:4], trace.scores(1, 2)[3, :4], FP32_OF_LARGEST)
    assert_close_to_largest(e.context, e.weights @ e.v, FP32_OF_LARGEST)
    assert f"The rest, {e.sink:.6f}, goes to the head's sink" in printed(e)


def test_a_record_by_hand_with_a_sink(trace: Trace) -> None:
    passage = trace.source
    inputs = passage.attention[1].inputs
    sinks = torch.tensor([-1.0, 0.5, 40.0])
    layer = replace(passage.attention[1], inputs=replace(inputs, sinks=sinks))
    sunk = replace(trace, encoder=replace(passage, attention=(passage.attention[0], layer)))
    for head in range(3):
        e = sunk.explain("bank", 1, head)
        powers = np.exp((inputs.k[0, head] @ inputs.q[0, head, 4]).double().numpy() * 5**-0.5)
        total = powers.sum() + np.exp(float(sinks[head]))
        assert np.abs(e.weights - powers / total).max() < WEIGHTS
        assert e.sink == pytest.approx(np.exp(float(sinks[head])) / total, abs=WEIGHTS)
        assert "head's sink" in printed(e)
    assert trace.explain("bank", 1).sink is None
    assert "sink" not in printed(trace.explain("bank", 1))


def printed(explanation: Explanation) -> str:
    file = io.StringIO()
    Console(file=file, width=80, highlight=False).print(explanation)
    return file.getvalue()


def test_the_steps_around_attention_lead_from_input_to_output() -> None:
    """Post-norm, pre-norm, sandwich, and all three sublayers of a decoder: each sum and norm by hand."""
    trace = trace_text(make_loaded(), TEXT)
    network = trace.require_model().network
    e = trace.explain("bank", 0)
    layer = network.encoder.layers[0]
    named = {step.name: step.vector for step in e.after}
    assert [step.name for step in e.after] == [
        "x + attention", "LayerNorm", "hidden", "feed-forward", "x + feed-forward", "LayerNorm",
    ]  # fmt: skip
    assert e.before == ()
    assert e.embedding_norm == "LayerNorm"
    added = torch.from_numpy(e.x) + torch.from_numpy(e.output)
    assert_close_to_largest(named["x + attention"], added, FP32_OF_LARGEST)
    middle = layer.attention_residual.norm(added)
    assert_close_to_largest(e.after[1].vector, middle, FP32_OF_LARGEST)
    assert_close_to_largest(named["feed-forward"], layer.ffn(middle), FP32_OF_LARGEST)
    assert_close_to_largest(e.after[-1].vector, e.contextual, FP32_OF_LARGEST)


def test_the_steps_of_a_decoder() -> None:
    trace = trace_ids(of_network(tiny.decoder(), tokenizer=False), [3, 5, 7, 4])
    for layer in (0, 1):
        e = trace.explain(2, layer)
        assert [step.name for step in e.before] == ["RMSNorm"]
        assert [step.name for step in e.after[:4]] == ["x + attention", "RMSNorm", "hidden", "feed-forward"]
        assert_close_to_largest(e.after[-1].vector, e.contextual, FP32_OF_LARGEST)


@pytest.mark.parametrize("kind", ["decoder", "cross"])
def test_the_steps_around_the_attentions_of_a_decoder_beside_an_encoder(kind: Kind) -> None:
    network = tiny.both()
    e = trace_ids(of_network(network, tokenizer=False), [3, 5, 7], [4, 6, 1, 2]).explain(2, 1, kind=kind)
    names = [step.name for step in (*e.before, *e.after)]
    crossing = names.index("x + cross-attention")
    assert "x + attention" in names[:crossing]
    assert ("x + attention" in [step.name for step in e.before]) == (kind == "cross")
    assert_close_to_largest(e.after[-1].vector, e.contextual, FP32_OF_LARGEST)


def test_a_norm_on_either_side() -> None:
    torch.manual_seed(3)
    before, after, x, y = nn.LayerNorm(5), nn.LayerNorm(5), torch.randn(5).double(), torch.randn(5).double()
    steps = _around(SandwichNorm(before, after), x, lambda _: [Walked("attention", y)], "attention", True)
    assert [step.name for step in steps] == ["LayerNorm", "attention", "LayerNorm", "x + attention"]
    assert torch.equal(steps[-1].value, x + steps[2].value)


def test_steps_that_do_not_add_up_are_refused(trace: Trace) -> None:
    passage = trace.source
    hidden = (*passage.hidden[:1], passage.hidden[1] + 0.01, *passage.hidden[2:])
    with pytest.raises(RegardError, match="the residual does not add up"):
        replace(trace, encoder=replace(passage, hidden=hidden)).explain("bank", 0)


def test_without_the_model_there_are_no_steps_around(trace: Trace) -> None:
    e = replace(trace, loaded=None).explain("bank", 0)
    assert (e.before, e.after) == ((), ())
    assert "after what else the layer does" in str(e)
