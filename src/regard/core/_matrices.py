"""How much of its queries-by-keys matrices fused attention holds at a time."""

import math
from dataclasses import dataclass

from regard.core._fused import blocks_of
from regard.core._inputs import AttentionInputs


@dataclass(frozen=True)
class Matrices:
    """Pairs of a query and a key for which there are scores, or entries of a mask or bias.

    Args:
        largest: queries and keys of the largest block; every block has gone before the next is made.
        whole: all pairs.
    """

    largest: tuple[int, int]
    whole: int


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
        Matrices(largest=(129, 257), whole=16777216)
    """
    blocks = blocks_of(inputs)
    if not blocks:
        return None
    largest = max(((len(rows), len(keys)) for rows, keys in blocks), key=math.prod)
    return Matrices(largest=largest, whole=inputs.q_len * inputs.k_len)
