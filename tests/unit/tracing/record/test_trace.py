"""What a trace computes from q, k and v, against the definition in double precision."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.core import memory
from regard.core.errors import InputError
from regard.models import Loaded
from regard.tracing import KeepPolicy, Trace, trace_ids, trace_text
from tolerances import FP32_OF_LARGEST, WEIGHTS, assert_close_to_largest
from unit.models import tiny

LAYERS, HEADS, HEAD_DIM, TOKENS = 2, 3, 5, 9
D_MODEL = HEADS * HEAD_DIM


def worked(trace: Trace, layer: int, head: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, weights and context of one head from its q, k and v alone, in float64."""
    q, k, v = (getattr(trace.attention()[layer].inputs, name)[0, head].double() for name in "qkv")
    scores = q @ k.T / math.sqrt(HEAD_DIM)
    powers = torch.exp(scores - scores.max(dim=1, keepdim=True).values)
    weights = powers / powers.sum(dim=1, keepdim=True)
    return scores, weights, weights @ v


def test_tokens_and_sizes(trace: Trace) -> None:
    assert trace.tokens == ["[CLS]", "the", "fish", "##ing", "bank", "by", "the", "river", "[SEP]"]
    assert trace.token_ids == [2, 4, 5, 6, 7, 8, 4, 9, 3]
    assert trace.words == ["the", "fishing", "bank", "by", "the", "river"]
    assert (trace.num_layers, trace.num_heads) == (LAYERS, HEADS)
    assert repr(trace) == "Trace('tiny', 9 tokens, 2 layers x 3 heads)"


@pytest.mark.parametrize("layer", range(LAYERS))
@pytest.mark.parametrize("head", range(HEADS))
def test_equals_the_definition(trace: Trace, layer: int, head: int) -> None:
    scores, weights, context = worked(trace, layer, head)
    assert_close_to_largest(trace.scores(layer, head), scores, FP32_OF_LARGEST)
    assert trace.weights(layer, head).sub(weights).abs().max() < WEIGHTS
    assert_close_to_largest(trace.context(layer, head), context, FP32_OF_LARGEST)


@pytest.mark.parametrize("name", ["weights", "scores", "context"])
def test_all_heads_are_each_head(trace: Trace, name: str) -> None:
    method: Any = getattr(trace, name)
    every = method(1)
    assert every.shape == (HEADS, TOKENS, HEAD_DIM if name == "context" else TOKENS)
    assert every.dtype == torch.float32
    for head in range(HEADS):
        assert_close_to_largest(method(1, head), every[head], FP32_OF_LARGEST)
    assert not torch.equal(every[0], every[1])


@pytest.mark.parametrize(
    ("selector", "rows"),
    [
        (0, [0]),
        (4, [4]),
        (-1, [8]),
        (np.int64(3), [3]),
        (slice(2, 5), [2, 3, 4]),
        (slice(None, None, -3), [8, 5, 2]),
        ("bank", [4]),
        ("BANK", [4]),
        ("fishing", [2, 3]),
        ("fishing bank", [2, 3, 4]),
        ("the#2", [6]),
        ("[SEP]", [8]),
        (None, list(range(9))),
        ([5, "bank", -1], [5, 4, 8]),
        (range(2, 4), [2, 3]),
    ],
)
def test_selectors(trace: Trace, selector: Any, rows: list[int]) -> None:
    whole_weights, whole_scores, whole_context = trace.weights(1), trace.scores(1), trace.context(1)
    keys = [7, 2]
    assert_close_to_largest(trace.weights(1, query=selector), whole_weights[:, rows], FP32_OF_LARGEST)
    assert_close_to_largest(trace.weights(1, key=selector), whole_weights[:, :, rows], FP32_OF_LARGEST)
    assert_close_to_largest(trace.scores(1, query=selector), whole_scores[:, rows], FP32_OF_LARGEST)
    assert_close_to_largest(trace.scores(1, key=selector), whole_scores[:, :, rows], FP32_OF_LARGEST)
    assert_close_to_largest(trace.context(1, query=selector), whole_context[:, rows], FP32_OF_LARGEST)
    both = trace.weights(1, 2, query=selector, key=slice(7, 1, -5))
    assert_close_to_largest(both, whole_weights[2][rows][:, keys], FP32_OF_LARGEST)


def test_negative_layers_and_heads_count_from_the_end(trace: Trace) -> None:
    assert torch.equal(trace.weights(-1, -1), trace.weights(1, 2))
    assert torch.equal(trace.weights(np.int64(-2), np.int64(0)), trace.weights(0, 0))
    assert not torch.equal(trace.weights(0, 0), trace.weights(1, 0))


LAYER, HEAD = "layer must be from 0 to 1, or negative .*; got ", "head must be from 0 to 2, or negative .*"
STATE = 'layer must be from 0 to 2, or negative to count from the end, or "input"; got .*0 is learned'


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        *((lambda trace, layer=layer: trace.weights(layer), LAYER) for layer in (2, -3, 1.0, True)),
        (lambda trace: trace.scores("1"), LAYER),
        (lambda trace: trace.context(2), LAYER),
        (lambda trace: trace.explain("bank", 2), LAYER),
        *((lambda trace, head=head: trace.weights(0, head), HEAD) for head in (3, -4, 1.0, True)),
        (lambda trace: trace.scores(0, "1"), HEAD),
        (lambda trace: trace.context(0, 3), HEAD),
        (lambda trace: trace.explain("bank", 0, 3), HEAD),
        *((lambda trace, at=at: trace.embedding("bank", at), STATE) for at in (3, -4, "output", None)),
    ],
)
def test_no_such_layer_or_head(trace: Trace, ask: Callable[[Trace], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask(trace)


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        (9, "must be a word of the text, or a token from 0 to 8, .*; got 9"),
        (-10, "from 0 to 8, .*; got -10"),
        ("the", 'occurs 2 times in the text: "the#1" at token 1'),
        ("the#3", "asks for occurrence 3"),
        ("money", '"money" is not a word of the text; the words are "the", "fishing", "bank"'),
        ("", "selector names no word"),
        (slice(5, 5), "must pick at least one of the 9 tokens"),
        (True, "must be a word of the text, .*; got True"),
        ([[1]], r"must be a word of the text, .*; got \[1\]"),
        ([], r"must pick at least one of the 9 tokens; \[\] picks none"),
    ],
)
def test_no_such_token(trace: Trace, selector: Any, message: str) -> None:
    for name, side in [("weights", "query"), ("weights", "key"), ("scores", "key"), ("context", "query")]:
        with pytest.raises(InputError, match=message):
            getattr(trace, name)(0, **{side: selector})


def test_embedding_layers(trace: Trace, loaded: Loaded) -> None:
    table = loaded.network.encoder.embeddings.tokens.weight
    assert torch.equal(trace.embedding("bank", 0), table[7])
    assert torch.equal(trace.embeddings(0), table[torch.tensor(trace.token_ids)])
    output = loaded.network(torch.tensor([trace.token_ids])).last_hidden_state[0]
    for last in (LAYERS, -1):
        assert_close_to_largest(trace.embeddings(last), output, FP32_OF_LARGEST)
    assert torch.equal(trace.embeddings(), trace.embeddings(LAYERS))
    assert torch.equal(trace.embeddings(-LAYERS - 1), trace.embeddings(0))
    assert not torch.equal(trace.embeddings("input"), trace.embeddings(0))


def test_input_is_what_layer_0_reads(trace: Trace, loaded: Loaded) -> None:
    parts = loaded.network.encoder.embeddings
    words = parts.tokens.weight[torch.tensor(trace.token_ids)]
    rows = words + trace.source.positions + parts.token_types.weight[0]
    normed = (rows - rows.mean(1, keepdim=True)) / rows.var(1, keepdim=True, unbiased=False).add(1e-12).sqrt()
    assert_close_to_largest(
        trace.embeddings("input"), normed * parts.norm.weight + parts.norm.bias, FP32_OF_LARGEST
    )
    q = loaded.network.encoder.layers[0].attention.q(trace.embeddings("input"))
    assert_close_to_largest(trace.attention()[0].inputs.q[0].transpose(0, 1).flatten(1), q, FP32_OF_LARGEST)


def test_a_word_of_several_pieces_has_their_mean(trace: Trace) -> None:
    pieces = trace.embeddings(1)[[2, 3]].double()
    assert trace.embedding("fishing", 1).shape == (D_MODEL,)
    assert_close_to_largest(trace.embedding("fishing", 1), pieces.mean(dim=0), FP32_OF_LARGEST)
    assert torch.equal(trace.embedding("the#2", 1), trace.embeddings(1)[6])
    assert torch.equal(trace.embedding(-1, 1), trace.embedding("[SEP]", 1))
    (span,) = [word.span for word in trace.encoding.words if word.text == "fishing"]
    assert torch.equal(trace.embedding(span, 1), trace.embedding("fishing", 1))
    rows = trace.weights(1, 0, query="fishing", key="bank")
    assert torch.equal(trace.weights(1, 0, query=[span], key="bank"), rows)
    assert torch.equal(trace.weights(1, 0, query="{}:{}".format(*span), key="bank"), rows)


def test_the_stream_adds_up(trace: Trace, loaded: Loaded) -> None:
    layer = loaded.network.encoder.layers[1]
    contexts = trace.context(1).transpose(0, 1).flatten(1)
    assert_close_to_largest(layer.attention.output(contexts), trace.attention()[1].output, FP32_OF_LARGEST)
    after = layer.attention_residual.norm(trace.source.hidden[1] + trace.attention()[1].output)
    output = layer.ffn_residual.norm(after + layer.ffn(after))
    assert_close_to_largest(trace.embeddings(2), output, FP32_OF_LARGEST)


def test_nothing_holds_a_gradient(trace: Trace) -> None:
    kept = (trace.weights(0), trace.embeddings(), trace.source.learned)
    assert not any(tensor.requires_grad for tensor in kept)


def test_several_layers_and_heads(loaded: Loaded) -> None:
    trace = trace_text(loaded, "the river bank")
    whole = trace.weights()
    assert whole.shape == (trace.num_layers, trace.num_heads, len(trace.tokens), len(trace.tokens))
    for layer in range(trace.num_layers):
        assert torch.equal(whole[layer], trace.weights(layer))
        for head in range(trace.num_heads):
            assert torch.equal(whole[layer, head], trace.weights(layer, head))
    assert torch.equal(trace.weights([-1, 0], [2, 0], query="bank"), whole[[-1, 0]][:, [2, 0]][:, :, 3:4])
    assert torch.equal(trace.scores(0, slice(1, None), key=0), trace.scores(0)[1:, :, :1])
    for asked in ({"layer": [0, 0]}, {"layer": [0, 7]}, {"head": [True]}, {"head": slice(9, None)}):
        with pytest.raises(InputError, match=f"{next(iter(asked))} must"):
            trace.weights(**asked)


def test_what_enters_and_leaves_attention(loaded: Loaded) -> None:
    trace = trace_text(loaded, "the river bank")
    attention = loaded.network.encoder.layers[1].attention
    x = trace.embeddings(1)
    for name, read in (("q", trace.q), ("k", trace.k), ("v", trace.v)):
        heads = getattr(attention, name)(x).unflatten(1, (trace.num_heads, -1)).transpose(0, 1)
        assert torch.equal(read(1), heads.detach())
        assert torch.equal(read(1, 2), heads[2].detach())
    assert torch.equal(trace.q(1, 2, query="bank"), trace.q(1, 2)[3:4])
    assert torch.equal(trace.v(1, key=slice(2)), trace.v(1)[:, :2])
    joined = trace.context(1).transpose(0, 1).flatten(1)
    assert_close_to_largest(trace.output(1), attention.output(joined).detach(), FP32_OF_LARGEST)
    assert torch.equal(trace.output(1, query=-1), trace.output(1)[-1:])


def test_weights_that_memory_does_not_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is made: a head's 5,000 x 5,000 weights in float32 are 95 MiB."""
    trace = trace_ids(tiny.loaded(tiny.decoder()), [3] * 5000, keeping=KeepPolicy(keep="qk"))
    monkeypatch.setattr(memory, "free_bytes", lambda device: 2**28)
    for read in (trace.weights, trace.scores):
        with pytest.raises(InputError, match=r"5000 x 5000 tokens, needs .* MiB of memory, and 256"):
            read(0)
        with pytest.raises(InputError, match=r"ask for some of them with query=.* trace\.statistics\(\)"):
            read()
        assert read(0, 1, query=-1).shape == (1, 5000)


def test_dir_lists_what_the_documents_name(trace: Trace) -> None:
    listed = {name for name in dir(trace) if not name.startswith("_")}
    assert {"weights", "scores", "q", "k", "v", "context", "output", "embedding", "save", "open"} <= listed
    assert listed.isdisjoint({"sides", "passage", "layer_index", "attention_of", "require_model"})
    assert all(hasattr(trace, name) for name in listed)
