"""What a page says of every head in a few numbers: means over the queries."""

from typing import Any

import numpy as np
import numpy.typing as npt

from regard.views._blocks import plain
from regard.views._layer_record import LayerRecord
from regard.views._records import AttentionRecord, HeadStatistics, PageToken, RecordKind
from regard.views._weights import weight_rows


def add_statistics(record: AttentionRecord, facts: dict[str, Any]) -> None:
    """Puts the statistics of every head into a page's facts: `null` where there is none."""
    for kind in record.kinds:
        found = record.statistics.get(kind) or head_statistics(record, kind)
        facts["kinds"][kind]["statistics"] = {name: plain(values) for name, values in found.items()}


def head_statistics(record: AttentionRecord, kind: RecordKind) -> HeadStatistics:
    """Statistics of a record that came without: of weights that were given, there is no trace to ask.

    They are means over all queries by the definitions of `regard.tracing.Statistics`, of what a page knows of
    tokens: by name, (layers, heads); NaN where a layer has fewer heads.
    """
    layers = record.layers[kind]
    of_keys = record.sides(kind)[1]
    heads = max(layer.heads for layer in layers)
    sink = any(layer.sinks is not None for layer in layers)
    found: dict[str, npt.NDArray[np.float32]] = {}
    for place, layer in enumerate(layers):
        for head in range(layer.heads):
            means = _means(layer, head, of_keys.tokens, cross=kind == "cross", sink=sink)
            for name, mean in means.items():
                empty = np.full((len(layers), heads), np.nan, np.float32)
                found.setdefault(name, empty)[place, head] = mean
    return found


def _means(
    layer: LayerRecord, head: int, tokens: tuple[PageToken, ...], *, cross: bool, sink: bool
) -> dict[str, float]:
    special = np.array([token.special for token in tokens])
    rows = weight_rows(layer, head, np.arange(layer.queries))
    weights = rows[:, : layer.keys]
    told = {
        "entropy": -(rows * np.log(np.maximum(rows, np.finfo(rows.dtype).tiny))).sum(axis=1),
        "largest": weights.max(axis=1),
        "to_first": weights[:, 0],
    }
    if special.any():
        told["to_special"] = weights[:, special].sum(axis=1)
    if sink:
        told["to_sink"] = rows[:, layer.keys :].sum(axis=1)
    if not cross:
        away = np.abs(np.subtract.outer(np.arange(layer.queries), np.arange(layer.keys)))
        total = weights.sum(axis=1)
        told["distance"] = (weights * away).sum(axis=1) / np.where(total > 0, total, 1)
        told["to_self"] = weights.diagonal()
        # The first query has no token before it, and the last none after it: they do not count there.
        told["to_previous"], told["to_next"] = weights.diagonal(-1), weights.diagonal(1)
    return {name: float(values.mean()) for name, values in told.items() if len(values)}
