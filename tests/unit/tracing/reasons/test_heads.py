"""What feeds a head over a text: against loops over all pairs, and chance against all orders."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from regard.core.errors import InputError
from regard.tracing import Trace, trace_text
from tolerances import FP64
from unit.tracing import measured
from unit.tracing.conftest import make_loaded
from unit.tracing.measured import of_family, traced
from unit.tracing.reasons import by_hand
from unit.tracing.reasons.test_why import CASES, bias, whole, writer_of

HEAD = 2


def times_of(trace: Trace, kind: Any, layer: int, chosen: list[int]) -> tuple[Any, Any, Any]:
    """How often each score is taken, the scores, and the ratios of a soft cap: (queries, keys) each."""
    inputs = trace.attention_of(layer, kind).inputs
    scores = trace.scores(layer, HEAD, kind=kind).double().numpy()
    weights = measured.weights(trace, kind, layer)[HEAD]
    biases = np.stack([np.broadcast_to(bias(inputs, HEAD, at), scores.shape[1]) for at in range(len(scores))])
    times, ratios = np.zeros_like(scores), np.ones_like(scores)
    for query in chosen:
        seen = np.isfinite(scores[query])
        times[query] = np.where(seen, weights[query] - 1 / seen.sum(), 0.0) / len(chosen)
    if inputs.softcap is not None:
        products = inputs.factor * (inputs.q[0, HEAD] @ inputs.k[0, HEAD // 2].T).numpy()
        ratios = inputs.softcap * np.tanh(products / inputs.softcap) / products
    return times, ratios, biases


@pytest.mark.parametrize("query", [None, slice(2, 5)])
@pytest.mark.parametrize(("name", "kind", "layer"), CASES)
def test_what_each_writer_feeds(name: str, kind: Any, layer: int, query: Any) -> None:
    trace = traced(of_family(name))
    inputs = trace.attention_of(layer, kind).inputs
    found = trace.why_heads(layer, HEAD, kind=kind, query=query)
    count = inputs.q.shape[2]
    chosen = list(range(count))[query] if query is not None else list(range(count))
    times, ratios, biases = times_of(trace, kind, layer, chosen)
    q = by_hand.side(trace, kind, layer, HEAD, "q")
    k = by_hand.side(trace, kind, layer, HEAD, "k")
    all_q, all_k = np.sum([*q.values()], axis=0), np.sum([*k.values()], axis=0)
    for parts, feeds, of in (
        (whole(q), found.query_feeds, lambda x: x @ all_k.T),
        (whole(k), found.key_feeds, lambda x: all_q @ x.T),
    ):
        assert {writer_of(each) for each in feeds} == set(parts)
        for each in feeds:
            wanted = inputs.factor * (times * ratios * of(parts[writer_of(each)])).sum()
            assert each.value == pytest.approx(wanted, rel=1e-9, abs=1e-12)
        away = [abs(each.value - each.chance) for each in feeds]
        assert away == sorted(away, reverse=True)
    assert found.bias == pytest.approx((times * biases)[times != 0].sum(), abs=1e-12)
    assert abs(found.error) < FP64
    assert max(abs(each.value) for each in found.key_feeds) > 1e-6


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_chance_is_that_of_all_orders(name: str) -> None:
    trace = traced(of_family(name))
    kind: Any = trace.kinds[0]
    inputs = trace.attention_of(1, kind).inputs
    found = trace.why_heads(1, HEAD)
    times, _, _ = times_of(trace, kind, 1, list(range(7)))
    orders = np.array(list(permutations(range(7))))
    network: Any = trace.require_model().network
    rotation = by_hand.rotation_of(trace, network, kind, 1)
    q = inputs.q[0, HEAD].double().numpy()
    k = inputs.k[0, HEAD // (inputs.num_heads // inputs.k.shape[1])].double().numpy()
    for side, feeds in (("q", found.query_feeds), ("k", found.key_feeds)):
        parts = whole(by_hand.side(trace, kind, 1, HEAD, side, is_turned=False))
        for each in (feeds[0], feeds[3]):
            # values[i, j]: what token j's vector gives at the place of token i, turned as that place turns.
            values = np.zeros((7, 7))
            for token, x in enumerate(parts[writer_of(each)]):
                moved = by_hand.turned(rotation, np.tile(x, (7, 1)))
                products = moved @ k.T if side == "q" else q @ moved.T
                values[:, token] = inputs.factor * (times * products).sum(axis=1 if side == "q" else 0)
            sums = values[np.arange(7), orders].sum(axis=1)
            assert each.chance == pytest.approx(sums.mean(), rel=1e-9, abs=1e-12)
            assert each.spread == pytest.approx(sums.std(), rel=1e-9, abs=1e-12)
            assert each.spread > 1e-6
            assert each.times == pytest.approx((each.value - each.chance) / each.spread)


def test_what_is_printed_and_the_rows() -> None:
    trace = trace_text(make_loaded(), "the fishing bank by the river")
    found = trace.why_heads(1, 2)
    text = str(found)
    assert text.startswith(f"Head 1.2: where it looks, scores are {found.value:+.3f} over the mean of what")
    assert "what feeds its keys" in text
    assert max(map(len, text.splitlines())) <= 80
    rows = found.to_rows()
    assert len(rows) == len(found.key_feeds) + len(found.query_feeds)
    assert sum(row["value"] for row in rows if row["side"] == "key") == pytest.approx(found.value, abs=1e-5)
    assert set(found.to_pandas().columns) == set(rows[0])
    assert repr(found).startswith("WhyHeads(head 1.2: ")


def test_one_token_has_no_order() -> None:
    trace = traced(of_family("gpt2"))
    found = trace.why_heads(1, 0, query=0)  # it sees itself alone
    assert found.value == 0.0
    assert all(each.times == 0.0 for each in found.query_feeds)
    with pytest.raises(InputError, match="query must"):
        trace.why_heads(1, 0, query=99)
