"""q, k and dense biases as 16-bit integers, and what that costs in the weights."""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from regard.views._changes import Changes
from regard.views._records import AttentionRecord, LayerRecord, RecordKind

Encoding = Literal["int16", "float32"]

# Above this difference in a weight a reader would see another number in the third decimal: then the page
# carries float32.
TOLERANCE = 1e-3

# Weights held at once while two sets are compared: the check needs the same memory for any text, and a block
# stays in the cache.
_BLOCK_WEIGHTS = 1 << 16

# Weights compared at most, in about a second: beyond it, which is a thousand tokens of a small model or 590 of
# 24 layers of 16 heads, evenly spaced queries of every head are taken: all would be quadratic in the text.
_MOST_WEIGHTS = 1 << 27

_LARGEST = 32767


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Values:
    """An array as a page carries it.

    Attributes:
        stored: int16 or float32.
        steps: float32, the value of one integer step; None where float32 is stored. q and k have one for each
            head and dimension, a dense bias one for each head and query.
    """

    stored: npt.NDArray[np.int16] | npt.NDArray[np.float32]
    steps: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PackedLayer:
    """A layer as a page carries it.

    Attributes:
        q, k: Its queries and keys.
        bias: Its dense bias; None where there is none: one by distance is short, and stays float32.
        weights: Its weights, where they are given; else None.
        shown: The layer that a reader of the packed numbers computes with, to the bit.
    """

    q: Values
    k: Values
    bias: Values | None
    shown: LayerRecord
    weights: Values | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Packed:
    """A record as a page carries it.

    Attributes:
        encoding: "int16", or "float32" where 16 bits would move a weight by more than `TOLERANCE`.
        layers: The layers of each kind.
        largest_difference: Over the weights that were compared: between float64 arithmetic on the packed
            numbers, which is what a browser does, and on the record's.
        every: One query in so many was compared, of every head; 1 is all of them.
        changes: The largest difference at each key, (heads, keys) of each layer; empty if nothing is rounded.
    """

    encoding: Encoding
    layers: dict[RecordKind, tuple[PackedLayer, ...]]
    largest_difference: float
    every: int
    changes: dict[RecordKind, tuple[npt.NDArray[np.float32], ...]] = field(default_factory=dict)


def pack(record: AttentionRecord) -> Packed:
    """Packs a record's q, k and dense biases, in 16 bits if that keeps every weight within `TOLERANCE`.

    Args:
        record: The record.

    Returns:
        The packed arrays, with the difference they make, measured.
    """
    every = _every(record)
    packed = _packed(record, rounded=True, every=every)
    return packed if packed.largest_difference <= TOLERANCE else _packed(record, rounded=False, every=every)


def _packed(record: AttentionRecord, *, rounded: bool, every: int) -> Packed:
    layers = {
        kind: tuple(_pack_layer(layer, rounded) for layer in record.layers[kind]) for kind in record.kinds
    }
    # What is stored as it was differs by nothing.
    changes = {
        kind: tuple(
            largest_changes(layer, packed.shown, every)[:, : layer.keys]
            for layer, packed in zip(record.layers[kind], layers[kind], strict=True)
        )
        for kind in (record.kinds if rounded else ())
    }
    return Packed(
        encoding="int16" if rounded else "float32",
        layers=layers,
        largest_difference=max(
            (float(each.max()) for of_kind in changes.values() for each in of_kind), default=0.0
        ),
        every=every,
        changes=changes,
    )


def _pack_layer(layer: LayerRecord, rounded: bool) -> PackedLayer:
    if layer.weights is not None:
        return _pack_weights(layer, layer.weights, rounded)
    dense = layer.bias is not None and layer.bias.ndim == 3
    bias = layer.bias if dense else None
    if not rounded:
        return PackedLayer(
            q=Values(stored=layer.q),
            k=Values(stored=layer.k),
            bias=None if bias is None else Values(stored=bias),
            shown=layer,
        )
    q, k = _values(layer.q), _values(layer.k)
    shown = replace(layer, q=_read(q), k=_read(k))
    if bias is None:
        return PackedLayer(q=q, k=k, bias=None, shown=shown)
    stored, read = rows_as_values(bias)
    return PackedLayer(q=q, k=k, bias=stored, shown=replace(shown, bias=read))


def _pack_weights(layer: LayerRecord, weights: npt.NDArray[np.float32], rounded: bool) -> PackedLayer:
    stored, read = rows_as_values(weights) if rounded else (Values(stored=weights), weights)
    empty = Values(stored=layer.q), Values(stored=layer.k)
    # Rounding may take a row's sum a little over what a record may hold: it is not checked again.
    shown = copy(layer)
    object.__setattr__(shown, "weights", read)
    return PackedLayer(q=empty[0], k=empty[1], bias=None, shown=shown, weights=stored)


def rows_as_values(array: npt.NDArray[np.float32]) -> tuple[Values, npt.NDArray[np.float32]]:
    """Rows of (heads, queries, keys) in 16 bits, and what is read of them."""
    # A step for each row: one for each key would say nothing where few rows are given.
    turned, steps = quantize(array.swapaxes(1, 2))
    read = np.ascontiguousarray(dequantize(turned, steps).swapaxes(1, 2))
    return Values(stored=np.ascontiguousarray(turned.swapaxes(1, 2)), steps=steps), read


def _values(array: npt.NDArray[np.float32]) -> Values:
    integers, steps = quantize(array)
    return Values(stored=integers, steps=steps)


def _read(values: Values) -> npt.NDArray[np.float32]:
    assert values.steps is not None
    return dequantize(values.stored.astype(np.int16, copy=False), values.steps)


def quantize(values: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.float32]]:
    """Rounds to 16-bit integers with one step per (head, dimension).

    A step of its own for each dimension matters: a few dimensions of a head are often ten times larger than
    the rest, and would otherwise take the others' precision.

    Args:
        values: float32 (heads, tokens, head_dim), finite.

    Returns:
        int16 of the same shape, and the steps, float32 (heads, head_dim).

    Example:
        >>> integers, steps = quantize(np.array([[[1.0, 0.0], [-2.0, 0.0]]], dtype=np.float32))
        >>> integers[0].tolist()
        [[16384, 0], [-32767, 0]]
        >>> bool(abs(integers[0, 0, 0] * steps[0, 0] - 1.0) < 1e-4)
        True
    """
    steps = (np.abs(values).max(axis=1) / np.float32(_LARGEST)).astype(np.float32)
    # Where a dimension is all zeros, or too small for a step to be representable, every integer is 0 or is
    # clipped; `pack` measures what that does to the weights.
    divisors = np.where(steps > 0, steps, np.float32(1))[:, None, :]
    integers = np.clip(np.rint(values / divisors), -_LARGEST, _LARGEST).astype(np.int16)
    return integers, steps


def dequantize(integers: npt.NDArray[np.int16], steps: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The float32 numbers that a reader of the integers computes with, to the bit.

    Args:
        integers: int16 (heads, tokens, head_dim).
        steps: float32 (heads, head_dim).

    Returns:
        float32 (heads, tokens, head_dim).
    """
    return integers.astype(np.float32) * steps[:, None, :]


def largest_changes(one: LayerRecord, other: LayerRecord, every: int = 1) -> npt.NDArray[np.float32]:
    """The largest difference between the weights of two layers, at each key of each head.

    Args:
        one: The layer.
        other: What is read of it: other q, k and dense bias, of the same sizes.
        every: Compare one query in so many, the last one always.

    Returns:
        (heads, keys), one more column where there are sinks: absolute differences, rounded up.
    """
    largest = np.zeros((one.heads, one.keys + (one.sinks is not None)), np.float32)
    for head in range(one.heads):
        changes = Changes(one, other, head)
        for queries in query_blocks(one, every):
            np.maximum(largest[head], changes.largest(queries), out=largest[head])
    return largest


def _every(record: AttentionRecord) -> int:
    count = sum(
        layer.heads * layer.queries * layer.keys for layers in record.layers.values() for layer in layers
    )
    return -(-count // _MOST_WEIGHTS)


def query_blocks(layer: LayerRecord, every: int) -> Iterator[npt.NDArray[np.int64]]:
    """Some of a layer's queries, one in so many, a block that can be held at once."""
    # From the last one back: a decoder's last queries see the most keys.
    queries = np.arange(layer.queries - 1, -1, -every)[::-1]
    step = max(16, _BLOCK_WEIGHTS // layer.keys)
    for start in range(0, len(queries), step):
        yield queries[start : start + step]
