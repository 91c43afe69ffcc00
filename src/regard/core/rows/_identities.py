"""Whether a context is that of its record: the identities of attention, checked in float64 in O(N) memory."""

import math
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor

from regard.core._attention import without_autocast
from regard.core._inputs import AttentionInputs, silence_padding
from regard.core.rows._weights import score_blocks, weight_blocks


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
    v = None if context is None else silence_padding(inputs.mask, inputs.k, inputs.v)[1].double()
    row_sum = apart = softmax = 0.0
    written = list(inputs.written_heads)
    others: Iterable[Tensor | None] = repeat(None) if inputs.kernel is not None else _by_logarithm(inputs)
    blocks = zip(weight_blocks(inputs, range(inputs.q_len)), others, strict=inputs.kernel is None)
    for (place, weights), other in blocks:
        if other is not None:
            difference = weights - other
            difference[:, written] = 0.0
            softmax = max(softmax, _largest(difference))
        total = weights.sum(dim=3)
        away = torch.where(total == 0, 0.0, (total - 1).abs())
        away[:, written] = 0.0  # which need not sum to anything
        row_sum = max(row_sum, _largest(away))
        if v is not None and context is not None:
            batch, kv_heads, keys, v_dim = v.shape
            of_keys = weights[..., :keys].reshape(batch, kv_heads, -1, keys)
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
        total = torch.logsumexp(scores, dim=-1, keepdim=True)
        yield torch.where(total == -math.inf, 0.0, (scores - total).exp())


def _largest(values: Tensor) -> float:
    # NaN would lose every comparison, and so pass for agreement.
    largest = float(values.abs().max())
    return largest if math.isfinite(largest) else math.inf
