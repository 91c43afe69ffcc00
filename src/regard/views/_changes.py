"""How far a page's rounded numbers move the weights.

The weights of rounded scores s + d are not worked out beside those of s: that would be twice the work, and
lose digits where the two are subtracted. With w = softmax(s), g = exp(d) - 1 and mean = the sum of w g,

    softmax(s + d) - softmax(s) = w (g - mean) / (1 + mean)

which keeps its digits for small d in float32, in which two sets of weights differ by their own last places.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from regard.views._layer_record import LayerRecord
from regard.views._weights import bias_rows, precision_of, products

_Floats = npt.NDArray[Any]

_SMALL = 1e-2  # changes of scores

# Where a score grows by this, no 16 bits will do: it need not overflow to say so.
_MOST_GROWTH = 40.0

# What float32's own last places may take from a change, of itself.
_MARGIN = 1.0002


class Changes:
    """The changes of a head's weights, where a reader of rounded numbers has other q, k and dense bias.

    Args:
        one: The layer.
        other: What is read of it: of the same sizes, with the same mask, sinks, scale and cap.
        head: The query head.
    """

    def __init__(self, one: LayerRecord, other: LayerRecord, head: int) -> None:
        self._one, self._other, self._head = one, other, head
        if one.weights is not None:
            return
        q, k = one.q[head], one.k[head // one.group]
        read_q, read_k = other.q[head], other.k[head // one.group]
        self._dtype = precision_of(one, head)
        q, k, read_q, read_k = (each.astype(self._dtype, copy=False) for each in (q, k, read_q, read_k))
        # read_q . read_k - q . k = (read_q - q) . read_k + q . (read_k - k), in one product.
        self._q, self._k = q * self._dtype(one.scale), np.ascontiguousarray(k.T)
        moved = np.concatenate(((read_q - q) * self._dtype(one.scale), self._q), axis=1)
        self._moved_q = moved
        self._moved_k = np.concatenate((read_k.T, (read_k - k).T))

    def largest(
        self, queries: npt.NDArray[np.int64], allowed: npt.NDArray[np.bool_] | None = None
    ) -> npt.NDArray[np.float32]:
        """The largest change at each key, and at the sink, among some queries.

        Args:
            queries: Which, (rows,).
            allowed: What the layer's mask says of them, where that is at hand already.

        Returns:
            float32 (keys,), one more where there are sinks; rounded up.
        """
        one, other, head = self._one, self._other, self._head
        if one.weights is not None:
            assert other.weights is not None
            given = np.abs(other.weights[head, queries] - one.weights[head, queries]).max(axis=0)
            return np.asarray(given * _MARGIN, np.float32)
        weights = products(self._q[queries], self._k)
        change = products(self._moved_q[queries], self._moved_k)
        if one.softcap is not None:
            _cap(weights, change, self._dtype(one.softcap))
        if one.bias is not None:
            bias = bias_rows(one, head, queries)
            weights += bias
            if other.bias is not one.bias:
                moved: _Floats = bias_rows(other, head, queries) - bias
                change += moved
        if one.mask is not None:
            if allowed is None:
                allowed = one.mask.rows(head, queries, one.keys)
            np.copyto(weights, -np.inf, where=~allowed)
            np.copyto(change, 0, where=~allowed)
        if one.sinks is not None:
            column = np.full((len(queries), 1), one.sinks[head], self._dtype)
            weights = np.concatenate((weights, column), axis=1)
            change = np.concatenate((change, np.zeros_like(column)), axis=1)
        return _of_scores(weights, change)


def _of_scores(scores: _Floats, change: _Floats) -> npt.NDArray[np.float32]:
    """The largest changes of the weights of each column; both arrays are written over."""
    largest = scores.max(axis=1, keepdims=True)
    scores -= np.where(np.isfinite(largest), largest, 0)
    weights = np.exp(scores, out=scores)
    total = weights.sum(axis=1, keepdims=True)
    if float(np.abs(change).max()) < _SMALL:
        growth = change * (1 / 6)  # exp(d) - 1 = d (1 + d (1/2 + d/6)) but for d^4
        growth += 0.5
        growth *= change
        growth += 1
        growth *= change
    else:
        growth = np.expm1(np.minimum(change, _MOST_GROWTH, out=change), out=change)
    # A query that may attend to nothing has weights of zero, however its scores change.
    mean = np.einsum("ij,ij->i", weights, growth)[:, None] / np.where(total > 0, total, 1)
    growth -= mean
    growth *= weights
    growth *= 1 / (np.where(total > 0, total, 1) * (1 + mean))
    return np.asarray(np.abs(growth, out=growth).max(axis=0) * _MARGIN, np.float32)


def _cap(scores: _Floats, change: _Floats, cap: Any) -> None:
    """Puts capped scores and their changes in the places of both, without a subtraction of two tanh."""
    scores /= cap
    np.tanh(scores, out=scores)
    change /= cap
    np.tanh(change, out=change)
    # tanh(a + d) = (t + u) / (1 + t u) of t = tanh(a), u = tanh(d); less t, it is u (1 - t t) / (1 + t u).
    change *= (1 - scores * scores) / (1 + scores * change)
    change *= cap
    scores *= cap
