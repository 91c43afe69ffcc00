"""Statistics of a record that has none of its own: against loops, and what a page says of missing heads."""

import math
from dataclasses import replace

import numpy as np
import pytest

from regard.views import AttentionRecord, LayerRecord, MaskRecord, PageToken, Side, render_page, weight_rows
from regard.views._contents import binned, head_statistics, sampled
from unit.views.conftest import facts_of

TOKENS = 7


def _record(*heads: int, **fields: object) -> AttentionRecord:
    rng = np.random.default_rng(3)
    tokens = tuple(PageToken(text=f"w{i}", special=i in (0, 6), sequence=0) for i in range(TOKENS))
    layers = []
    for layer, count in enumerate(heads):
        q, k = rng.standard_normal((2, count, TOKENS, 5), dtype=np.float32)
        layers.append(LayerRecord(layer=layer, q=q, k=k, scale=0.7, **fields))  # type: ignore[arg-type]
    return AttentionRecord(
        model="m", encoder=Side(text="x", tokens=tokens), layers={"encoder": tuple(layers)}
    )


def _by_loops(layer: LayerRecord, head: int) -> dict[str, float]:
    rows = weight_rows(layer, head, np.arange(TOKENS)).tolist()
    sums: dict[str, list[float]] = {}
    for i, row in enumerate(rows):
        weights = row[:TOKENS]
        total = sum(weights)
        told = {
            "entropy": -sum(p * math.log(p) for p in row if p > 0),
            "largest": max(weights),
            "to_first": weights[0],
            "to_special": weights[0] + weights[6],
            "to_self": weights[i],
            "distance": sum(p * abs(i - j) for j, p in enumerate(weights)) / total if total else 0.0,
        }
        if layer.sinks is not None:
            told["to_sink"] = row[TOKENS]
        if i > 0:
            told["to_previous"] = weights[i - 1]
        if i < TOKENS - 1:
            told["to_next"] = weights[i + 1]
        for name, value in told.items():
            sums.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in sums.items()}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"mask": MaskRecord(high=0)},
        {"mask": MaskRecord(high=-2)},
        {"mask": MaskRecord(high=-2), "sinks": np.array([1, -2, 0], np.float32)},
    ],
)
def test_are_means_over_the_queries(fields: dict[str, object]) -> None:
    record = _record(3, 3, **fields)
    found = head_statistics(record, "encoder")
    for place, layer in enumerate(record.layers["encoder"]):
        for head in range(3):
            wanted = _by_loops(layer, head)
            assert wanted == pytest.approx({name: values[place, head] for name, values in found.items()})


def _facts(record: AttentionRecord) -> dict[str, list[list[float | None]]]:
    statistics: dict[str, list[list[float | None]]] = facts_of(render_page(record))["kinds"]["encoder"][
        "statistics"
    ]
    return statistics


def test_a_head_that_is_not_there_has_none() -> None:
    entropy = _facts(_record(3, 2))["entropy"]
    assert [[each is None for each in row] for row in entropy] == [[False] * 3, [False, False, True]]


def test_a_record_may_bring_its_own() -> None:
    own = np.array([[0.123456789, np.nan, 1e-9]], np.float32)
    record = replace(_record(3), statistics={"encoder": {"spread": own}})
    assert _facts(record) == {"spread": [[0.123457, None, 1e-9]]}


def test_queries_are_evenly_spaced() -> None:
    assert sampled(np.arange(10), 3).tolist() == [1, 5, 8]


def test_a_bin_has_its_largest_number() -> None:
    rows = np.array([[1.0, 5.0, 2.0, 3.0]])
    assert binned(rows, np.array([0, 2, 3]), 2).tolist() == [[2.0, 3.0]]
