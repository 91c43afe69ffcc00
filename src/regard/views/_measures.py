"""What a page can draw in the place of the weights: how a page carries these measures."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.views._blocks import Blocks, plain
from regard.views._layer_record import LayerRecord, weight_rows
from regard.views._quantize import TOLERANCE, Packed, Values, quantize, query_blocks, rows_as_values
from regard.views._records import AttentionRecord, MeasureRecord, RecordKind

_Floats = npt.NDArray[np.float32]

MOST_MEASURES = 24_000_000
"""What the matrices of measures may take in a page: a browser opens a file of this size at once."""


# Queries from which the value of a full line is estimated.
_SOME = 64


def matrix_bytes(matrices: int, queries: int, keys: int) -> int:
    """What so many matrices take in a page: 16 bits a number and a step for each row, in base64.

    Example:
        >>> matrix_bytes(6, 512, 512)
        4202496
    """
    return 4 * (-(-matrices * (2 * queries * keys + 2 * queries) // 3))


def add_matrices(record: AttentionRecord, facts: dict[str, Any], blocks: Blocks) -> dict[str, str]:
    """Put the measures that have matrices of their own into a page's facts; the reason for each that it
    lacks.
    """
    left = dict(record.left_out)
    for kind in record.kinds:
        facts["kinds"][kind]["measures"] = []
        for measure in record.measures.get(kind, ()):
            if measure.name != "norm":
                known, difference = _matrices(kind, measure, blocks)
                _put(facts, kind, measure, known, difference, left)
    return left


def add_norms(
    record: AttentionRecord, packed: Packed, facts: dict[str, Any], blocks: Blocks, left: dict[str, str]
) -> None:
    """Put the norms, which the page multiplies its weights by, before the other measures; adds to `left`."""
    for kind in record.kinds:
        for measure in record.measures.get(kind, ()):
            if measure.name == "norm":
                known, difference = _norms(record, packed, kind, measure, blocks)
                _put(facts, kind, measure, known, difference, left)
        facts["kinds"][kind]["measures"].sort(key=lambda known: known["name"] != "norm")
    # Arrays without a model have none of them.
    asked = bool(record.measures) or bool(left)
    facts["leftOut"] = [{"name": name, "reason": reason} for name, reason in left.items()] if asked else None


def norm_bytes(record: AttentionRecord) -> int:
    """What norms take in a page."""
    layers = [
        array
        for measures in record.measures.values()
        for measure in measures
        if measure.name == "norm"
        for array in measure.layers
    ]
    return sum(3 * array.size + 24 * len(array) + 300 for array in layers)


def _put(
    facts: dict[str, Any],
    kind: RecordKind,
    measure: MeasureRecord,
    known: list[dict[str, Any]],
    difference: float,
    left: dict[str, str],
) -> None:
    if difference > TOLERANCE:
        left[measure.name] = (
            f"its values are so large that the page's numbers would differ by {difference:.1e}."
        )
        return
    facts["kinds"][kind]["measures"].append(
        {"name": measure.name, "by": measure.by, "of": measure.of, "difference": difference, "layers": known}
    )


def _matrices(kind: RecordKind, measure: MeasureRecord, blocks: Blocks) -> tuple[list[dict[str, Any]], float]:
    known, difference = [], 0.0
    for number, array in enumerate(measure.layers):
        values, read = rows_as_values(array)
        rounding = float(np.abs(array - read).max())
        if rounding > TOLERANCE:
            values, rounding = Values(stored=array), 0.0
        difference = max(difference, rounding)
        most = np.abs(array).max(axis=(1, 2))
        known.append(_known(f"{kind}-{measure.name}-{number}", values, len(array), most, blocks))
    return known, difference


def _norms(
    record: AttentionRecord, packed: Packed, kind: RecordKind, measure: MeasureRecord, blocks: Blocks
) -> tuple[list[dict[str, Any]], float]:
    known, difference = [], 0.0
    of_kind = zip(record.layers[kind], packed.layers[kind], measure.layers, strict=True)
    for number, (layer, each, norms) in enumerate(of_kind):
        integers, steps = quantize(norms[:, :, None])
        read = (integers.astype(np.float32) * steps[:, None, :])[:, :, 0]
        # A weight is 1 at most, so this is the most that both roundings can do at a key.
        apart = np.abs(norms - read)
        if kind in packed.changes:
            apart = apart + packed.changes[kind][number] * np.maximum(norms, read)
        for head in each.heads:
            most = float(apart[head].max())
            if most > TOLERANCE:
                most = _apart(layer, each.shown, head, norms[head], read[head], packed.every)
            difference = max(difference, most)
        values, most_drawn = Values(stored=integers, steps=steps), largest_norms(each.shown, each.heads, read)
        known.append(_known(f"{kind}-norm-{number}", values, len(norms), most_drawn, blocks))
    return known, difference


def largest_norms(shown: LayerRecord, heads: Sequence[int], norms: _Floats) -> _Floats:
    """The largest weight times norm of each head, among some queries: how strongly lines are drawn."""
    queries = np.unique(np.linspace(0, shown.queries - 1, _SOME).round().astype(np.int64))
    found = np.zeros(len(norms), np.float32)
    for head in heads:
        rows = weight_rows(shown, head, queries)
        found[head] = (rows[:, : shown.keys] * norms[head]).max()
    return found


def _apart(
    layer: LayerRecord, shown: LayerRecord, head: int, norms: _Floats, read: _Floats, every: int
) -> float:
    largest = 0.0
    for queries in query_blocks(layer, every):
        wanted = weight_rows(layer, head, queries)[:, : layer.keys] * norms
        found = weight_rows(shown, head, queries)[:, : layer.keys] * read
        largest = max(largest, float(np.abs(wanted - found).max()))
    return largest


def _known(name: str, values: Values, heads: int, most: _Floats, blocks: Blocks) -> dict[str, Any]:
    return {
        "heads": heads,
        **blocks.add_values(name, values),
        # The value of a full line.
        "most": plain(most),
    }
