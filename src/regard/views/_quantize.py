"""q and k as 16-bit integers, and what that costs in the weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from regard.views._records import AttentionRecord

Encoding = Literal["int16", "float32"]

# Above this difference in a weight a reader would see another number in the third decimal: then the page
# carries float32.
TOLERANCE = 1e-3

# Weights held at once while two sets are compared: the check needs the same memory for any text, and a block
# stays in the cache.
_BLOCK_WEIGHTS = 1 << 16

# Products per matrix multiplication. OpenBLAS spreads anything larger over threads that wait for each other
# by spinning: that gains little here on an idle machine, and on a busy one costs many times the work.
_BLOCK_PRODUCTS = 1 << 18

_LARGEST = 32767


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Packed:
    """q and k as a page carries them.

    Attributes:
        encoding: "int16", or "float32" where 16 bits would move a weight by more than `TOLERANCE`.
        q: int16 or float32 (layers, heads, tokens, head_dim).
        k: int16 or float32 (layers, kv_heads, tokens, head_dim).
        q_steps: float32 (layers, heads, head_dim): the value of one integer step; ones for float32.
        k_steps: float32 (layers, kv_heads, head_dim).
        largest_difference: Over every weight of every head: between float64 arithmetic on the packed
            numbers, which is what a browser does, and on the record's.
    """

    encoding: Encoding
    q: npt.NDArray[np.int16] | npt.NDArray[np.float32]
    k: npt.NDArray[np.int16] | npt.NDArray[np.float32]
    q_steps: npt.NDArray[np.float32]
    k_steps: npt.NDArray[np.float32]
    largest_difference: float


def pack(record: AttentionRecord) -> Packed:
    """Packs a record's q and k, in 16 bits if that keeps every weight within `TOLERANCE`.

    Args:
        record: The record.

    Returns:
        The packed arrays, with the difference they make, measured on every weight.
    """
    q, q_steps = quantize(record.q)
    k, k_steps = quantize(record.k)
    difference = largest_difference(record, dequantize(q, q_steps), dequantize(k, k_steps))
    if difference <= TOLERANCE:
        return Packed(
            encoding="int16", q=q, k=k, q_steps=q_steps, k_steps=k_steps, largest_difference=difference
        )
    return Packed(
        encoding="float32",
        q=record.q,
        k=record.k,
        q_steps=np.ones_like(q_steps),
        k_steps=np.ones_like(k_steps),
        largest_difference=largest_difference(record, record.q, record.k),
    )


def quantize(values: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.float32]]:
    """Rounds to 16-bit integers with one step per (layer, head, dimension).

    A step of its own for each dimension matters: a few dimensions of a head are often ten times larger than
    the rest, and would otherwise take the others' precision.

    Args:
        values: float32 (layers, heads, tokens, head_dim), finite.

    Returns:
        int16 of the same shape, and the steps, float32 (layers, heads, head_dim).

    Example:
        >>> integers, steps = quantize(np.array([[[[1.0, 0.0], [-2.0, 0.0]]]], dtype=np.float32))
        >>> integers[0, 0].tolist()
        [[16384, 0], [-32767, 0]]
        >>> bool(abs(integers[0, 0, 0, 0] * steps[0, 0, 0] - 1.0) < 1e-4)
        True
    """
    steps = (np.abs(values).max(axis=2) / np.float32(_LARGEST)).astype(np.float32)
    # Where a dimension is all zeros, or too small for a step to be representable, every integer is 0 or is
    # clipped; `pack` measures what that does to the weights.
    divisors = np.where(steps > 0, steps, np.float32(1))[:, :, None, :]
    integers = np.clip(np.rint(values / divisors), -_LARGEST, _LARGEST).astype(np.int16)
    return integers, steps


def dequantize(integers: npt.NDArray[np.int16], steps: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The float32 numbers that a reader of the integers computes with, to the bit.

    Args:
        integers: int16 (layers, heads, tokens, head_dim).
        steps: float32 (layers, heads, head_dim).

    Returns:
        float32 (layers, heads, tokens, head_dim).
    """
    return integers.astype(np.float32) * steps[:, :, None, :]


def largest_difference(
    record: AttentionRecord, q: npt.NDArray[np.float32], k: npt.NDArray[np.float32]
) -> float:
    """The largest difference between two sets of weights, over all of them.

    Args:
        record: One set of weights.
        q: float32, shaped as `record.q`; the other set. Both are computed in float64.
        k: float32, shaped as `record.k`.

    Returns:
        The largest absolute difference of two weights.
    """
    largest = 0.0
    for layer, head, kv_head, rows in _blocks(record):
        exact = _weights(record.q[layer, head, rows], record.k[layer, kv_head], record.scale)
        shown = _weights(q[layer, head, rows], k[layer, kv_head], record.scale)
        shown -= exact
        largest = max(largest, float(np.abs(shown, out=shown).max()))
    return largest


def _blocks(record: AttentionRecord) -> Iterator[tuple[int, int, int, slice]]:
    layers, heads, queries, _ = record.q.shape
    kv_heads, keys = record.k.shape[1:3]
    step = max(16, _BLOCK_WEIGHTS // keys)
    for layer in range(layers):
        for head in range(heads):
            for start in range(0, queries, step):
                yield layer, head, head // (heads // kv_heads), slice(start, start + step)


def _weights(q: npt.NDArray[np.float32], k: npt.NDArray[np.float32], scale: float) -> npt.NDArray[np.float64]:
    q, k = q.astype(np.float64), k.astype(np.float64)
    weights = np.empty((len(q), len(k)))
    step = max(1, _BLOCK_PRODUCTS // q.size)
    for start in range(0, len(k), step):
        np.matmul(q, k[start : start + step].T, out=weights[:, start : start + step])
    weights *= scale
    weights -= weights.max(axis=-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights
