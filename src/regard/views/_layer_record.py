"""One attention layer as the views are given it: q, k, scale, mask, bias, in plain arrays, checked.

And its weights in float64, which a page is checked against.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError

# What bfloat16 may make of a row's sum.
_ROUNDED = 5e-3


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MaskRecord:
    """Which queries may attend to which keys: where everything that is given allows it.

    Attributes:
        low, high: key - query lies from low to high, both included; None is no limit. Causal is high=0, a
            causal window of w keys low=1 - w, high=0.
        keys: bool (keys,), False where a key is padding.
        segments: Two integer arrays, (queries,) and (keys,): attention within a segment only.
        bits: bool (heads or 1, queries, keys), True = may attend: what nothing smaller says.
    """

    low: int | None = None
    high: int | None = None
    keys: npt.NDArray[np.bool_] | None = None
    segments: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None
    bits: npt.NDArray[np.bool_] | None = None

    def rows(self, head: int, queries: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.bool_]:
        """Which of `size` keys some queries of a head may attend to: bool (len(queries), size).

        Example:
            >>> MaskRecord(low=-1, high=0).rows(0, np.arange(3), 3).astype(int).tolist()
            [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
        """
        # Every condition takes keys away.
        allowed = np.ones((len(queries), size), dtype=bool)
        distance = np.arange(size)[None, :] - queries[:, None]
        if self.low is not None:
            allowed &= distance >= self.low
        if self.high is not None:
            allowed &= distance <= self.high
        if self.keys is not None:
            allowed &= self.keys
        if self.segments is not None:
            allowed &= self.segments[0][queries, None] == self.segments[1]
        if self.bits is not None:
            allowed &= self.bits[head if len(self.bits) > 1 else 0, queries]
        return allowed


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RotaryRecord:
    """How q and k of a layer are turned by their positions.

    Attributes:
        frequencies: float32 (pairs,), radians a position: at distance n, pair i is turned by n * frequency i.
        layout: Which entries are a pair: "half" is (i, i + pairs), "interleaved" is (2 i, 2 i + 1).
        amplitude: The factor of the turned q and k beside; 1 for none.
    """

    frequencies: npt.NDArray[np.float32]
    layout: str
    amplitude: float = 1.0


ScorerName = Literal["bilinear", "cosine", "additive"]
"""What makes the scores, where that is not the product of q and k."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ScorerRecord:
    """What makes a layer's scores of q and k.

    Attributes:
        name: "additive" is v . tanh(q + k). The others are products, q . k, of what a layer then has for q
            and k: q W and k of "bilinear", and vectors of length 1 of "cosine".
        v: float32 (heads, head_dim) of "additive", else None.
    """

    name: ScorerName
    v: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LayerRecord:
    """One attention layer.

    Attributes:
        layer: Its number in its stack, from 0: of cross-attention, some layers may be missing.
        q: float32 (heads, queries, head_dim), as they enter the kernel.
        k: float32 (kv_heads, keys, head_dim); kv_heads divides heads.
        scale: What the scores are multiplied by, `head_dim ** -0.5` for most models.
        scorer: What makes them; None for the product of q and k.
        softcap: The bound of the scaled scores, or None.
        mask: Who may attend to whom, or None.
        bias: float32, what is added to the scores: by distance, (heads or 1, queries + keys - 1), at
            key - query + queries - 1; or dense, (heads or 1, queries, keys).
        sinks: float32 (heads,), the score of one more column of the softmax, which has no value; or None.
        v: float32 (kv_heads, keys, v_dim), what the weights weigh; None where results are not to be shown.
        rotary: How q and k were turned by their positions; None for not at all, or not known.
        weights: float32 (heads, queries, keys), where they are given and not computed; then q and k have a
            head_dim of 0, and there is nothing else: see `LayerRecord.of_weights`.

    Raises:
        InputError: A number that is not finite; the message names the array.

    Example:
        >>> q, k = np.random.default_rng(0).standard_normal((2, 3, 7, 5), dtype=np.float32)
        >>> layer = LayerRecord(layer=0, q=q, k=k, scale=5**-0.5, mask=MaskRecord(high=0))
        >>> (layer.heads, layer.queries, layer.keys)
        (3, 7, 7)
    """

    layer: int
    q: npt.NDArray[np.float32]
    k: npt.NDArray[np.float32]
    scale: float
    scorer: ScorerRecord | None = None
    softcap: float | None = None
    mask: MaskRecord | None = None
    bias: npt.NDArray[np.float32] | None = None
    sinks: npt.NDArray[np.float32] | None = None
    v: npt.NDArray[np.float32] | None = None
    rotary: RotaryRecord | None = None
    weights: npt.NDArray[np.float32] | None = None

    @classmethod
    def of_weights(cls, layer: int, weights: npt.NDArray[np.float32]) -> "LayerRecord":
        """A layer of weights that regard did not compute.

        Args:
            layer: Its number.
            weights: float32 (heads, queries, keys), each at least 0; a row sums to 1 or less.

        Returns:
            The layer.

        Raises:
            InputError: Numbers that are no attention; the message says where.

        Example:
            >>> layer = LayerRecord.of_weights(0, np.full((2, 3, 5), 0.2, np.float32))
            >>> (layer.heads, layer.queries, layer.keys)
            (2, 3, 5)
        """
        # q and k have these sizes and no dimensions.
        heads, queries, keys = weights.shape
        empty = np.empty((heads, queries, 0), np.float32), np.empty((heads, keys, 0), np.float32)
        if (weights < 0).any():
            where = tuple(int(i) for i in np.argwhere(weights < 0)[0])
            raise InputError(
                f"weights must be numbers from 0 to 1; got {weights[where]:.4g} at (head, query, key) "
                f"{where} of layer {layer}; these may be scores: take the softmax over the keys first"
            )
        sums = weights.sum(axis=-1, dtype=np.float64)
        if sums.max() > 1 + _ROUNDED:
            where = tuple(int(i) for i in np.argwhere(sums > 1 + _ROUNDED)[0])
            raise InputError(
                f"weights must have rows that sum to 1 or less; got {sums[where]:.4g} at (head, query) "
                f"{where} of layer {layer}; the last axis must be the keys"
            )
        return cls(layer=layer, q=empty[0], k=empty[1], scale=1.0, weights=weights)

    def __post_init__(self) -> None:
        for name in ("q", "k", "bias", "sinks", "weights"):
            array = getattr(self, name)
            if array is not None:
                _check_finite(name, array)

    @property
    def heads(self) -> int:
        """Query heads."""
        return len(self.q)

    @property
    def group(self) -> int:
        """Query heads that share a head of k and v."""
        return self.heads // len(self.k)

    @property
    def queries(self) -> int:
        """Number of queries."""
        return len(self.q[0])

    @property
    def keys(self) -> int:
        """Number of keys; the sink is none of them."""
        return len(self.k[0])


def _check_finite(name: str, array: npt.NDArray[np.float32]) -> None:
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise InputError(
            f"{name} must be finite numbers; got {array[where]} at {where}; "
            "the model overflowed: run it in float32"
        )


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
        rows: npt.NDArray[np.float64] = layer.weights[head, queries].astype(np.float64)
        return rows
    # In float64, as a trace has its weights.
    q, k = layer.q[head, queries].astype(np.float64), layer.k[head // layer.group].astype(np.float64)
    added = None if layer.scorer is None else layer.scorer.v
    # Scale, cap, bias, mask, sink, softmax: the order of the forward pass.
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
    # Columns of a block.
    step = max(1, _BLOCK_PRODUCTS // max(1, q.size))
    whole = keys - keys % step
    if whole:
        # One call multiplies all blocks.
        blocks = k[:, :whole].reshape(len(k), -1, step).transpose(1, 0, 2)
        np.matmul(q, blocks, out=out[:, :whole].reshape(rows, -1, step).transpose(1, 0, 2))
    np.matmul(q, k[:, whole:], out=out[:, whole:])
    return out
