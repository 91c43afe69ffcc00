"""Attention, step by step, and every quantity between.

Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V, Vaswani et al. 2017 (arXiv 1706.03762), equation 1; with,
where given, a soft cap (Gemma 2, arXiv 2408.00118, section 2), an additive bias, a mask, sinks (gpt-oss,
arXiv 2508.10925, section 2.2) and dropout:

    scores        = q k^T, or what another scorer makes of q and k
    scaled_scores = scale * scores;  softcap * tanh(scaled / softcap);  + bias
    masked_scores = scaled_scores, -inf where the mask forbids; then the head's sink as one more column
    weights       = softmax(masked_scores), in float32 or wider; all zero in a row that may attend to nothing
    context       = dropout(weights of the keys) v
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor

from regard.core._inputs import AttentionInputs, as_object, silence_padding
from regard.core._taps import Taps
from regard.core.errors import InputError
from regard.core.tensors import Positions, as_tensor, check_positions, take


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Attention:
    """Every quantity of attention by name; the matrices are (batch, heads, queries, keys).

    Args:
        scores: q k^T, or what the record's scorer makes of q and k.
        scaled_scores: scaled, capped, biased.
        masked_scores: the softmax's exact argument, -inf where the mask forbids; with sinks, one column more.
        weights: the softmax; a row sums to 1, or is all zero where the query may attend to nothing; with
            sinks, one column more.
        context: (batch, heads, queries, v_dim), the weighted values, after dropout on the weights.
    """

    scores: Tensor
    scaled_scores: Tensor
    masked_scores: Tensor
    weights: Tensor
    context: Tensor


_P = ParamSpec("_P")
_R = TypeVar("_R")


def without_autocast(
    function: Callable[Concatenate[AttentionInputs, _P], _R],
) -> Callable[Concatenate[AttentionInputs, _P], _R]:
    """The function with autocast switched off on the device of its record.

    Attention has types of its own: scores in float32 or wider, of q and k in the type in which they come.
    Autocast would round every product to half precision.
    """

    @wraps(function)
    def inside(inputs: AttentionInputs, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        device = inputs.q.device.type
        # The usual case, without the cost of a context manager.
        if not torch.is_autocast_enabled(device):
            return function(inputs, *args, **kwargs)
        with torch.autocast(device, enabled=False):
            return function(inputs, *args, **kwargs)

    return inside


@without_autocast
def reference_attention(
    inputs: AttentionInputs, taps: Taps | None = None, *, queries: Positions | None = None
) -> Attention:
    """Attention with all intermediates, in float32 or wider; O(N^2) memory.

    Args:
        inputs: the record; see `AttentionInputs`.
        taps: listeners at `scores` (the masked scores) and `weights`, who may change them.
        queries: only these rows; by default all.

    Returns:
        The five quantities; `context` has the dtype of v.

    Example:
        >>> from regard.core import AttentionInputs, reference_attention
        >>> import torch
        >>> one_head = torch.eye(2)[None, None]
        >>> reference_attention(AttentionInputs(q=one_head, k=one_head, v=one_head, scale=0.0)).weights
        tensor([[[[0.5000, 0.5000],
                  [0.5000, 0.5000]]]])
    """
    # Zeros in place of padded keys and values: 0 * NaN would be NaN in the sum.
    k, v = silence_padding(inputs.mask, inputs.k, inputs.v)
    device = inputs.q.device
    # Some rows give the same numbers as all rows do, since rows are independent.
    rows = check_positions("queries", queries, inputs.q_len)
    return attend_rows(
        inputs,
        take(inputs.q, rows, dim=2),
        k,
        v,
        as_tensor(rows, device),
        torch.arange(inputs.k_len, device=device),
        taps,
    )


@without_autocast
def attention_by_weights(inputs: AttentionInputs, taps: Taps) -> Tensor:
    """The context of a record with a kernel, by the weights that the kernel has; O(N^2) memory.

    Args:
        inputs: the record, with its kernel.
        taps: listeners at `weights`, who may change them.

    Raises:
        InputError: somebody listens at `scores`, or the kernel has no weights either.
    """
    assert inputs.kernel is not None, "without one, reference_attention is asked"
    if taps.wants("scores"):
        inputs.require_scores()
    # The scores are of q and k as they are; only the values enter the sum here.
    _, v = silence_padding(inputs.mask, inputs.k, inputs.v)
    # (batch, heads, queries, keys)
    weights = inputs.kernel.weights(inputs, torch.arange(inputs.q_len, device=v.device))
    weights = taps.offer("weights", weights.to(at_least_float32(inputs.q)))
    return (weights @ expand_heads(v, inputs.num_heads).to(weights.dtype)).to(v.dtype)


def at_least_float32(tensor: Tensor) -> torch.dtype:
    """The type that scores and weights of such a tensor are given in."""
    return torch.promote_types(tensor.dtype, torch.float32)


def attend_rows(
    inputs: AttentionInputs,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: Tensor,
    columns: Tensor,
    taps: Taps | None = None,
) -> Attention:
    """The arithmetic of attention for some queries over some keys: all that any of them may see.

    q, k and v are the record's at the positions `rows` and `columns`, padding silenced; it gives all else.
    Listeners at `scores` (the masked scores) and `weights` may change them.
    """
    scores, scaled, masked = score_rows(inputs, q, k, rows, columns)
    if taps is not None:
        # What listeners put in place of the scores goes through the softmax.
        masked = taps.offer("scores", masked)
    weights = softmax_or_zero(masked)
    if taps is not None:
        weights = taps.offer("weights", weights)
    # The sink takes a share of every row and has no value: its column is left out of the sum.
    kept = weights if inputs.sinks is None else weights[..., :-1]
    if inputs.dropout is not None:
        # By position, so that a block draws what the whole matrix would.
        keep = inputs.dropout.keep(batch=q.shape[0], heads=inputs.num_heads, queries=rows, keys=columns)
        kept = kept * keep / (1.0 - inputs.dropout.p)
    # (batch, heads, queries, keys) @ (batch, heads, keys, v_dim)
    context = kept @ expand_heads(v, inputs.num_heads).to(weights.dtype)
    return Attention(
        scores=scores,
        scaled_scores=scaled,
        masked_scores=masked,
        weights=weights,
        context=context.to(v.dtype),
    )


def expand_heads(tensor: Tensor, num_heads: int) -> Tensor:
    """Repeat key or value heads so that query head h finds its own at h (grouped heads, arXiv 2305.13245)."""
    return (
        tensor
        if tensor.shape[1] == num_heads
        else tensor.repeat_interleave(num_heads // tensor.shape[1], dim=1)
    )


def mask_block(inputs: AttentionInputs, rows: Tensor, columns: Tensor) -> Tensor | None:
    """The mask of some rows and columns, bool, broadcastable to all four axes; None without a mask."""
    if inputs.mask is None:
        return None
    return _checked_block("mask", inputs.mask.block(rows, columns), inputs, rows, columns)


def bias_block(inputs: AttentionInputs, rows: Tensor, columns: Tensor) -> Tensor | None:
    """The bias of some rows and columns, broadcastable to all four axes; None without a bias."""
    if inputs.bias is None:
        return None
    return _checked_block("bias", as_object(inputs.bias).block(rows, columns), inputs, rows, columns)


def _checked_block(
    name: str, block: Tensor, inputs: AttentionInputs, rows: Tensor, columns: Tensor
) -> Tensor:
    # Axes of size 1 broadcast: a mask that is one for all heads is kept as one.
    wanted = (inputs.q.shape[0], inputs.num_heads, len(rows), len(columns))
    if block.ndim != 4 or any(size not in (1, full) for size, full in zip(block.shape, wanted, strict=True)):
        raise InputError(
            f"the {name} must give blocks that broadcast to (batch, heads, rows, columns) = {wanted}; "
            f"got shape {tuple(block.shape)}."
        )
    return block


def score_rows(
    inputs: AttentionInputs, q: Tensor, k: Tensor, rows: Tensor, columns: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, scaled scores and masked scores of q over k, which stand at `rows` and `columns`."""
    inputs.require_scores()
    # float32 or wider: half precision would round the scores before the softmax magnifies the rounding.
    wide = at_least_float32(q)
    # (batch, heads, queries, keys): q . k, scale, cap, bias, mask, sink, in this order.
    scores = inputs.scorer.scores(q.to(wide), expand_heads(k, inputs.num_heads).to(wide))
    scaled = scores * inputs.factor
    if inputs.softcap is not None:
        # Bounded by the cap, before the bias, as in Gemma 2.
        scaled = inputs.softcap * torch.tanh(scaled / inputs.softcap)
    bias = bias_block(inputs, rows, columns)
    if bias is not None:
        scaled = scaled + bias
    allowed = mask_block(inputs, rows, columns)
    masked = scaled if allowed is None else scaled.masked_fill(~allowed, float("-inf"))
    if inputs.sinks is not None:
        # One more column, with the head's own score in every row.
        sinks = inputs.sinks[None, :, None, None].expand(*masked.shape[:3], 1)
        masked = torch.cat((masked, sinks.to(masked.dtype)), dim=3)
    return scores, scaled, masked


def softmax_or_zero(masked_scores: Tensor) -> Tensor:
    """Softmax over the last axis; a row of -inf gives zeros, with zero gradient, where softmax gives NaN."""
    # A query that may see nothing, such as padding in a window.
    empty = (masked_scores == float("-inf")).all(dim=-1, keepdim=True)
    # Filled before and after: NaN must enter neither the result nor the gradient.
    weights = torch.softmax(masked_scores.masked_fill(empty, 0.0), dim=-1)
    return weights.masked_fill(empty, 0.0)


def learned_by(inputs: AttentionInputs) -> tuple[Tensor, ...]:
    """The parameters of scorer, bias and sinks. A bias with a gradient must name its parameters."""
    learned = inputs.scorer.learned()
    if inputs.bias is not None:
        bias = as_object(inputs.bias)
        learned = (*learned, *bias.learned())
        # Autograd would not see a gradient through blocks whose parameters it is not told of.
        if not any(tensor.requires_grad for tensor in bias.learned()):
            origin = torch.zeros(1, dtype=torch.int64, device=inputs.q.device)
            if bias.block(origin, origin).requires_grad:
                raise InputError(
                    "the bias must name in `learned` the tensors that its blocks have gradients for; "
                    f"{type(bias).__name__} names none."
                )
    return learned if inputs.sinks is None else (*learned, inputs.sinks)
