"""What a page says of every head in a few numbers: means over the queries."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.views._layer_record import LayerRecord
from regard.views._records import AttentionRecord, HeadStatistics, PageToken, RecordKind
from regard.views._weights import precision_of, rows_in

# Weights computed together: a block stays in the cache, and a long text needs no whole matrix.
_BLOCK = 1 << 16

# Of what is shown, so that no digit of it is lost.
_DIGITS = 6


def add_statistics(record: AttentionRecord, facts: dict[str, Any]) -> None:
    """Puts the statistics of every head into a page's facts: `null` where there is none."""
    for kind in record.kinds:
        found = record.statistics.get(kind) or head_statistics(record, kind)
        facts["kinds"][kind]["statistics"] = plain_statistics(found)


def head_statistics(record: AttentionRecord, kind: RecordKind) -> HeadStatistics:
    """Statistics of a record that came without: of weights that were given, there is no trace to ask.

    They are means over all queries by the definitions of `regard.tracing.Statistics`, of what a page knows of
    tokens.

    Args:
        record: The record.
        kind: Which of its kinds.

    Returns:
        By name, (layers, heads); NaN where a layer has fewer heads.

    Example:
        >>> from regard.views._records import (Side)
        >>> layer = LayerRecord.given(0, np.array([[[1, 0], [0.5, 0.5]]], np.float32))
        >>> side = Side(text="a b", tokens=(PageToken(text="a"), PageToken(text="b")))
        >>> found = head_statistics(
        ...     AttentionRecord(model="m", encoder=side, layers={"encoder": (layer,)}), "encoder"
        ... )
        >>> {name: float(values[0, 0]) for name, values in found.items() if name.startswith("to_")}
        {'to_first': 0.75, 'to_self': 0.75, 'to_previous': 0.5, 'to_next': 0.0}
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
    dtype = precision_of(layer, head)
    sums: dict[str, float] = {}
    for queries in _blocks(layer):
        rows = rows_in(dtype, layer, head, queries)
        weights = rows[:, : layer.keys]
        told = {
            "entropy": -np.einsum("ij,ij->i", rows, np.log(np.maximum(rows, np.finfo(dtype).tiny))),
            "largest": weights.max(axis=1),
            "to_first": weights[:, 0],
        }
        if special.any():
            told["to_special"] = weights[:, special].sum(axis=1)
        if sink:
            told["to_sink"] = rows[:, layer.keys :].sum(axis=1)
        if not cross:
            told |= _near(weights, queries)
        for name, values in told.items():
            sums[name] = sums.get(name, 0.0) + float(values.sum(dtype=np.float64))
    # The first query has no token before it, and the last none after it: they do not count there.
    ends = {"to_previous", "to_next"}
    counts = {name: layer.queries - (name in ends) for name in sums}
    return {name: total / counts[name] for name, total in sums.items() if counts[name]}


def _near(weights: npt.NDArray[Any], queries: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
    """How far from itself each query looks; what the text's ends do not have is 0."""
    keys = weights.shape[1]
    # |key - query|, a row for each of these queries, which follow each other.
    first, last = int(queries[0]), int(queries[-1])
    line = np.abs(np.arange(-last, keys - first)).astype(weights.dtype)
    away = np.lib.stride_tricks.sliding_window_view(line, keys)[::-1]
    total = weights.sum(axis=1)
    rows = np.arange(len(queries))

    def at(step: int) -> npt.NDArray[Any]:
        place = queries + step
        there = (place >= 0) & (place < keys)
        weight: npt.NDArray[Any] = np.where(there, weights[rows, np.clip(place, 0, keys - 1)], 0)
        return weight

    return {
        "distance": np.einsum("ij,ij->i", weights, away) / np.where(total > 0, total, 1),
        "to_self": at(0),
        "to_previous": at(-1),
        "to_next": at(1),
    }


def _blocks(layer: LayerRecord) -> Iterator[npt.NDArray[np.int64]]:
    step = max(1, _BLOCK // layer.keys)
    for start in range(0, layer.queries, step):
        yield np.arange(start, min(start + step, layer.queries))


def plain_statistics(found: HeadStatistics) -> dict[str, list[list[float | None]]]:
    """Statistics for JSON: in six digits, None where there is none."""
    return {name: _plain(values) for name, values in found.items()}


def _plain(values: npt.NDArray[np.float32]) -> list[list[float | None]]:
    return [
        [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in row] for row in values
    ]
