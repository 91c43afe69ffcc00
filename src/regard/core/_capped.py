"""Attention with a soft cap (Gemma 2) where no gradient is wanted: written out, in place, in small blocks.

No fused kernel has the cap. The arithmetic is bound by memory, not by multiplication: a block small enough
for a core's own cache goes through product, tanh, mask and softmax before the next is begun.
"""

import torch
from torch import Tensor

from regard.core._attention import at_least_float32
from regard.core._blocks import empty_context, plan
from regard.core._devices import ON_DEVICE, on_cpu
from regard.core._inputs import AttentionInputs
from regard.core._kernel import added_to_scores, empty_rows

# Scores of one block for each thread that works on it: 2^18 are 1 MB in float32.
_BLOCK_ENTRIES = 2**18


def capped_attention(inputs: AttentionInputs, softcap: float) -> Tensor:
    """softmax(softcap * tanh(scale * q k^T / softcap) + bias, masked) v, in float32 or wider.

    The record's padding is silenced, and it has no dropout and no sinks.
    """
    q, heads, kv_heads = inputs.q, inputs.num_heads, inputs.k.shape[1]
    batch, dtype, group = q.shape[0], at_least_float32(q), heads // kv_heads
    # (batch, kv_heads, ..): the query heads of a group go through one product, and no key is repeated.
    k, v = inputs.k.to(dtype).contiguous(), inputs.v.to(dtype).contiguous()
    context = empty_context(q, inputs.v)
    entries = _BLOCK_ENTRIES * min(8, torch.get_num_threads()) if on_cpu(q) else ON_DEVICE

    def attend(items: slice, rows: range, keys: range, added: Tensor | None, empty: Tensor | None) -> Tensor:
        """A function of its own, so that a block's matrices have gone before the next is begun."""
        at_rows, at_keys = slice(rows.start, rows.stop), slice(keys.start, keys.stop)
        some = q[items, :, at_rows].to(dtype)
        # Scaled and divided by the cap before the product, which has many more numbers; in order.
        scaled = torch.mul(some, inputs.factor / softcap, out=some.new_empty(some.shape))
        scores = scaled.view(-1, kv_heads, group * len(rows), q.shape[3]) @ k[items, :, at_keys].mT
        matrices = scores.tanh_().view(-1, heads, len(rows), len(keys))
        if added is None:
            matrices *= softcap
        else:
            torch.add(_items(added, items), matrices, alpha=softcap, out=matrices)
        weights = torch.softmax(matrices, dim=-1)
        if empty is not None:
            weights.masked_fill_(_items(empty, items), 0.0)
        product = weights.view_as(scores) @ v[items, :, at_keys]
        return product.view(-1, heads, len(rows), v.shape[3])

    for rows, keys in plan(inputs, planes=heads, entries=entries):
        added = added_to_scores(inputs, rows, keys)
        empty = None if added is None else empty_rows(added)
        size = max(1, entries // (heads * len(rows) * len(keys)))
        for start in range(0, batch, size):
            items = slice(start, min(batch, start + size))
            context[items, :, rows.start : rows.stop] = attend(items, rows, keys, added, empty)
    return context


def _items(tensor: Tensor, items: slice) -> Tensor:
    return tensor if tensor.shape[0] == 1 else tensor[items]
