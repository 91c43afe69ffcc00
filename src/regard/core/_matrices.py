"""How much of its queries-by-keys matrices fused attention holds at a time."""

import math
from dataclasses import dataclass

from regard.core._fused import blocks_of, planes_of
from regard.core._inputs import AttentionInputs
from regard.core._shared import MOST_ENTRIES


@dataclass(frozen=True)
class Matrices:
    """Pairs of a query and a key for which there are scores, or entries of a mask or bias.

    Args:
        largest: queries and keys of the largest block; every block has gone before the next is made.
        shared: of the blocks that a mask or bias which is `shared` keeps for the layers to come.
        whole: all pairs.
        planes: matrices of so many pairs that are shared: one of a mask, one for each head of a bias.
    """

    largest: tuple[int, int]
    shared: int
    whole: int
    planes: int


def matrices_of(inputs: AttentionInputs) -> Matrices | None:
    """What `fused_attention` holds for a record where no gradient is wanted; None where it makes no matrix.

    Of the record's q, k and v nothing is read but the shapes.

    Example:
        >>> import torch
        >>> from regard.core import Causal, Window
        >>> q = torch.zeros(1, 1, 1, 1).expand(1, 12, 4096, 64)  # takes the memory of one number
        >>> matrices_of(AttentionInputs(q=q, k=q, v=q, mask=Causal())) is None
        True
        >>> matrices_of(AttentionInputs(q=q, k=q, v=q, mask=Window(left=64, right=64)))
        Matrices(largest=(129, 257), shared=1035072, whole=16777216, planes=1)
    """
    blocks = blocks_of(inputs)
    if not blocks:
        return None
    planes = planes_of(inputs)
    room, shared = MOST_ENTRIES // planes, 0
    sizes = [(len(rows), len(keys)) for rows, keys in blocks]
    for size in map(math.prod, sizes):
        if shared + size <= room:
            shared += size
    largest, whole = max(sizes, key=math.prod), inputs.q_len * inputs.k_len
    return Matrices(largest=largest, shared=shared, whole=whole, planes=planes)
