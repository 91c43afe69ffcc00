"""Weights beside their tokens: every key of one query, and the best keys of each of several."""

import torch

from regard.core import AttentionInputs
from regard.tracing import trace_text
from unit.tracing.conftest import make_loaded
from unit.tracing.heads_by_hand import traced

TEXT = "the fishing bank by the river"


def test_of_one_query_every_key_has_a_bar() -> None:
    trace = trace_text(make_loaded(), TEXT)
    table = trace.table(-1, 2, query="bank")
    row = trace.weights(-1, 2, query="bank")[0]
    lines = str(table).splitlines()
    assert lines[0] == f"Head {trace.num_layers - 1}.2 (encoder): attention weights of 'bank'"
    assert [line.split()[:2] for line in lines[3:]] == [
        [token.label, f"{weight:.3f}"]
        for token, weight in zip(trace.encoding.tokens, row.tolist(), strict=True)
    ]
    assert lines[3 + int(row.argmax())].count("█") == max(line.count("█") for line in lines) == 40


def test_of_several_queries_the_best_keys_are_named() -> None:
    trace = trace_text(make_loaded(), TEXT)
    table = trace.table(0, 1, query=slice(1, 4), key=slice(0, 5))
    weights = trace.weights(0, 1, query=slice(1, 4), key=slice(0, 5))
    assert torch.equal(table.weights, weights)
    assert [row["weight"] for row in table.to_rows()] == weights.flatten().tolist()
    for line, query, row in zip(str(table).splitlines()[3:], table.queries, weights, strict=True):
        named, *cells = line.split()
        assert named == query
        assert cells[:2] == [f"{row.max():.2f}", table.keys[int(row.argmax())]]
        assert len(cells) == 6


def test_a_sink_is_the_last_key() -> None:
    q = torch.randn(1, 2, 3, 4)
    trace = traced(AttentionInputs(q=q, k=q, v=q, sinks=torch.tensor([5.0, -1.0])), [3, 1, 4])
    table = trace.table(0, 0)
    assert table.keys[-1] == "(sink)"
    assert len(table.keys) == 4
    assert repr(table).endswith("0.0: 3 queries x 4 keys)")
