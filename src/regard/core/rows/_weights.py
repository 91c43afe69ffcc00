"""Scores and weights of any rows, computed later from the record alone, in float64."""

import math
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor

from regard.core._attention import at_least_float32, score_rows, softmax_or_zero, without_autocast
from regard.core._inputs import AttentionInputs, silence_keys, silence_padding
from regard.core.tensors import Positions, as_tensor, check_positions, take


@without_autocast
def attention_scores(
    inputs: AttentionInputs, queries: Positions | None = None, keys: Positions | None = None
) -> Tensor:
    """The softmax's exact argument (scaled, capped, biased, masked) for some rows and keys.

    Args:
        inputs: the record.
        queries, keys: a range or int64 positions (n,); by default all. Where the record has sinks, the
            number of keys is the position of the sink.

    Returns:
        (batch, heads, rows, columns), computed in float64, given in float32 or q's wider type; -inf where
        the mask forbids.
    """
    # Columns may name the sink too, as the one after the last key.
    rows = check_positions("queries", queries, inputs.q_len)
    picked = check_positions("keys", keys, inputs.num_columns)
    result = _room(inputs, len(rows), len(picked))
    # With a sink its column is computed in any case, and picked afterwards.
    columns = picked if inputs.sinks is None else range(inputs.k_len)
    for place, scores in score_blocks(inputs, rows, columns):
        result[:, :, place] = scores if inputs.sinks is None else take(scores, picked, dim=3)
    return result


@without_autocast
def attention_weights(
    inputs: AttentionInputs, queries: Positions | None = None, keys: Positions | None = None
) -> Tensor:
    """The attention weights of some rows and keys, computed from the record alone.

    Each row is normalised over all keys, then the asked keys are picked: a part of the matrix is exactly
    that part. Memory is that of the result, and of a few rows over all keys.

    Args:
        inputs: the record.
        queries, keys: a range or int64 positions (n,); by default all. Where the record has sinks, the
            number of keys is the position of the sink.

    Returns:
        (batch, heads, rows, columns), computed in float64, given in float32 or q's wider type; before
        dropout. Of a record whose weights were written: these; of one with a kernel: its own.

    Raises:
        InputError: positions that are not there, or a kernel that has no weights.

    Example:
        >>> from regard.core import AttentionInputs, attention_weights
        >>> import torch
        >>> inputs = AttentionInputs(q=torch.zeros(1, 1, 4, 2), k=torch.zeros(1, 1, 5, 2),
        ...                          v=torch.zeros(1, 1, 5, 2))
        >>> attention_weights(inputs, queries=torch.tensor([3]), keys=torch.tensor([0, 1]))
        tensor([[[[0.2000, 0.2000]]]])
    """
    rows = check_positions("queries", queries, inputs.q_len)
    picked = check_positions("keys", keys, inputs.num_columns)
    result = _room(inputs, len(rows), len(picked))
    for place, weights in weight_blocks(inputs, rows):
        # Into its place at once: a part of a block's rows, kept, would keep the whole block.
        result[:, :, place] = take(weights, picked, dim=3)
    return result


def weight_blocks(inputs: AttentionInputs, rows: Positions) -> Iterator[tuple[slice, Tensor]]:
    """Weights of some rows, a block at a time with its place among them.

    Each (batch, heads, rows of the block, columns), in float64; with sinks, the last column is the sink's.
    """
    if inputs.weights is not None and inputs.written is None:
        # All of them are there already: one block.
        yield slice(0, len(rows)), take(inputs.weights, rows, dim=2).double()
        return
    if inputs.weights is not None:
        # Some heads were written: the others come from q and k.
        for place, weights in weight_blocks(inputs.unwritten(), rows):
            weights[:, list(inputs.written_heads)] = take(inputs.weights, rows[place], dim=2).double()
            yield place, weights
        return
    if inputs.kernel is not None:
        # A kernel gives its weights row by row.
        size = _rows_of(inputs, inputs.k_len)
        for start in range(0, len(rows), size):
            block = rows[start : start + size]
            yield (
                slice(start, start + len(block)),
                inputs.kernel.weights(inputs, as_tensor(block, inputs.q.device)),
            )
        return
    # Without mask and bias no row can be empty, and looking for one costs as much as the softmax.
    plain = inputs.mask is None and inputs.bias is None
    for place, scores in score_blocks(inputs, rows, range(inputs.k_len)):
        yield place, torch.softmax(scores, dim=-1) if plain else softmax_or_zero(scores)


# Scores of one block in float64: 2^18 are 2 MB, which a core's own cache holds through scaling and softmax.
_BLOCK_ENTRIES = 2**18


def score_blocks(
    inputs: AttentionInputs, rows: Positions, columns: Positions
) -> Iterator[tuple[slice, Tensor]]:
    """Masked scores of some rows over some keys, and over the sink, a block of rows at a time.

    In float64: a score of 80 is known to 4e-6 in float32, and a weight is as wrong as its score.
    """
    # float64 from here on: these numbers check the others.
    silenced = silence_keys(inputs.mask, inputs.k)
    device = inputs.q.device
    k, at_columns = take(silenced, columns, dim=2).double(), as_tensor(columns, device)
    size = _rows_of(inputs, len(at_columns))
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        q, at_rows = take(inputs.q, block, dim=2).double(), as_tensor(block, device)
        yield slice(start, start + len(block)), score_rows(inputs, q, k, at_rows, at_columns)[2]


def _rows_of(inputs: AttentionInputs, columns: int) -> int:
    return max(1, _BLOCK_ENTRIES // (inputs.q.shape[0] * inputs.num_heads * max(1, columns)))


def _room(inputs: AttentionInputs, rows: int, columns: int) -> Tensor:
    batch, heads, _, _ = inputs.q.shape
    return inputs.q.new_empty((batch, heads, rows, columns), dtype=at_least_float32(inputs.q))


class AttentionErrors(NamedTuple):
    """How far the identities are from holding; infinite where something is not a finite number.

    Args:
        row_sum: the largest |sum of a row's weights - 1|, the sink's column among them; a row that may attend
            to nothing, all of whose weights are zero, does not count, nor do weights that an edit wrote.
        context: the largest |weights v - context|; None where no context was given.
        softmax: the largest |weight - exp(score - logsumexp(row))|; 0 where an edit or a kernel made the
            weights. Both are of the same scores, so that this says nothing of the scale or the mask, as
            `context` does.
    """

    row_sum: float
    context: float | None
    softmax: float


@without_autocast
def attention_errors(inputs: AttentionInputs, context: Tensor | None) -> AttentionErrors:
    """How far a recorded context is from what its record gives, in float64, a block of rows at a time.

    Args:
        inputs: the record, without dropout: which weights it dropped is not an identity.
        context: (batch, heads, queries, v_dim), as the model computed it, in any floating type; None where
            it is not known, and then no values are read.

    Example:
        >>> import torch
        >>> from regard.core import fused_attention
        >>> inputs = AttentionInputs(q=torch.randn(1, 2, 7, 5), k=torch.randn(1, 2, 7, 5),
        ...                          v=torch.randn(1, 2, 7, 3))
        >>> errors = attention_errors(inputs, fused_attention(inputs))
        >>> errors.row_sum < 1e-12, errors.context < 1e-5
        (True, True)
        >>> attention_errors(inputs, torch.zeros(1, 2, 7, 3)).context > 1e-5
        True
    """
    with torch.no_grad():
        return _errors(inputs, context)


def _errors(inputs: AttentionInputs, context: Tensor | None) -> AttentionErrors:
    # Padded values to zero, as the forward pass has them.
    v = None if context is None else silence_padding(inputs.mask, inputs.k, inputs.v)[1].double()
    row_sum = apart = softmax = 0.0
    written = list(inputs.written_heads)
    others: Iterable[Tensor | None] = repeat(None) if inputs.kernel is not None else _by_logarithm(inputs)
    # The same blocks by two ways of the softmax.
    blocks = zip(weight_blocks(inputs, range(inputs.q_len)), others, strict=inputs.kernel is None)
    for (place, weights), other in blocks:
        if other is not None:
            difference = weights - other
            # What an edit wrote does not follow from q and k.
            difference[:, written] = 0.0
            softmax = max(softmax, _largest(difference))
        # 1, or 0 in a row that sees nothing.
        total = weights.sum(dim=3)
        away = torch.where(total == 0, 0.0, (total - 1).abs())
        away[:, written] = 0.0  # which need not sum to anything
        row_sum = max(row_sum, _largest(away))
        if v is not None and context is not None:
            batch, kv_heads, keys, v_dim = v.shape
            # Without the sink; the heads of a group beside each other: (batch, kv_heads, group * rows,
            # keys).
            of_keys = weights[..., :keys].reshape(batch, kv_heads, -1, keys)
            # The context that weights and values give.
            expected = (of_keys @ v).view(batch, inputs.num_heads, -1, v_dim)
            apart = max(apart, _largest(expected - context[:, :, place].double()))
    return AttentionErrors(row_sum, None if context is None else apart, softmax)


def _by_logarithm(inputs: AttentionInputs) -> Iterator[Tensor | None]:
    """The blocks of weights by the softmax's other form, exp(score - log sum exp); zero in an empty row."""
    if inputs.weights is not None and inputs.written is None:
        yield None
        return
    inputs = inputs.unwritten()
    rows = range(inputs.q_len)
    for _, scores in score_blocks(inputs, rows, range(inputs.k_len)):
        # A row of -inf has -inf, and exp(-inf + inf) would be NaN.
        total = torch.logsumexp(scores, dim=-1, keepdim=True)
        yield torch.where(total == -math.inf, 0.0, (scores - total).exp())


def _largest(values: Tensor) -> float:
    # NaN would lose every comparison, and so pass for agreement.
    largest = float(values.abs().max())
    return largest if math.isfinite(largest) else math.inf
