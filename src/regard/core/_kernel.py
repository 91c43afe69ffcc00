"""torch's fused kernel, handed only what it takes without writing out the (queries, keys) matrix.

`scaled_dot_product_attention` silently turns to arithmetic on the whole matrix for d_v != d_k, for tensors
whose last axis is not contiguous, for dropout and for a mask with a gradient. Here the narrower of d_k and
d_v is padded with zeros, and mask and bias come as one float matrix of the rows at hand.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from regard.core._attention import at_least_float32, bias_block, expand_heads, mask_block
from regard.core._bias import DenseBias
from regard.core._devices import on_cpu
from regard.core._inputs import AttentionInputs
from regard.core._positions import as_tensor, take

_MINUS_INFINITY = float("-inf")


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    *,
    added: Tensor | None = None,
    is_causal: bool = False,
) -> Tensor:
    """One call of the kernel; `added` is what is added to the scaled scores."""
    grouped = k.shape[1] != q.shape[1]
    if grouped and added is not None and not on_cpu(q):
        # Elsewhere than on the CPU no fused kernel takes both a mask and grouped heads.
        k, v, grouped = expand_heads(k, q.shape[1]), expand_heads(v, q.shape[1]), False
    v_dim = v.shape[3]
    width = max(q.shape[3], v_dim)
    context = scaled_dot_product_attention(
        _fit(q, width),
        _fit(k, width),
        _fit(v, width),
        attn_mask=added,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=grouped,
    )
    return context if width == v_dim else context[..., :v_dim]


def _fit(tensor: Tensor, width: int) -> Tensor:
    if tensor.shape[3] != width:
        return pad(tensor, (0, width - tensor.shape[3]))
    # The kernel asks for the last axis only; the heads of a projection stay where they are.
    return tensor if tensor.stride(3) == 1 else tensor.contiguous()


def attend_block(
    inputs: AttentionInputs, q: Tensor, k: Tensor, v: Tensor, rows: range, keys: range
) -> Tensor:
    """The context of some rows over the keys that they may see, mask, bias and sinks taken into account."""
    matrix = added = added_to_scores(inputs, rows, keys)
    if inputs.sinks is not None:
        # The sink is one more key whose own score is zero, so that what is added is its score.
        k, v, added = pad(k, (0, 0, 0, 1)), pad(v, (0, 0, 0, 1)), _with_sinks(inputs, added, len(keys))
    if added is None or matrix is None or on_cpu(q):
        # The CPU's kernel gives zero for a row of -inf, with zero gradients; it is tested for that.
        return attend(q, k, v, inputs.factor, added=added)
    empty = _empty(matrix)
    added = added.masked_fill(empty, 0.0)
    return attend(q, k, v, inputs.factor, added=added).masked_fill(empty, 0.0)


def added_to_scores(inputs: AttentionInputs, rows: range, keys: range) -> Tensor | None:
    """Mask and bias of some rows as one matrix to add, -inf where the mask forbids; None where neither is.

    Four axes that broadcast to (batch, heads, rows, keys), the last in full. In float32 also for half
    precision on the CPU, whose kernel takes that and loses nothing of the bias. A bias that wants a gradient
    does not come here: it is written out.
    """
    if inputs.mask is None and inputs.bias is None:
        return None
    q = inputs.q
    dtype = at_least_float32(q) if on_cpu(q) else q.dtype
    at_rows, at_keys = as_tensor(rows, q.device), as_tensor(keys, q.device)
    bias = inputs.bias
    if isinstance(bias, DenseBias):
        added: Tensor | None = _part(bias.values, rows, keys)  # picking by numbers would copy it
    else:
        added = bias_block(inputs, at_rows, at_keys)
    allowed = mask_block(inputs, at_rows, at_keys)
    if allowed is not None:
        added = torch.zeros((), dtype=dtype, device=q.device) if added is None else added
        added = torch.where(allowed, added, _MINUS_INFINITY)
    assert added is not None, "a mask or a bias is there"
    if added.shape[3] != len(keys) or added.stride(3) != 1:
        added = added.expand(-1, -1, -1, len(keys)).contiguous()
    return added if added.dtype == q.dtype else added.to(dtype)


def empty_rows(matrix: Tensor) -> Tensor | None:
    """bool (.., rows, 1): rows whose every key is hidden; None where it is known that there are none."""
    empty = _empty(matrix)
    # Looked at only where the answer need not be waited for.
    return None if on_cpu(empty) and not bool(empty.any()) else empty


def _empty(matrix: Tensor) -> Tensor:
    return (matrix == _MINUS_INFINITY).all(dim=3, keepdim=True)


def _part(values: Tensor, rows: range, keys: range) -> Tensor:
    # An axis of size 1 broadcasts, so there is nothing to pick from it.
    some = values if values.shape[2] == 1 else take(values, rows, dim=2)
    return some if some.shape[3] == 1 else take(some, keys, dim=3)


def _with_sinks(inputs: AttentionInputs, added: Tensor | None, num_keys: int) -> Tensor:
    assert inputs.sinks is not None, "asked for where there are sinks"
    if added is None:
        added = inputs.sinks.new_zeros(1, 1, 1, num_keys, dtype=at_least_float32(inputs.q))
    sinks = inputs.sinks[None, :, None, None].to(added.dtype)
    shape = (added.shape[0], inputs.num_heads, added.shape[2])
    return torch.cat((added.expand(*shape, num_keys), sinks.expand(*shape, 1)), dim=3)
