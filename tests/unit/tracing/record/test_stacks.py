"""Traces of decoders, and of encoders with decoders: each kind of attention against loops over its record."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from regard.core.errors import InputError
from regard.models import Transformer
from regard.positions import RelativeBias, relative_buckets
from regard.tracing import Trace, compare, page_record, trace_read, trace_text
from tolerances import FP32_OF_LARGEST, WEIGHTS, assert_close_to_largest
from unit.core import oracle
from unit.models import tiny
from unit.tracing.conftest import make_tokenizer
from unit.tracing.stacks import SOURCE_TOKENS, TARGET, TARGET_TOKENS, TEXT, loaded

KINDS = {"encoder": (9, 9, 3), "decoder": (6, 6, 5), "cross": (6, 9, 5)}
"""Queries, keys, heads."""


@pytest.fixture(scope="module")
def network() -> Transformer:
    torch.manual_seed(7)
    return tiny.both().float()


@pytest.fixture(scope="module")
def trace(network: Transformer) -> Trace:
    """A text and what a decoder reads beside it, both with words."""
    tokenizer = make_tokenizer()
    return trace_read(loaded(network), tokenizer.encode(TEXT), tokenizer.encode(TARGET))


@pytest.fixture(scope="module")
def alone() -> Trace:
    torch.manual_seed(7)
    return trace_text(loaded(tiny.decoder().float()), TEXT)


def worked(trace: Trace, kind: Any, layer: int, bias: RelativeBias | None, *, scale: float | None) -> Any:
    """Scores, weights and context by loops over q, k, v and the table of the bias."""
    inputs = trace.attention(kind)[layer].inputs
    q, k, v = (getattr(inputs, name).double().tolist() for name in "qkv")
    table = None
    if bias is not None:
        rows, columns = torch.arange(len(q[0][0]))[:, None], torch.arange(len(k[0][0]))[None, :]
        buckets = relative_buckets(
            columns - rows, num_buckets=8, max_distance=5, bidirectional=bias.bidirectional
        )
        table = [bias.table.weight.double()[buckets].permute(2, 0, 1).tolist()]
    upstream = torch.zeros(inputs.q.shape[:3] + inputs.v.shape[3:]).tolist()
    allowed = (lambda b, h, i, j: j <= i) if kind == "decoder" else None
    return oracle.attention(q, k, v, upstream, allowed=allowed, bias=table, scale=scale)


# --- a decoder alone


def test_a_decoder_alone(alone: Trace) -> None:
    assert alone.kinds == ("decoder",)
    assert alone.encoder is None
    assert alone.source is alone.decoder
    assert alone.tokens == SOURCE_TOKENS
    assert (alone.num_layers, alone.num_heads) == (3, 5)
    assert repr(alone) == "Trace('tiny', 9 tokens, 3 layers x 5 heads)"
    for layer in range(3):
        wanted = worked(alone, "decoder", layer, None, scale=None)
        weights = np.array(wanted.weights[0])
        assert alone.weights(layer).sub(torch.from_numpy(weights)).abs().max() < WEIGHTS
        assert torch.equal(alone.weights(layer, kind="decoder"), alone.weights(layer))
        assert_close_to_largest(alone.scores(layer), wanted.masked_scores[0], FP32_OF_LARGEST)
        assert_close_to_largest(alone.context(layer), wanted.context[0], FP32_OF_LARGEST)
    assert not alone.weights(2).triu(1).any()
    assert alone.weights(0, 4, query="bank", key="fishing").shape == (1, 2)


def test_a_decoder_s_embeddings(alone: Trace) -> None:
    network = tiny.decoder().float()
    torch.manual_seed(7)
    network = tiny.decoder().float()
    ids = torch.tensor([alone.token_ids])
    assert torch.equal(alone.embeddings(0), network.stack("decoder").embeddings.tokens.weight[ids[0]])
    assert torch.equal(alone.embeddings("input"), alone.embeddings(0))
    output = network(ids).last_hidden_state[0]
    assert_close_to_largest(alone.embeddings(), output, FP32_OF_LARGEST)
    assert_close_to_largest(alone.embedding("bank", kind="decoder"), output[4], FP32_OF_LARGEST)
    assert alone.decoder is not None
    assert alone.decoder.positions is None
    assert alone.decoder.token_types is None


def test_a_decoder_explained(alone: Trace) -> None:
    e = alone.explain("bank", 1, 4)
    assert (e.kind, e.token, e.num_layers, e.num_heads) == ("decoder", 4, 3, 5)
    assert (e.position, e.token_type) == (None, None)
    assert e.key_tokens == e.tokens == tuple(SOURCE_TOKENS)
    assert np.array_equal(np.isneginf(e.masked_scores), np.arange(9) > 4)
    assert np.abs(e.weights - alone.weights(1, 4)[4].numpy()).max() < WEIGHTS


# --- an encoder and a decoder


def test_the_kinds_of_an_encoder_and_a_decoder(trace: Trace) -> None:
    assert trace.kinds == ("encoder", "decoder", "cross")
    assert trace.tokens == SOURCE_TOKENS
    assert trace.decoder is not None
    assert trace.decoder.tokens == TARGET_TOKENS
    assert trace.words == ["the", "fishing", "bank", "by", "the", "river"]
    assert (trace.num_layers, trace.num_heads) == (2, 3)
    assert repr(trace) == "Trace('tiny', 9 tokens + 6 tokens, 2 layers x 3 heads + 3 layers x 5 heads)"
    assert [len(trace.attention(kind)) for kind in trace.kinds] == [2, 3, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_equals_the_definition(trace: Trace, network: Transformer, kind: Any) -> None:
    bias = None if kind == "cross" else network.stack(kind).bias
    queries, keys, heads = KINDS[kind]
    for layer in range(len(trace.attention(kind))):
        wanted = worked(trace, kind, layer, bias, scale=1.0)
        weights = trace.weights(layer, kind=kind)
        assert weights.shape == (heads, queries, keys)
        assert weights.dtype == torch.float32
        assert weights.sub(torch.tensor(wanted.weights[0])).abs().max() < WEIGHTS
        assert_close_to_largest(trace.scores(layer, kind=kind), wanted.masked_scores[0], FP32_OF_LARGEST)
        assert_close_to_largest(trace.context(layer, kind=kind), wanted.context[0], FP32_OF_LARGEST)
        one = trace.weights(layer, heads - 1, kind=kind)
        assert_close_to_largest(one, weights[heads - 1], FP32_OF_LARGEST)
    assert not torch.equal(trace.weights(0, kind=kind), trace.weights(1, kind=kind))


def test_the_bias_is_in_the_scores(trace: Trace, network: Transformer) -> None:
    for kind in ("encoder", "decoder"):
        without = worked(trace, kind, 0, None, scale=1.0)
        apart = trace.weights(0, kind=kind) - torch.tensor(without.weights[0])  # type: ignore[arg-type]
        assert apart.abs().max() > 1e-3


def test_the_layers_read_what_the_stacks_handed_on(trace: Trace, network: Transformer) -> None:
    assert trace.decoder is not None
    layer = network.stack("decoder").layers[2]
    with torch.no_grad():
        own = layer.attention_residual.norm(trace.decoder.hidden[2])
        q = layer.attention.q(own)
        middle = trace.decoder.hidden[2] + trace.attention("decoder")[2].output
        crossed = layer.cross_attention.q(layer.cross_attention_residual.norm(middle))
        k = layer.cross_attention.k(trace.embeddings(kind="encoder"))
    flat = [
        record.transpose(0, 1).flatten(1)
        for record in (
            trace.attention("decoder")[2].inputs.q[0],
            trace.attention("cross")[2].inputs.q[0],
            trace.attention("cross")[2].inputs.k[0],
        )
    ]
    for recorded, wanted in zip(flat, (q, crossed, k), strict=True):
        assert_close_to_largest(recorded, wanted, FP32_OF_LARGEST)


ONE, TWO = 'kind must be "decoder"', 'kind must be "encoder" or "decoder"'


@pytest.mark.parametrize(
    ("name", "kinds", "attention", "stack"),
    [
        ("alone", ("encoder", "cross", "both", 0), ONE, ONE),
        ("trace", (None, "both", "Cross", True, 1), f'{TWO} or "cross"', TWO),
    ],
)
def test_a_kind_has_to_be_said(request: Any, name: str, kinds: Any, attention: str, stack: str) -> None:
    of = request.getfixturevalue(name)
    for kind in kinds:
        came = r"( that this model has\.$|; got None)" if kind is None else f".*; got {kind!r}"
        for ask in (
            partial(of.weights, 0),
            partial(of.scores, 0),
            partial(of.context, 0),
            partial(of.explain, "by"),
        ):
            with pytest.raises(InputError, match=f"{attention}, the attention{came}"):
                ask(kind=kind)
        for ask in (partial(of.embedding, "bank"), of.embeddings):
            with pytest.raises(InputError, match=f"{stack}, the stack whose .*; got {kind!r}"):
                ask(kind=kind)


def test_layers_and_heads_are_those_of_the_kind(trace: Trace) -> None:
    assert trace.weights(-1, -1, kind="cross").shape == (6, 9)
    assert torch.equal(trace.weights(-1, -1, kind="cross"), trace.weights(2, 4, kind="cross"))
    with pytest.raises(InputError, match="layer must be from 0 to 1"):
        trace.weights(2, kind="encoder")
    with pytest.raises(InputError, match="head must be from 0 to 2"):
        trace.weights(0, 3, kind="encoder")
    with pytest.raises(InputError, match="head must be from 0 to 4"):
        trace.explain("by", 0, 5, kind="cross")


def test_cross_attention_in_some_layers_only_keeps_their_numbers(
    network: Transformer, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [name for name in network.tap_names() if "layers.1.cross_attention." not in name]
    monkeypatch.setattr(network, "tap_names", lambda: names)
    tokenizer = make_tokenizer()
    some = trace_read(loaded(network), tokenizer.encode(TEXT), tokenizer.encode(TARGET))
    assert some.decoder is not None
    assert some.decoder.cross_layers == (0, 2)
    assert len(some.attention("cross")) == 2
    for layer, at in ((0, 0), (2, 2), (-1, 2)):
        for ask in ("weights", "scores", "context"):
            found, wanted = getattr(some, ask)(layer, kind="cross"), getattr(trace, ask)(at, kind="cross")
            assert torch.equal(found, wanted)
        assert some.attention_of(layer, "cross") is some.attention("cross")[at // 2]
        explained = some.explain("by", layer, 1, kind="cross")
        assert (explained.layer, explained.num_layers) == (at, 3)
        assert np.array_equal(explained.weights, trace.explain("by", at, 1, kind="cross").weights)
    for layer in (1, -2):
        message = rf"layer must be one with cross-attention, of 0, 2; got {layer}\."
        for refused in (some.weights, some.scores, some.context):
            with pytest.raises(InputError, match=message):
                refused(layer, kind="cross")
        with pytest.raises(InputError, match=message):
            some.explain("by", layer, kind="cross")
    with pytest.raises(InputError, match="layer must be from 0 to 2"):
        some.weights(3, kind="cross")
    assert torch.equal(some.weights(1, kind="decoder"), trace.weights(1, kind="decoder"))
    assert [each.layer for each in some.parity().layers if each.kind == "cross"] == [0, 2]
    assert trace.decoder is not None
    assert trace.decoder.cross_layers is None


# --- words on both sides of the cross-attention


@pytest.mark.parametrize(
    ("query", "key", "rows", "columns"),
    [
        ("river", "bank", [4], [4]),
        ("money", "fishing", [1], [2, 3]),
        ("the", "the#2", [3], [6]),
        ("by the", slice(0, 3), [2, 3], [0, 1, 2]),
        (-1, -1, [5], [8]),
        (None, "river", list(range(6)), [7]),
        (slice(1, 4), None, [1, 2, 3], list(range(9))),
    ],
)
def test_queries_are_of_the_target_and_keys_of_the_text(
    trace: Trace, query: Any, key: Any, rows: list[int], columns: list[int]
) -> None:
    for ask in (trace.weights, trace.scores):
        whole, part = ask(1, 3, kind="cross"), ask(1, 3, kind="cross", query=query, key=key)
        assert_close_to_largest(part, whole[rows][:, columns], FP32_OF_LARGEST)
    context = trace.context(1, 3, kind="cross")
    assert_close_to_largest(trace.context(1, 3, kind="cross", query=query), context[rows], FP32_OF_LARGEST)


def test_a_word_of_the_other_side(trace: Trace) -> None:
    with pytest.raises(InputError, match='"money" is not a word of the text'):
        trace.weights(0, kind="cross", key="money")
    with pytest.raises(InputError, match='"bank" is not a word of the text'):
        trace.weights(0, kind="cross", query="bank")
    with pytest.raises(InputError, match='"money" is not a word of the text'):
        trace.weights(0, kind="encoder", query="money")
    with pytest.raises(InputError, match=r"must be a word of the text, or a token from 0 to 5, .*; got 6"):
        trace.weights(0, kind="cross", query=6)
    assert trace.weights(0, kind="cross", key=6).shape == (5, 6, 1)


# --- embeddings


def test_embeddings_of_each_stack(trace: Trace, network: Transformer) -> None:
    assert trace.decoder is not None
    ids = torch.tensor([trace.token_ids]), torch.tensor([trace.decoder.encoding.token_ids])
    output = network(ids[0], decoder_token_ids=ids[1])
    for kind, states, which, depth in (
        ("encoder", output.encoder_state, ids[0], 2),
        ("decoder", output.decoder_state, ids[1], 3),
    ):
        table = network.stack(kind).embeddings.tokens.weight  # type: ignore[arg-type]
        assert torch.equal(trace.embeddings(0, kind=kind), table[which[0]])  # type: ignore[arg-type]
        for last in (-1, depth):
            there = trace.embeddings(last, kind=kind)  # type: ignore[arg-type]
            assert_close_to_largest(there, states[0], FP32_OF_LARGEST)
        with pytest.raises(
            InputError, match=rf"layer must be from 0 to {depth}, .* 0 is learned, {depth} contextual"
        ):
            trace.embeddings(depth + 1, kind=kind)  # type: ignore[arg-type]
    assert torch.equal(trace.embedding("river", kind="decoder"), trace.embeddings(kind="decoder")[4])
    assert torch.equal(trace.embedding("river", kind="encoder"), trace.embeddings(kind="encoder")[7])
    positions = network.stack("decoder").embeddings.positions
    assert positions is not None
    assert trace.decoder.positions is not None
    assert torch.equal(trace.decoder.positions, positions.weight[:6])
    assert trace.source.positions is None


# --- the worked calculation


@pytest.mark.parametrize("kind", KINDS)
def test_explained(trace: Trace, kind: Any) -> None:
    row = 7 if kind == "encoder" else 4
    e = trace.explain("river", -1, -1, kind=kind)
    layers, heads = len(trace.attention(kind)), KINDS[kind][2]
    assert (e.kind, e.token, e.layer, e.head) == (kind, row, layers - 1, heads - 1)
    assert (e.num_layers, e.num_heads) == (layers, heads)
    assert e.tokens == tuple(SOURCE_TOKENS if kind == "encoder" else TARGET_TOKENS)
    assert e.key_tokens == tuple(TARGET_TOKENS if kind == "decoder" else SOURCE_TOKENS)
    assert e.text == (TEXT if kind == "encoder" else TARGET)
    assert len(e.weights) == len(e.k) == len(e.v) == len(e.key_tokens)
    layer, head = e.layer, e.head
    assert np.abs(e.weights - trace.weights(layer, head, kind=kind)[row].numpy()).max() < WEIGHTS
    assert_close_to_largest(e.masked_scores, trace.scores(layer, head, kind=kind)[row], FP32_OF_LARGEST)
    assert_close_to_largest(e.context, trace.context(layer, head, kind=kind)[row], FP32_OF_LARGEST)
    assert_close_to_largest(e.joined, trace.context(layer, kind=kind)[:, row].flatten(), FP32_OF_LARGEST)
    record = trace.attention(kind)[layer]
    assert record.output is not None
    assert e.output is not None
    assert_close_to_largest(e.output, record.output[row], FP32_OF_LARGEST)
    stack: Any = "encoder" if kind == "encoder" else "decoder"
    assert_close_to_largest(e.x, trace.stack(stack).hidden[layer][row], FP32_OF_LARGEST)
    assert_close_to_largest(e.contextual, trace.embeddings(layer + 1, kind=stack)[row], FP32_OF_LARGEST)
    assert e.scale == 1.0
    assert (e.position is None) == (kind == "encoder")
    assert e.to_json()["kind"] == kind


# --- what is made of the trace


def test_nothing_holds_a_gradient(trace: Trace) -> None:
    # The biases are learned, and read when somebody asks.
    for kind in ("encoder", "decoder", "cross"):
        for ask in (trace.weights, trace.scores, trace.context):
            assert not ask(0, kind=kind).requires_grad  # type: ignore[operator]
        assert not trace.weights(0, 1, kind=kind, query=1).requires_grad  # type: ignore[arg-type]


def test_the_page_has_every_kind(trace: Trace, alone: Trace) -> None:
    for each in (trace, alone):
        record = page_record(each)
        assert record.kinds == each.kinds
        for kind in each.kinds:
            of_queries, of_keys = (len(side.encoding.tokens) for side in each.sides(kind))
            assert [len(side.tokens) for side in record.sides(kind)] == [of_queries, of_keys]


def test_compared_where_the_text_is_read(trace: Trace, network: Transformer) -> None:
    tokenizer = make_tokenizer()
    other = trace_read(loaded(network), tokenizer.encode("the money bank"), tokenizer.encode("river"))
    similarity = compare([trace, other], "bank").similarity
    assert similarity.shape == (3, 2, 2)
    for layer in range(3):
        one = trace.embeddings(layer, kind="encoder")[4].double()
        two = other.embeddings(layer, kind="encoder")[3].double()
        cosine = float(torch.cosine_similarity(one, two, dim=0))
        assert similarity[layer, 0, 1] == pytest.approx(cosine, rel=FP32_OF_LARGEST)
    assert similarity[0, 0, 1] == pytest.approx(1.0)
