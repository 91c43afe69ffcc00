"""Which heads a page holds: their q and k, from which it works out every weight."""

from collections.abc import Mapping
from dataclasses import dataclass

from regard.views._layer_record import LayerRecord
from regard.views._records import RecordKind

HeadName = tuple[RecordKind, int, int]
"""A head: kind, layer, head."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldHeads:
    """The heads that a page holds.

    Attributes:
        heads: Of each (kind, layer) the numbers of its heads, in order.
        every: Whether these are all.
    """

    heads: Mapping[tuple[RecordKind, int], tuple[int, ...]]
    every: bool

    def of(self, kind: RecordKind, layer: LayerRecord) -> tuple[int, ...]:
        """Those of a layer."""
        return self.heads.get((kind, layer.layer), ())
