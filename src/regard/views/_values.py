"""The values of a page: v of all heads where it fits, else of some, and what rounding costs in the results.

A head's result is the sum over the keys of weight x v. The page works it out from its own q, k and v.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError
from regard.views._blocks import Blocks
from regard.views._layer_record import LayerRecord
from regard.views._quantize import TOLERANCE, Encoding, Packed, Values, dequantize, quantize
from regard.views._records import AttentionRecord, HeadName, RecordKind
from regard.views._weights import weight_rows

Held = Literal["all", "some", "none"]

MOST_BYTES = 8_000_000
"""A page grows up to this size to hold values; more are held only when asked for."""

# Weights worked out at most to compare results: of a longer text, those of evenly spaced queries.
_MOST_WEIGHTS = 1 << 22


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Layer:
    """A layer whose values are packed.

    `queried` are the query heads that the page holds; `heads` those of k and v whose values are, in the order
    of `values`; `read` is what a reader of these has, (kv_heads, keys, v_dim), zero for the other heads.
    """

    facts: dict[str, Any]
    name: str
    record: LayerRecord
    shown: LayerRecord
    queried: tuple[int, ...]
    read: npt.NDArray[np.float32]
    heads: tuple[int, ...]
    values: Values | None


def add_values(
    record: AttentionRecord,
    packed: Packed,
    facts: dict[str, Any],
    blocks: Blocks,
    *,
    wanted: Sequence[HeadName],
    room: int,
) -> Held:
    """Puts the values into a page's facts and blocks: all while they fit, otherwise of the wanted heads.

    Args:
        record: What is shown.
        packed: Its q and k, as the page carries them.
        facts, blocks: What `facts_of` made of them; they are added to.
        wanted: Heads whose values are held in any case.
        room: Bytes that all values may take.

    Returns:
        Which heads' values the page holds.

    Raises:
        InputError: A wanted head that is not there, or has no values.
    """
    chosen = _chosen(record, wanted)
    encodings: tuple[Encoding, ...] = ("float32",) if packed.encoding == "float32" else ("int16", "float32")
    for encoding in encodings:
        every = {each: tuple(range(len(v))) for each, v in _values(record)}
        held = every if _bytes(record, every, encoding) <= room else chosen
        layers = list(_layers(record, packed, facts, held, encoding))
        difference, rounding, sample = _compare(layers)
        # A reader sees both, each value and each result, to the third decimal.
        if max(difference, rounding) <= TOLERANCE:
            break
    for layer in layers:
        layer.facts["v"] = _facts(layer, blocks)
    state: Held = "none" if not any(held.values()) else "all" if held == every else "some"
    facts["values"] = {"held": state, "difference": difference, "every": sample}
    return state


def wanted_bytes(record: AttentionRecord, wanted: Sequence[HeadName]) -> int:
    """What the values of the wanted heads take in a page at most.

    Raises:
        InputError: A wanted head that is not there, or has no values.
    """
    return _bytes(record, _chosen(record, wanted), "float32")


def _values(record: AttentionRecord) -> Iterator[tuple[tuple[RecordKind, int], npt.NDArray[np.float32]]]:
    for kind in record.kinds:
        for layer in record.layers[kind]:
            if layer.v is not None:
                yield (kind, layer.layer), layer.v


def _chosen(
    record: AttentionRecord, wanted: Sequence[HeadName]
) -> dict[tuple[RecordKind, int], tuple[int, ...]]:
    """The heads of k and v that are wanted, of each layer that has values."""
    chosen: dict[tuple[RecordKind, int], set[int]] = {each: set() for each, _ in _values(record)}
    for kind, number, head in wanted:
        layers = [each for each in record.layers.get(kind, ()) if each.layer == number]
        if not layers or not 0 <= head < layers[0].heads:
            raise InputError(
                f"values: wanted heads of the model, got head {head} of {kind} layer {number}; "
                "layers and heads count from 0"
            )
        if (kind, number) not in chosen:
            raise InputError(
                f"values: wanted a layer that has some, got {kind} layer {number}, which has none; "
                "choose another"
            )
        chosen[kind, number].add(head // layers[0].group)
    return {each: tuple(sorted(heads)) for each, heads in chosen.items()}


def _bytes(
    record: AttentionRecord, held: dict[tuple[RecordKind, int], tuple[int, ...]], encoding: Encoding
) -> int:
    """What the values take in the page: base64, with the element around it."""
    size = 600  # the policy, and what the facts say of it
    for each, v in _values(record):
        count = len(held[each]) * v.shape[1] * v.shape[2]
        plain = 4 * count if encoding == "float32" else 2 * count + 4 * len(held[each]) * v.shape[2]
        size += 4 * (plain // 3 + 2) + 300
    return size


def _layers(
    record: AttentionRecord,
    packed: Packed,
    facts: dict[str, Any],
    held: dict[tuple[RecordKind, int], tuple[int, ...]],
    encoding: Encoding,
) -> Iterator[_Layer]:
    for kind in record.kinds:
        of_kind = zip(record.layers[kind], packed.layers[kind], facts["kinds"][kind]["layers"], strict=True)
        for layer, each, its_facts in of_kind:
            if layer.v is None:
                continue
            heads = held[kind, layer.layer]
            picked = np.ascontiguousarray(layer.v[list(heads)])
            values, read = Values(stored=picked), picked
            if encoding == "int16" and heads:
                integers, steps = quantize(picked)
                values, read = Values(stored=integers, steps=steps), dequantize(integers, steps)
            whole = np.zeros_like(layer.v)
            whole[list(heads)] = read
            yield _Layer(
                facts=its_facts,
                name=f"{kind}-{layer.layer}-v",
                record=layer,
                shown=each.shown,
                queried=each.heads,
                read=whole,
                heads=heads,
                values=values if heads else None,
            )


def _facts(layer: _Layer, blocks: Blocks) -> dict[str, Any]:
    v = layer.record.v
    assert v is not None
    known: dict[str, Any] = {"dim": v.shape[2], "heads": list(layer.heads)}
    if layer.values is None:
        return known
    steps = layer.values.steps
    return known | {
        "values": blocks.add(layer.name, layer.values.stored),
        "steps": None if steps is None else blocks.add(f"{layer.name}-steps", steps),
    }


def _compare(layers: Sequence[_Layer]) -> tuple[float, float, int]:
    """The largest difference of a result and of a value, and one query in how many was compared."""
    pairs = [(each, head) for each in layers for head in each.queried if _holds(each, head)]
    count = sum(each.record.queries * each.record.keys for each, _ in pairs)
    every = max(1, -(-count // _MOST_WEIGHTS))
    difference = rounding = 0.0
    for each, head in pairs:
        queries = np.arange(each.record.queries - 1, -1, -every)[::-1]
        assert each.record.v is not None
        results = value_contexts(each.record, each.record.v, head, queries)
        results -= value_contexts(each.shown, each.read, head, queries)
        difference = max(difference, float(np.abs(results).max()))
        of_values = each.record.v[head // each.record.group] - each.read[head // each.record.group]
        rounding = max(rounding, float(np.abs(of_values).max()))
    return difference, rounding, every


def _holds(layer: _Layer, head: int) -> bool:
    return head // layer.record.group in layer.heads


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
