"""Scores and weights of any rows, computed later from the record alone, in float64."""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.core._attention import (
    AttentionInputs,
    Positions,
    as_tensor,
    at_least_float32,
    check_positions,
    score_rows,
    silence_padding,
    softmax_or_zero,
    take,
)


def attention_scores(
    inputs: AttentionInputs, queries: Positions | None = None, keys: Positions | None = None
) -> Tensor:
    """The softmax's exact argument (scaled, capped, biased, masked) for some rows and keys.

    Args:
        inputs: the record.
        queries, keys: a range or int64 positions (n,); by default all.

    Returns:
        (batch, heads, rows, columns), computed in float64, given in float32 or q's wider type; -inf where
        the mask forbids.
    """
    columns = check_positions("keys", keys, inputs.k_len)
    return _exact_rows(inputs, queries, columns, len(columns), lambda scores: scores)


def attention_weights(
    inputs: AttentionInputs, queries: Positions | None = None, keys: Positions | None = None
) -> Tensor:
    """The attention weights of some rows and keys, computed from the record alone.

    Each row is normalised over all keys, then the asked keys are picked: a part of the matrix is exactly
    that part. Memory is that of the result, and of a few rows over all keys.

    Args:
        inputs: the record.
        queries, keys: a range or int64 positions (n,); by default all.

    Returns:
        (batch, heads, rows, columns), computed in float64, given in float32 or q's wider type; before
        dropout.

    Example:
        >>> import torch
        >>> inputs = AttentionInputs(q=torch.zeros(1, 1, 4, 2), k=torch.zeros(1, 1, 5, 2),
        ...                          v=torch.zeros(1, 1, 5, 2))
        >>> attention_weights(inputs, queries=torch.tensor([3]), keys=torch.tensor([0, 1]))
        tensor([[[[0.2000, 0.2000]]]])
    """
    picked = check_positions("keys", keys, inputs.k_len)
    # Without mask and bias no row can be empty, and looking for one costs as much as the softmax.
    plain = inputs.mask is None and inputs.bias is None

    def normalised(scores: Tensor) -> Tensor:
        weights = torch.softmax(scores, dim=-1) if plain else softmax_or_zero(scores)
        return take(weights, picked, dim=3)

    return _exact_rows(inputs, queries, range(inputs.k_len), len(picked), normalised)


# Scores of one block in float64: 2^18 are 2 MB, which a core's own cache holds through scaling and softmax.
_BLOCK_ENTRIES = 2**18


def _exact_rows(
    inputs: AttentionInputs,
    queries: Positions | None,
    columns: Positions,
    width: int,
    finish: Callable[[Tensor], Tensor],
) -> Tensor:
    """What `finish` makes of the masked scores, `width` numbers a row, a block of rows at a time.

    In float64: a score of 80 is known to 4e-6 in float32, and a weight is as wrong as its score.
    """
    rows = check_positions("queries", queries, inputs.q_len)
    inputs = silence_padding(inputs)
    batch, heads, _, _ = inputs.q.shape
    device = inputs.q.device
    k, at_columns = take(inputs.k, columns, dim=2).double(), as_tensor(columns, device)
    size = max(1, _BLOCK_ENTRIES // (batch * heads * max(1, len(at_columns))))
    result = inputs.q.new_empty((batch, heads, len(rows), width), dtype=at_least_float32(inputs.q))
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        q, at_rows = take(inputs.q, block, dim=2).double(), as_tensor(block, device)
        # Into its place at once: a part of a block's rows, kept, would keep the whole block.
        result[:, :, start : start + len(block)] = finish(score_rows(inputs, q, k, at_rows, at_columns)[2])
    return result
