"""What attention by blocks leaves of the matrices that it makes whole of a short text."""

import math

from regard.core import AttentionInputs, Matrices, matrices_of
from regard.models import Network
from regard.models.deberta import DisentangledBias
from regard.tracing.record import Keeping
from regard.tracing.run._probes import sample, short


def in_blocks(network: Network, lengths: tuple[int, ...]) -> float:
    """The part of the largest matrices that one block is, in the layer where that is most.

    The network as it is without edits, one of regard's own.
    """
    parts = [(0, 0.0)]
    begun = short(lengths)
    for inputs, queries, keys in sample(network, begun, Keeping(keep="qkv")).attention:
        there = _matrices(inputs, lengths[queries], lengths[keys])
        if there is not None and _matrices(inputs, begun[queries], begun[keys]) is not None:
            part = math.prod(there.largest) / there.whole
            parts.append((there.whole, part * _in_tiles(inputs.bias, there.largest[0])))
    return max(parts)[1]


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
