"""The weights of a record's layer, in float64: what a page is checked against."""

import numpy as np
import numpy.typing as npt

from regard.views._layer_record import LayerRecord

# Products per matrix multiplication. OpenBLAS spreads anything larger over threads that wait for each other
# by spinning: that gains little here on an idle machine, and on a busy one costs many times the work.
_BLOCK_PRODUCTS = 1 << 18


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
    if layer.weights is not None:
        given: npt.NDArray[np.float64] = layer.weights[head, queries].astype(np.float64)
        return given
    q, k = layer.q[head, queries].astype(np.float64), layer.k[head // layer.group].astype(np.float64)
    added = None if layer.scorer is None else layer.scorer.v
    weights = _products(q, k.T) if added is None else _added(q, k, added[head].astype(np.float64))
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
        sink = np.full((len(queries), 1), layer.sinks[head], np.float64)
        weights = np.concatenate((weights, sink), axis=1)
    largest = weights.max(axis=-1, keepdims=True)
    # A query that may attend to nothing: every weight is zero, and the sum below must not divide by it.
    weights -= np.where(np.isfinite(largest), largest, 0)
    np.exp(weights, out=weights)
    total = weights.sum(axis=-1, keepdims=True)
    weights /= np.where(total > 0, total, 1)
    return weights


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


def _added(
    q: npt.NDArray[np.float64], k: npt.NDArray[np.float64], v: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """v . tanh(q + k) of q (rows, dim) and k (keys, dim), row by row."""
    return np.stack([np.tanh(row + k) @ v for row in q])


def _products(q: npt.NDArray[np.float64], k: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """q (rows, dim) times k (dim, keys), on one thread."""
    rows, keys = len(q), k.shape[1]
    out = np.empty((rows, keys))
    step = max(1, _BLOCK_PRODUCTS // max(1, q.size))
    whole = keys - keys % step
    if whole:
        # One call multiplies all blocks.
        blocks = k[:, :whole].reshape(len(k), -1, step).transpose(1, 0, 2)
        np.matmul(q, blocks, out=out[:, :whole].reshape(rows, -1, step).transpose(1, 0, 2))
    np.matmul(q, k[:, whole:], out=out[:, whole:])
    return out
