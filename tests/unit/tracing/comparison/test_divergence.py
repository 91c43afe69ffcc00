"""Jensen-Shannon divergence between traces, against loops over whole rows in float64."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.core import AttentionInputs
from regard.core.errors import InputError
from regard.models import Loaded
from regard.pruning import prune
from regard.tracing import (
    AttentionTrace,
    KeepPolicy,
    Trace,
    TracedStack,
    difference_page,
    divergence,
    trace_ids,
    trace_text,
)
from tolerances import FP64, WEIGHTS
from unit.models import tiny
from unit.tracing import heads_by_hand as by_hand
from unit.tracing.conftest import HEADS, LAYERS, make_loaded
from unit.tracing.stacks import loaded as of_network


def entropy(row: list[float]) -> float:
    return -sum(p * math.log2(p) for p in row if p > 0)


def by_entropies(p: list[float], q: list[float]) -> float:
    """H of the mean, less the mean of H: Lin's form, which is not the one that is computed."""
    middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    return entropy(middle) - (entropy(p) + entropy(q)) / 2


def softmaxed(inputs: AttentionInputs, head: int) -> list[list[float]]:
    """All weights of an encoder's head, and of its sink, in float64."""
    q, k = (each[0, head].double() for each in (inputs.q, inputs.k))
    scores = q @ k.T * inputs.factor
    if inputs.sinks is not None:
        scores = torch.cat([scores, inputs.sinks[head].double().expand(len(scores), 1)], dim=1)
    listed: list[list[float]] = scores.softmax(dim=1).tolist()
    return listed


def test_two_checkpoints_on_the_same_tokens() -> None:
    one, other = (trace_text(make_loaded(name), "the fishing bank") for name in ("one", "another"))
    found = divergence(one, other)
    assert (found.kind, found.layers, found.coverage) == ("encoder", (0, 1), 1.0)
    assert found.heads.shape == (LAYERS, HEADS)
    assert found.rows.shape == (LAYERS, HEADS, 6)
    for layer in range(LAYERS):
        for head in range(HEADS):
            ours, theirs = (softmaxed(each.attention_of(layer).inputs, head) for each in (one, other))
            expected = [by_entropies(p, q) for p, q in zip(ours, theirs, strict=True)]
            assert found.rows[layer, head].tolist() == pytest.approx(expected, abs=WEIGHTS)
            assert float(found.heads[layer, head]) == pytest.approx(sum(expected) / 6, abs=WEIGHTS)
    assert found.heads.min() > 1e-5  # the two do differ
    assert float(found.compared.min()) == pytest.approx(1.0, abs=WEIGHTS)
    assert torch.equal(divergence(other, one).rows, found.rows)
    assert divergence(one, one).rows.max() == 0.0
    assert repr(found).startswith("Divergence(encoder, 2 layers x 3 heads, 6 rows, mean 0.")


def test_two_texts_by_their_common_tokens(loaded: Loaded) -> None:
    one, other = (
        trace_text(loaded, text) for text in ("the fishing bank by the river", "the money bank by river")
    )
    found = divergence(one, other)
    # [CLS] the fish ##ing bank by the river [SEP]  and  [CLS] the money bank by river [SEP]
    assert found.queries == found.keys == ((0, 0), (1, 1), (4, 3), (5, 4), (7, 5), (8, 6))
    assert found.coverage == 6 / 9
    ours, theirs = (softmaxed(each.attention_of(1).inputs, 2) for each in (one, other))
    for row, (a, b) in enumerate(found.queries):
        p, q = ([line[pair[side]] for pair in found.keys] for side, line in enumerate((ours[a], theirs[b])))
        expected = by_entropies([*p, 1 - sum(p)], [*q, 1 - sum(q)])
        assert float(found.rows[1, 2, row]) == pytest.approx(expected, abs=WEIGHTS)
    share = [
        sum(ours[a][k] for k, _ in found.keys) + sum(theirs[b][k] for _, k in found.keys)
        for a, b in found.queries
    ]
    assert float(found.compared[1, 2]) == pytest.approx(sum(share) / 12, abs=WEIGHTS)


def test_the_ends_are_0_and_1() -> None:
    ids = [3, 1, 4, 5, 9, 2, 6]

    def one_of(rule: by_hand.Wanted) -> Trace:
        inputs = by_hand.scored(ids, [rule], causal=False)
        return by_hand.traced(replace(inputs, q=inputs.q * 50), ids, "encoder")

    found = divergence(one_of(by_hand.shared(2)), one_of(by_hand.shared(4)))
    assert float(found.heads) == pytest.approx(1.0, abs=FP64)
    assert float(divergence(one_of(by_hand.shared(2)), one_of(by_hand.shared(2))).heads) == 0.0


def test_a_sink_is_a_key(loaded: Loaded) -> None:
    trace = trace_text(loaded, "the river bank")
    sunk = with_sinks(trace, torch.tensor([1.0, -2.0, 0.5]))
    found = divergence(sunk, with_sinks(trace, torch.tensor([0.0, 3.0, 0.5])))
    for head in range(HEADS):
        ours = softmaxed(sunk.attention_of(0).inputs, head)
        theirs = softmaxed(replace(sunk.attention_of(0).inputs, sinks=torch.tensor([0.0, 3.0, 0.5])), head)
        expected = [by_entropies(p, q) for p, q in zip(ours, theirs, strict=True)]
        assert found.rows[0, head].tolist() == pytest.approx(expected, abs=WEIGHTS)
    # Beside a head without one, the sink's weight is attention to nothing that the other has.
    bare = divergence(trace, sunk)
    p, q = softmaxed(trace.attention_of(0).inputs, 0)[0], softmaxed(sunk.attention_of(0).inputs, 0)[0]
    assert float(bare.rows[0, 0, 0]) == pytest.approx(by_entropies([*p, 0.0], q), abs=WEIGHTS)


def with_sinks(trace: Trace, sinks: Tensor) -> Trace:
    assert trace.encoder is not None
    layers = tuple(
        replace(each, inputs=replace(each.inputs, sinks=sinks)) for each in trace.encoder.attention
    )
    return replace(trace, encoder=replace(trace.encoder, attention=layers))


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_every_kind(kind: Any) -> None:
    torch.manual_seed(5)
    model = of_network(tiny.both().float(), tokenizer=False)
    one, other = (
        trace_ids(model, ids, target) for ids, target in (([3, 1, 4, 1, 5], [4, 7, 1]), ([3, 1, 5], [4, 1]))
    )
    found = divergence(one, other, kind)
    shape = {"encoder": (2, 3, 3), "decoder": (3, 5, 2), "cross": (3, 5, 2)}[kind]
    assert found.rows.shape == shape
    assert found.keys == (((0, 0), (2, 1)) if kind == "decoder" else ((0, 0), (1, 1), (4, 2)))
    assert 0.0 <= found.rows.min() <= found.rows.max() <= 1.0
    weights = [trace.weights(1, 2, kind=kind).double() for trace in (one, other)]
    (a, b), rows = found.queries[1], []
    for side, row in ((0, weights[0][a]), (1, weights[1][b])):
        picked = [float(row[pair[side]]) for pair in found.keys]
        rows.append([*picked, 1 - sum(picked)])
    assert float(found.rows[1, 2, 1]) == pytest.approx(by_entropies(*rows), abs=WEIGHTS)
    with pytest.raises(InputError, match='kind must be "encoder" or "decoder" or "cross"'):
        divergence(one, other)


def test_blocks_of_rows_are_joined(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (
        trace_text(make_loaded(name), "the river bank by the fishing bank") for name in ("one", "another")
    )
    whole = divergence(one, other)
    monkeypatch.setattr("regard.tracing.comparison._divergence._ENTRIES", HEADS * 10 * 3)
    parts = divergence(one, other)
    assert torch.allclose(parts.rows, whole.rows, rtol=0, atol=WEIGHTS)
    assert torch.allclose(parts.compared, whole.compared, rtol=0, atol=WEIGHTS)


def test_what_cannot_be_compared(loaded: Loaded) -> None:
    trace = trace_text(loaded, "the river")
    bare = trace_text(loaded, "the river", keeping=KeepPolicy(keep="residual"))
    decoder = replace(trace, model="a decoder", encoder=None, decoder=trace.encoder)
    for pair, message in (
        ((trace, trace_text(loaded, "money by")), "besides special ones; of the queries they have none"),
        ((trace, trace_text(make_loaded(num_layers=1), "the river")), "the one has 2 and the other 1"),
        ((trace, trace_text(make_loaded(num_heads=5), "the river")), "has 3 in the one and 5 in the other"),
        ((trace, trace, "cross"), 'kind must be "encoder"'),
        ((trace, decoder), "tiny has encoder attention, a decoder decoder"),
        ((bare, bare), r'attention layer 0 is not in this trace: .*keep="residual"'),
    ):
        with pytest.raises(InputError, match=message):
            divergence(*pair)  # type: ignore[misc,arg-type]


def test_layers_with_fewer_heads() -> None:
    """A pruned model's layers may differ in heads; where one has fewer, there is no number."""
    ids = [3, 1, 4, 5]

    def layer(heads: int) -> AttentionTrace:
        inputs = by_hand.scored(ids, [by_hand.offset(0)] * heads, causal=False)
        return AttentionTrace(inputs=inputs, context=torch.zeros(inputs.q.shape[1:]))

    passage = TracedStack(
        encoding=by_hand.traced(layer(1).inputs, ids).encoding, attention=(layer(3), layer(2))
    )
    trace = Trace(model="pruned", encoder=passage)
    found = divergence(trace, trace)
    assert found.heads.isnan().tolist() == [[False] * 3, [False, False, True]]


def test_heads_keep_their_numbers_after_pruning() -> None:
    """Of a model and its pruned copy, the heads that both have are compared under their old numbers."""
    loaded = make_loaded()
    whole, pruned = (trace_text(each, "the fishing bank") for each in (loaded, prune(loaded, {0: [1]})))
    found = divergence(whole, pruned)
    assert found.heads[0].isnan().tolist() == [False, True, False]
    assert found.heads[0, [0, 2]].max() < WEIGHTS  # layer 0 reads the same
    one, other = whole.weights(1, 2), pruned.weights(1, 2)
    rows = [by_entropies(p.tolist(), q.tolist()) for p, q in zip(one, other, strict=True)]
    assert float(found.heads[1, 2]) == pytest.approx(sum(rows) / len(rows), abs=WEIGHTS)
    assert {row["head"] for row in found.to_rows() if row["layer"] == 0} == {0, 2}
    with pytest.raises(InputError, match="layer 0 has 3 heads in the one and 2 in the other"):
        difference_page(whole, pruned)


def test_it_shows_itself() -> None:
    one, other = (trace_text(make_loaded(), text) for text in ("the fishing bank", "the money bank"))
    text = str(divergence(one, other))
    assert text.startswith("tiny: how differently each head attends\n1 the fishing bank\n2 the money bank\n")
    assert max(map(len, text.splitlines())) <= 80
    same = str(divergence(one, replace(one, model="second")))
    assert same.startswith("the fishing bank: how differently each head attends\n1 tiny\n2 second\n")
    apart = str(divergence(one, replace(other, model="second")))
    assert apart.startswith("tiny and second: how differently each head attends\n1 the fishing bank\n")
