"""q, k and dense biases as 16-bit integers, and what that costs in the weights."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from regard.views._layer_record import LayerRecord, weight_rows
from regard.views._records import AttentionRecord, HeldHeads, RecordKind

Encoding = Literal["int16", "float32"]

# Above this difference in a weight a reader would see another number in the third decimal: then the page
# carries float32.
TOLERANCE = 1e-3

# Weights held at once while two sets are compared: the check needs the same memory for any text, and a block
# stays in the cache.
_BLOCK_WEIGHTS = 1 << 16

# Weights compared at most, in a second or two: beyond it, which is 1300 tokens of a small model or 590 of
# 24 layers of 16 heads, evenly spaced queries of every head are taken: all would be quadratic in the text.
_MOST_WEIGHTS = 1 << 27

_LARGEST = 32767


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Values:
    """An array as a page carries it.

    The steps are the value of one integer, of whose bits a page holds the upper half: see `quantize`; None
    where float32 is stored. q and k have one for each head and dimension, a dense bias one for each head and
    query.
    """

    stored: npt.NDArray[np.int16] | npt.NDArray[np.float32]
    steps: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PackedLayer:
    """A layer as a page carries it."""

    q: Values
    k: Values
    bias: Values | None  # if dense; one by distance is short, and stays float32
    shown: LayerRecord  # what a reader of the packed numbers computes with, to the bit; zero in other heads
    heads: tuple[int, ...]  # the query heads, in order; k has those that they need, in order
    weights: Values | None = None  # where they are given


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


def pack(record: AttentionRecord, held: HeldHeads, encoding: Encoding) -> Packed:
    """Pack q, k and dense biases of some heads of a record, and measure the difference that it makes."""
    every = _every(record, held)
    # In float32 nothing changes, and nothing need be measured.
    rounded = encoding == "int16"
    layers = {
        kind: tuple(_pack_layer(layer, held.of_layer(kind, layer), rounded) for layer in record.layers[kind])
        for kind in record.kinds
    }
    # What is stored as it was differs by nothing.
    changes = {
        kind: tuple(
            largest_changes(layer, packed.shown, every, packed.heads)[:, : layer.keys]
            for layer, packed in zip(record.layers[kind], layers[kind], strict=True)
        )
        for kind in (record.kinds if rounded else ())
    }
    return Packed(
        encoding=encoding,
        layers=layers,
        largest_difference=max(
            (float(each.max()) for of_kind in changes.values() for each in of_kind), default=0.0
        ),
        every=every,
        changes=changes,
    )


def _pack_layer(layer: LayerRecord, heads: tuple[int, ...], rounded: bool) -> PackedLayer:
    # Given weights are packed row by row.
    if layer.weights is not None:
        weights, read = some_heads(layer.weights, heads, rows_as_values if rounded else as_it_is)
        shown = replace(layer, weights=read)
        empty = Values(stored=layer.q)
        return PackedLayer(q=empty, k=empty, bias=None, shown=shown, heads=heads, weights=weights)
    dense = layer.bias is not None and layer.bias.ndim == 3
    q, read_q = some_heads(layer.q, heads, by_dimension if rounded else as_it_is)
    k, read_k = some_heads(
        layer.k,
        # Key heads that these query heads need, each once.
        tuple(dict.fromkeys(head // layer.group for head in heads)),
        by_dimension if rounded else as_it_is,
    )
    shown = replace(layer, q=read_q, k=read_k)
    if layer.bias is None or not dense:
        return PackedLayer(q=q, k=k, bias=None, shown=shown, heads=heads)
    # One bias for all heads is stored once.
    of_bias = heads if len(layer.bias) > 1 else (0,)
    bias, read = some_heads(layer.bias, of_bias, rows_as_values if rounded else as_it_is)
    return PackedLayer(q=q, k=k, bias=bias, shown=replace(shown, bias=read), heads=heads)


_Stored = tuple[Values, npt.NDArray[np.float32]]


def some_heads(
    array: npt.NDArray[np.float32],
    heads: tuple[int, ...],
    store: Callable[[npt.NDArray[np.float32]], _Stored],
) -> _Stored:
    """Some heads of an array as they are stored, and what is read of them, with zeros for the others."""
    if heads == tuple(range(len(array))):
        return store(array)
    stored, read = store(array[list(heads)])
    # As long as the array: places stay what they are.
    whole = np.zeros_like(array)
    whole[list(heads)] = read
    return stored, whole


def as_it_is(array: npt.NDArray[np.float32]) -> _Stored:
    return Values(stored=array), array


def by_dimension(array: npt.NDArray[np.float32]) -> _Stored:
    integers, steps = quantize(array)
    return Values(stored=integers, steps=steps), dequantize(integers, steps)


def rows_as_values(array: npt.NDArray[np.float32]) -> tuple[Values, npt.NDArray[np.float32]]:
    """Rows of (heads, queries, keys) in 16 bits, and what is read of them."""
    # A step for each row: one for each key would say nothing where few rows are given.
    turned, steps = quantize(array.swapaxes(1, 2))
    read = np.ascontiguousarray(dequantize(turned, steps).swapaxes(1, 2))
    return Values(stored=np.ascontiguousarray(turned.swapaxes(1, 2)), steps=steps), read


def quantize(values: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.float32]]:
    """Round (heads, tokens, head_dim), finite, to int16 with one float32 step per (head, dimension).

    A step of its own for each dimension matters: a few dimensions of a head are often ten times larger than
    the rest, and would otherwise take the others' precision. Steps are rounded up to eight bits of precision,
    those of bfloat16: of a sentence they would else be a seventh of what q and k take.
    """
    # Then rounded up to 16 bits: a smaller step would clip the largest number.
    steps = (np.abs(values).max(axis=1) / np.float32(_LARGEST)).astype(np.float32)
    steps = ((steps.view(np.uint32) + 0xFFFF) & 0xFFFF0000).view(np.float32)
    # Where a dimension is all zeros, or too small for a step to be representable, every integer is 0 or is
    # clipped; `pack` measures what that does to the weights.
    divisors = np.where(steps > 0, steps, np.float32(1))[:, None, :]
    integers = np.clip(np.rint(values / divisors), -_LARGEST, _LARGEST).astype(np.int16)
    return integers, steps


def dequantize(integers: npt.NDArray[np.int16], steps: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The float32 (heads, tokens, head_dim) that a reader of the integers computes with, to the bit."""
    return integers.astype(np.float32) * steps[:, None, :]


def largest_changes(
    one: LayerRecord, other: LayerRecord, every: int = 1, heads: Iterable[int] | None = None
) -> npt.NDArray[np.float32]:
    """The largest difference between the weights of two layers of the same sizes, at each key of each head.

    One query in `every` is compared, the last one always. (heads, keys), one more column where there are
    sinks; 0 for other heads.
    """
    largest = np.zeros((one.heads, one.keys + (one.sinks is not None)), np.float32)
    for head in range(one.heads) if heads is None else heads:
        # In blocks, so that no matrix of all weights is held.
        for queries in query_blocks(one, every):
            apart = weight_rows(one, head, queries)
            apart -= weight_rows(other, head, queries)
            np.maximum(largest[head], np.abs(apart, out=apart).max(axis=0), out=largest[head])
    return largest


def _every(record: AttentionRecord, held: HeldHeads) -> int:
    count = sum(
        len(held.of_layer(kind, layer)) * layer.queries * layer.keys
        for kind, layers in record.layers.items()
        for layer in layers
    )
    return max(1, -(-count // _MOST_WEIGHTS))


def query_blocks(layer: LayerRecord, every: int) -> Iterator[npt.NDArray[np.int64]]:
    """Some of a layer's queries, evenly spaced, in blocks that can be held at once."""
    # From the last one back: a decoder's last queries see the most keys.
    queries = np.arange(layer.queries - 1, -1, -every)[::-1]
    step = max(16, _BLOCK_WEIGHTS // layer.keys)
    for start in range(0, len(queries), step):
        yield queries[start : start + step]
