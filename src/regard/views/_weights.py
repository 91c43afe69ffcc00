"""The weights of a record's layer, in float64: what a page is checked against; for means of them, faster."""

from typing import Any

import numpy as np
import numpy.typing as npt

from regard.views._layer_record import LayerRecord

# Products per matrix multiplication. OpenBLAS spreads anything larger over threads that wait for each other
# by spinning: that gains little here on an idle machine, and on a busy one costs many times the work.
_BLOCK_PRODUCTS = 1 << 18

# Scores that float32 has to some 3e-5.
_MOST_SCORE = 512.0

Precision = type[np.float32] | type[np.float64]


def weight_rows(layer: LayerRecord, head: int, queries: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The weights of some queries of a head, by the formula at the top of `_records`.

    Args:
        layer: The layer.
        head: The query head.
        queries: Which queries, (rows,).

    Returns:
        (rows, keys), and one more column, the sink's, where there are sinks.

    Example:
        >>> from regard.views._layer_record import MaskRecord
        >>> q = np.zeros((1, 2, 5), np.float32)
        >>> layer = LayerRecord(layer=0, q=q, k=q, scale=1.0, mask=MaskRecord(high=0))
        >>> weight_rows(layer, 0, np.arange(2)).tolist()
        [[1.0, 0.0], [0.5, 0.5]]
    """
    rows: npt.NDArray[np.float64] = rows_in(np.float64, layer, head, queries)
    return rows


def rows_in(
    dtype: Precision, layer: LayerRecord, head: int, queries: npt.NDArray[np.int64]
) -> npt.NDArray[Any]:
    """The same in another precision, for what is not shown weight by weight: see `precision_of`."""
    if layer.weights is not None:
        given: npt.NDArray[Any] = layer.weights[head, queries].astype(dtype)
        return given
    weights = products(layer.q[head, queries].astype(dtype), layer.k[head // layer.group].astype(dtype).T)
    weights *= layer.scale
    if layer.softcap is not None:
        weights /= layer.softcap
        np.tanh(weights, out=weights)
        weights *= layer.softcap
    if layer.bias is not None:
        weights += bias_rows(layer, head, queries)
    if layer.mask is not None:
        weights[~layer.mask.rows(head, queries, layer.keys)] = -np.inf
    if layer.sinks is not None:
        sink = np.full((len(queries), 1), layer.sinks[head], dtype)
        weights = np.concatenate((weights, sink), axis=1)
    largest = weights.max(axis=-1, keepdims=True)
    # A query that may attend to nothing: every weight is zero, and the sum below must not divide by it.
    weights -= np.where(np.isfinite(largest), largest, 0)
    np.exp(weights, out=weights)
    total = weights.sum(axis=-1, keepdims=True)
    weights /= np.where(total > 0, total, 1)
    return weights


def precision_of(layer: LayerRecord, head: int) -> Precision:
    """float32 where a head's scores are so small that it knows a weight to a ten-thousandth of itself."""
    if layer.weights is not None:
        return np.float32
    q, k = (
        np.einsum("ij,ij->i", each, each, dtype=np.float64).max()
        for each in (layer.q[head], layer.k[head // layer.group])
    )
    largest = float(np.sqrt(q * k)) * layer.scale if layer.softcap is None else layer.softcap
    if layer.bias is not None:
        largest += float(np.abs(layer.bias[head if len(layer.bias) > 1 else 0]).max())
    return np.float32 if largest < _MOST_SCORE else np.float64


def bias_rows(layer: LayerRecord, head: int, queries: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """What is added to the scores of some queries of a head, (rows, keys), in a layer that has a bias."""
    assert layer.bias is not None
    bias = layer.bias[head if len(layer.bias) > 1 else 0]
    if bias.ndim == 2:
        dense: npt.NDArray[np.float32] = bias[queries]
        return dense
    # Row i of a bias by distance is the line from queries - 1 - i on.
    rows = np.lib.stride_tricks.sliding_window_view(bias, layer.keys)
    picked: npt.NDArray[np.float32] = rows[layer.queries - 1 - queries]
    return picked


def products(q: npt.NDArray[Any], k: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """q (rows, dim) times k (dim, keys), in their type, on one thread."""
    rows, keys = len(q), k.shape[1]
    out = np.empty((rows, keys), q.dtype)
    step = max(1, _BLOCK_PRODUCTS // max(1, q.size))
    whole = keys - keys % step
    if whole:
        # One call multiplies all blocks.
        blocks = k[:, :whole].reshape(len(k), -1, step).transpose(1, 0, 2)
        np.matmul(q, blocks, out=out[:, :whole].reshape(rows, -1, step).transpose(1, 0, 2))
    np.matmul(q, k[:, whole:], out=out[:, whole:])
    return out
