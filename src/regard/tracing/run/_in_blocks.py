"""What attention by blocks leaves of the matrices that it makes whole of a short text."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.core import AttentionInputs, Matrices, Window, matrices_of
from regard.models import Network
from regard.models.deberta import DisentangledBias
from regard.tracing.record import Keeping
from regard.tracing.run._probes import sample, short


@dataclass(frozen=True)
class InBlocks:
    """How much of N x N there is at a time in a pass of some length, of a network of regard's own.

    Args:
        largest: the part of a matrix that one block is, in the layer where that is most.
        shared: the part that is kept for the layers to come, of all that are.
        masks: bytes of masks that hide something only in texts as long as this.
    """

    largest: float
    shared: float
    masks: int

    def of(self, square: NDArray[np.float64], *, attends: NDArray[np.bool_]) -> NDArray[np.float64]:
        """What there is of matrices after each operation.

        Args:
            square: the bytes of all, if they were made whole.
            attends: where an attention layer is at work. What is there when it has ended is shared with
                other layers; the rest is of its block.
        """
        kept = square.copy()
        for place in range(len(kept) - 1, -1, -1):
            if attends[place]:
                kept[place] = kept[place + 1] if place + 1 < len(kept) else 0.0
        kept = np.minimum(kept, square)
        return self.shared * kept + self.largest * (square - kept)


def in_blocks(network: Network, lengths: tuple[int, ...]) -> InBlocks:
    """See `InBlocks`; the network as it is without edits."""
    largest = 0.0
    shared = whole = 0
    masks: dict[int, int] = {}
    begun = short(lengths)
    for inputs, queries, keys in sample(network, begun, Keeping(keep="qkv")).attention:
        there = _matrices(inputs, lengths[queries], lengths[keys])
        if there is None:
            continue
        size = math.prod(there.largest)
        if _matrices(inputs, begun[queries], begun[keys]) is None:
            mask = inputs.mask
            assert mask is not None, "of a bias there are matrices at every length"
            windows = any(isinstance(part, Window) for part in mask.parts())
            masks[id(mask)] = 4 * there.shared + (_OF_WINDOW if windows else _OF_CAUSAL) * size
        else:
            largest = max(largest, size / there.whole * _in_tiles(inputs.bias, there.largest[0]))
            shared += there.planes * there.shared
            whole += there.planes * there.whole
    return InBlocks(largest, shared / max(1, whole), sum(masks.values()))


# Bytes for a pair while its mask is made: an answer; of a window also its distance in int64, and two more.
_OF_CAUSAL, _OF_WINDOW = 1, 11


def _in_tiles(bias: object, rows: int) -> float:
    """How much smaller what a block takes is, in proportion, than what all of a short text takes.

    DeBERTa's bias is made by tiles of 64 positions. One tile is all of a short text, and its products have
    2 n - 1 distances for each of n positions: with the bias itself, three times its size. In a block of more
    rows they have rows + 63.
    """
    return (2 + 63 / rows) / 3 if isinstance(bias, DisentangledBias) and rows > 64 else 1.0


def _matrices(inputs: AttentionInputs, queries: int, keys: int) -> Matrices | None:
    """Of a text so long: a record whose one token stands for all takes no more memory."""
    q = inputs.q.expand(-1, -1, queries, -1)
    k, v = (each.expand(-1, -1, keys, -1) for each in (inputs.k, inputs.v))
    return matrices_of(inputs.changed(q=q, k=k, v=v))
