"""The values of a page: v of all heads where it fits, else of some, and what rounding costs in the results.

A head's result is the sum over the keys of weight x v. The page works it out from its own q, k and v.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError
from regard.views._blocks import Blocks
from regard.views._layer_record import LayerRecord, weight_rows
from regard.views._quantize import TOLERANCE, Encoding, Packed, as_it_is, by_dimension, some_heads
from regard.views._records import AttentionRecord, HeadName, RecordKind

Held = Literal["all", "some", "none"]

MOST_BYTES = 8_000_000
"""A page grows up to this size to hold values; more are held only when asked for."""

# Weights worked out at most to compare results: of a longer text, those of evenly spaced queries.
_MOST_WEIGHTS = 1 << 22


Chosen = dict[tuple[RecordKind, int], tuple[int, ...]]
"""Of each layer that has values, by (kind, layer), the heads of k and v whose values are held."""


def add_values(
    record: AttentionRecord,
    packed: Packed,
    facts: dict[str, Any],
    blocks: Blocks,
    *,
    wanted: Sequence[HeadName],
    room: int,
) -> Held:
    """Put the values into a page's facts and blocks: all while they fit in `room` bytes, else of the wanted
    heads.

    An InputError where a wanted head has no values.
    """
    chosen = _chosen(record, wanted)
    encodings: tuple[Encoding, ...] = ("float32",) if packed.encoding == "float32" else ("int16", "float32")
    for encoding in encodings:
        every = {each: tuple(range(len(v))) for each, v in _values(record)}
        held = every if _bytes(record, every, encoding) <= room else chosen
        store = by_dimension if encoding == "int16" else as_it_is
        packed_values = {each: some_heads(v, held[each], store) for each, v in _values(record)}
        read = {each: of_layer for each, (_, of_layer) in packed_values.items()}
        difference, rounding, sample = _compare(record, packed, held, read)
        # A reader sees both, each value and each result, to the third decimal.
        if max(difference, rounding) <= TOLERANCE:
            break
    for kind in record.kinds:
        for layer, its_facts in zip(record.layers[kind], facts["kinds"][kind]["layers"], strict=True):
            if layer.v is not None:
                heads, (stored, _) = held[kind, layer.layer], packed_values[kind, layer.layer]
                its_facts["v"] = {"dim": layer.v.shape[2], "heads": list(heads)}
                if heads:
                    its_facts["v"] |= blocks.add_values(f"{kind}-{layer.layer}-v", stored)
    state: Held = "none" if not any(held.values()) else "all" if held == every else "some"
    facts["values"] = {"held": state, "difference": difference, "every": sample}
    return state


def wanted_bytes(record: AttentionRecord, wanted: Sequence[HeadName]) -> int:
    """What the values of the wanted heads take in a page at most; an InputError where one has none."""
    return _bytes(record, _chosen(record, wanted), "float32")


def _values(record: AttentionRecord) -> Iterator[tuple[tuple[RecordKind, int], npt.NDArray[np.float32]]]:
    for kind in record.kinds:
        for layer in record.layers[kind]:
            if layer.v is not None:
                yield (kind, layer.layer), layer.v


def _chosen(record: AttentionRecord, wanted: Sequence[HeadName]) -> Chosen:
    chosen: dict[tuple[RecordKind, int], set[int]] = {each: set() for each, _ in _values(record)}
    for kind, number, head in wanted:
        if (kind, number) not in chosen:
            raise InputError(
                f"values must be of a layer that has some; got {kind} layer {number}, which has none; "
                "choose another"
            )
        [group] = (each.group for each in record.layers[kind] if each.layer == number)
        chosen[kind, number].add(head // group)
    return {each: tuple(sorted(heads)) for each, heads in chosen.items()}


def _bytes(record: AttentionRecord, held: Chosen, encoding: Encoding) -> int:
    """What the values take in the page: base64, with the element around it."""
    size = 600  # the policy, and what the facts say of it
    for each, v in _values(record):
        count = len(held[each]) * v.shape[1] * v.shape[2]
        plain = 4 * count if encoding == "float32" else 2 * count + 2 * len(held[each]) * v.shape[2]
        size += 4 * (plain // 3 + 2) + 300
    return size


def _compare(
    record: AttentionRecord,
    packed: Packed,
    held: Chosen,
    read: dict[tuple[RecordKind, int], npt.NDArray[np.float32]],
) -> tuple[float, float, int]:
    """The largest difference of a result and of a value, and one query in how many was compared.

    `read` is what a reader of the page has of v, zero for the heads that are not held.
    """
    heads = [
        (layer, each.shown, layer.v, read[kind, layer.layer], head)
        for kind in record.kinds
        for layer, each in zip(record.layers[kind], packed.layers[kind], strict=True)
        if layer.v is not None
        for head in each.heads
        if head // layer.group in held[kind, layer.layer]
    ]
    count = sum(layer.queries * layer.keys for layer, *_ in heads)
    every = max(1, -(-count // _MOST_WEIGHTS))
    difference = rounding = 0.0
    for layer, shown, v, read_v, head in heads:
        queries = np.arange(layer.queries - 1, -1, -every)[::-1]
        results = value_contexts(layer, v, head, queries) - value_contexts(shown, read_v, head, queries)
        difference = max(difference, float(np.abs(results).max()))
        of_head = head // layer.group
        rounding = max(rounding, float(np.abs(v[of_head] - read_v[of_head]).max()))
    return difference, rounding, every


def value_contexts(
    layer: LayerRecord, v: npt.NDArray[np.float32], head: int, queries: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """The results of some queries of a head: the sum over the keys of weight x v, in float64.

    Args:
        layer: The layer.
        v: float32 (kv_heads, keys, v_dim).
        head: The query head.
        queries: Which queries, (rows,).

    Returns:
        (rows, v_dim). A sink has no value, and no share in it.

    Example:
        >>> q, v = np.zeros((1, 2, 5), np.float32), np.array([[[1.0], [3.0]]], np.float32)
        >>> value_contexts(LayerRecord(layer=0, q=q, k=q, scale=1.0), v, 0, np.arange(1)).tolist()
        [[2.0]]
    """
    weights = weight_rows(layer, head, queries)[:, : layer.keys]
    result: npt.NDArray[np.float64] = weights @ v[head // layer.group].astype(np.float64)
    return result
