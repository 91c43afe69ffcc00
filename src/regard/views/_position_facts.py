"""What a page says of positions: the vectors that are added, and the angles by which q and k are turned.

A bias by distance is in the page already, with the layers that it belongs to.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from regard.views._blocks import Blocks
from regard.views._layer_record import RotaryRecord
from regard.views._quantize import TOLERANCE, dequantize, quantize
from regard.views._records import AttentionRecord, PositionsRecord

MOST_POSITIONS = 512
"""Rows of the matrix of added vectors that a page holds."""


def add_positions(record: AttentionRecord, facts: dict[str, Any], blocks: Blocks) -> None:
    """Puts what is known of positions into a page's facts and blocks."""
    for name, side in (("encoder", record.encoder), ("decoder", record.decoder)):
        if side is not None:
            facts["sides"][name]["positions"] = _positions(name, side.positions, blocks)
    for kind in record.kinds:
        for layer, its_facts in zip(record.layers[kind], facts["kinds"][kind]["layers"], strict=True):
            its_facts["rotary"] = _rotary(f"{kind}-{layer.layer}", layer.rotary, blocks)


def _rotary(name: str, rotary: RotaryRecord | None, blocks: Blocks) -> dict[str, Any] | None:
    if rotary is None:
        return None
    return {
        "frequencies": blocks.add(f"{name}-rotary", rotary.frequencies),
        "layout": rotary.layout,
        "amplitude": rotary.amplitude,
    }


def _positions(name: str, record: PositionsRecord | None, blocks: Blocks) -> dict[str, Any]:
    # The vectors in 16 bits where that shows the same numbers.
    if record is None or record.table is None:
        return {"said": None if record is None else record.said, "table": None}
    table = np.ascontiguousarray(record.table[:MOST_POSITIONS])
    integers, steps = quantize(table[None])
    rounded = _same(table, dequantize(integers, steps)[0])
    return {
        "said": record.said,
        "table": {
            "count": len(table),
            "dim": table.shape[1],
            "values": blocks.add(f"{name}-positions", integers if rounded else table),
            "steps": blocks.add(f"{name}-positions-steps", steps) if rounded else None,
        },
    }


def _same(table: npt.NDArray[np.float32], read: npt.NDArray[np.float32]) -> bool:
    """Whether entries, dot products and cosines stay what they are, to the third decimal."""
    one, other = table.astype(np.float64), read.astype(np.float64)
    apart = [np.abs(one - other).max(), np.abs(one @ one.T - other @ other.T).max()]
    lengths = [np.maximum(np.linalg.norm(each, axis=1), 1e-30) for each in (one, other)]
    if min(lengths[0].min(), lengths[1].min()) > 1e-6:
        one, other = one / lengths[0][:, None], other / lengths[1][:, None]
        apart.append(np.abs(one @ one.T - other @ other.T).max())
    return bool(max(apart) <= TOLERANCE / 2)
