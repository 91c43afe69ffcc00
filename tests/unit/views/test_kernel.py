"""What the kernel answers a widget, against weights written out from the definition."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from regard.views import (
    AttentionRecord,
    LayerRecord,
    LiveRun,
    MaskRecord,
    PageToken,
    Side,
    _kernel,
    every_head,
    find_start,
)
from regard.views._kernel import Kernel, widget_facts
from tolerances import WEIGHTS
from unit.views.conftest import HEADS, LAYERS, TOKENS, MakeRecord


def _masked(record: AttentionRecord) -> AttentionRecord:
    """The second layer causal, with a dense bias, a soft cap, sinks and values."""
    rng = np.random.default_rng(3)
    first, second = record.layers["encoder"]
    second = replace(
        second,
        mask=MaskRecord(high=0),
        bias=rng.standard_normal((HEADS, TOKENS, TOKENS), dtype=np.float32),
        softcap=2.0,
        sinks=rng.standard_normal(HEADS, dtype=np.float32),
        v=rng.standard_normal((HEADS, TOKENS, 4), dtype=np.float32),
    )
    return replace(record, layers={"encoder": (first, second)})


def _weights(layer: LayerRecord, head: int) -> Any:
    """The definition, in float64: the last column is the sink's, where there is one."""
    scores = layer.scale * layer.q[head].astype(float) @ layer.k[head].astype(float).T
    if layer.softcap is not None:
        scores = layer.softcap * np.tanh(scores / layer.softcap)
    if layer.bias is not None:
        scores = scores + layer.bias[head]
    if layer.mask is not None:
        scores[np.triu_indices(TOKENS, 1)] = -np.inf
    if layer.sinks is not None:
        scores = np.concatenate((scores, np.full((TOKENS, 1), layer.sinks[head])), axis=1)
    powers = np.exp(scores)
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.fixture
def record(make_record: MakeRecord) -> AttentionRecord:
    return _masked(make_record())


def _ask(kernel: Kernel, **asked: Any) -> tuple[dict[str, Any], list[Any]]:
    [said], buffers = kernel.answers(0, [{"kind": "encoder"} | asked])
    assert "error" not in said, said
    assert said["buffers"] == len(buffers)
    return said, [np.frombuffer(each, "<f4") for each in buffers]


@pytest.mark.parametrize("whole", [True, False])
def test_rows_and_columns(record: AttentionRecord, monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    if not whole:
        monkeypatch.setattr(_kernel, "_MOST_WHOLE", 0)
        monkeypatch.setattr(_kernel, "_BLOCK", 3 * TOKENS)
    kernel = Kernel([LiveRun(record=record)])
    for layer in range(LAYERS):
        for head in range(HEADS):
            wanted = _weights(record.layers["encoder"][layer], head)
            for query in range(TOKENS):
                _, [row] = _ask(kernel, what="row", layer=layer, head=head, query=query)
                np.testing.assert_allclose(row, wanted[query], rtol=0, atol=WEIGHTS)
            for key in range(wanted.shape[1]):
                _, [column] = _ask(kernel, what="column", layer=layer, head=head, key=key)
                np.testing.assert_allclose(column, wanted[:, key], rtol=0, atol=WEIGHTS)


def test_a_sink_that_only_another_layer_has(record: AttentionRecord) -> None:
    _, [column] = _ask(Kernel([LiveRun(record=record)]), what="column", layer=0, head=1, key=TOKENS)
    assert column.tolist() == [0.0] * TOKENS


def test_the_steps_of_one_query(record: AttentionRecord) -> None:
    layer = record.layers["encoder"][1]
    asked = {"kind": "encoder", "what": "steps", "layer": 1, "head": 2, "query": 3}
    [said], [q, k, bias, allowed, v] = Kernel([LiveRun(record=record)]).answers(0, [asked])
    assert (said["softcap"], said["sink"], said["vDim"]) == (2.0, pytest.approx(layer.sinks[2]), 4)
    np.testing.assert_array_equal(np.frombuffer(q, "<f4"), layer.q[2, 3])
    np.testing.assert_array_equal(np.frombuffer(k, "<f4"), layer.k[2].ravel())
    np.testing.assert_array_equal(np.frombuffer(bias, "<f4"), layer.bias[2, 3])
    np.testing.assert_array_equal(np.frombuffer(v, "<f4"), layer.v[2].ravel())
    assert allowed == bytes([0b0001111])


def test_a_thumbnail_has_the_largest_weight_of_each_bin(record: AttentionRecord) -> None:
    """As static/base/thumbnails.js bins: key i of n goes to bin i * width // n."""
    wanted = _weights(record.layers["encoder"][0], 1)
    keys = [0, 1, 3, 4, 5, 6]
    asked = {"queries": [[0, 6]], "keys": [[0, 1], [3, 6]], "width": 4, "height": 3}
    _, [levels] = _ask(Kernel([LiveRun(record=record)]), what="picture", layer=0, head=1, **asked)
    found = np.zeros((3, 4))
    for y, query in enumerate([1, 3, 5]):
        for place, key in enumerate(keys):
            at = place * 4 // len(keys)
            found[y, at] = max(found[y, at], wanted[query, key])
    np.testing.assert_allclose(levels.reshape(3, 4), found, rtol=0, atol=WEIGHTS)


@pytest.mark.parametrize("block", [1 << 22, 2 * TOKENS])
def test_the_strongest_between_words(
    record: AttentionRecord, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(_kernel, "_BLOCK", block)
    queries, keys = [[0, 0], [1, 2], [4, 4], [5, 6]], [[0, 1], [3, 3], [5, 6]]
    said, _ = _ask(
        Kernel([LiveRun(record=record)]),
        what="strongest",
        heads=[[0, 2], [1, 0]],
        queries=queries,
        keys=keys,
        count=5,
    )
    every = []
    for layer, head in ((0, 2), (1, 0)):
        weights = _weights(record.layers["encoder"][layer], head)
        for first, last in queries:
            for start, end in keys:
                weight = weights[first : last + 1, start : end + 1].sum(axis=1).mean()
                every.append((weight, layer, head, first, start))
    wanted = sorted(every, reverse=True)[:5]
    found = [
        (each["weight"], each["layer"], each["head"], each["query"], each["key"])
        for each in said["strongest"]
    ]
    assert [each[1:] for each in found] == [each[1:] for each in wanted]
    np.testing.assert_allclose([each[0] for each in found], [each[0] for each in wanted], atol=WEIGHTS)


def test_statistics_are_asked_for(record: AttentionRecord) -> None:
    asked: list[str] = []

    def statistics(kind: Any) -> Any:
        asked.append(kind)
        return {"entropy": np.array([[1.5, np.nan]], np.float32)}

    kernel = Kernel([LiveRun(record=record, statistics=statistics)])
    assert asked == []
    said, _ = _ask(kernel, what="statistics")
    assert (said["statistics"], asked) == ({"entropy": [[1.5, None]]}, ["encoder"])


def test_the_causal_check_is_asked_for(record: AttentionRecord) -> None:
    kernel = Kernel([LiveRun(record=record, check=lambda kind, of: {"of": [kind, *of.values()]})])
    said, _ = _ask(kernel, what="check", layer=1, head=2)
    assert said["check"]["of"][-2:] == [1, 2]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"what": "check", "layer": 0, "head": 0}, "no model stands behind"),
        ({"what": "poem"}, "must be one of row, column"),
        ({"what": "row", "layer": 0, "head": HEADS, "query": 0}, "IndexError"),
        ({"what": "row", "kind": "decoder"}, "must be one of"),
    ],
)
def test_what_cannot_be_answered_says_why(record: AttentionRecord, asked: dict[str, Any], told: str) -> None:
    right = {"what": "row", "kind": "encoder", "layer": 0, "head": 0, "query": 0}
    said, buffers = Kernel([LiveRun(record=record)]).answers(0, [{"kind": "encoder"} | asked, right])
    assert told in said[0]["error"]
    assert (said[0]["buffers"], said[1], len(buffers)) == (0, {"buffers": 1}, 1)


def test_given_weights_have_no_steps() -> None:
    side = Side(text="a", tokens=(PageToken(text="a"),))
    layer = LayerRecord.of_weights(0, np.ones((1, 1, 1), np.float32))
    record = AttentionRecord(model="m", encoder=side, layers={"encoder": (layer,)})
    kernel = Kernel([LiveRun(record=record)])
    [said], _ = kernel.answers(0, [{"what": "steps", "kind": "encoder", "layer": 0, "head": 0, "query": 0}])
    assert "given" in said["error"]


def test_the_facts_hold_no_weights(make_record: MakeRecord) -> None:
    """A text ten times as long has facts ten times as large, and not a hundred times."""

    def size(tokens: int) -> int:
        q, k = np.random.default_rng(0).standard_normal((2, 2, 3, tokens, 5), dtype=np.float32)
        items = tuple(PageToken(text="t", sequence=0) for _ in range(tokens))
        [run] = widget_facts([LiveRun(record=make_record(tokens=items, q=q, k=k))])
        return len(str(run))

    assert size(1000) < 11 * size(100)
    assert sum(map(len, widget_facts([LiveRun(record=make_record())])[0]["blocks"].values())) == 0


def test_the_facts_say_what_can_be_asked(record: AttentionRecord) -> None:
    [run] = widget_facts([LiveRun(record=record, check=lambda *head: {})])
    assert run["facts"]["start"] == find_start(record, every_head(record))
    facts = run["facts"]
    first, second = facts["kinds"]["encoder"]["layers"]
    assert (facts["kernel"], facts["check"], facts["kinds"]["encoder"]["statistics"]) == (True, True, None)
    assert (first["bias"], second["bias"]) == (None, {"heads": HEADS, "dense": True})
    assert (first["sinks"], second["sinks"]) == (False, True)
    window = {"low": None, "high": 0, "keys": None, "segments": None, "bits": None}
    assert (first["mask"], second["mask"]) == (None, window)
