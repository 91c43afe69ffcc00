"""Attention at full speed in O(N) memory: by torch's fused kernel wherever that can be had, else by blocks.

The kernel takes no soft cap, no dropout of ours, no scores but dot products, and no gradient of a bias: these
are written out, a block of queries at a time. All else goes to the kernel: in one call, or by blocks where
the mask or bias of all rows would be large, or where blocks need not look at the keys that nobody sees.
"""

from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from regard.core._attention import (
    at_least_float32,
    attend_rows,
    bias_block,
    expand_heads,
    learned_by,
    mask_block,
    without_autocast,
)
from regard.core._blocks import Plan, by_blocks, empty_context, plan
from regard.core._inputs import AttentionInputs, as_object, padding_of, silence_padding
from regard.core._masks import Causal, Padding
from regard.core._scorers import DenseBias
from regard.core.tensors import ON_DEVICE, as_tensor, on_cpu, take

# Entries of one block of the mask: 2^21 are 8 MB in float32, which stays in today's CPU caches.
_BLOCK_ENTRIES = 2**21

# Entries of one block of scores where all is written out: a dozen such matrices are alive at a time.
_WRITTEN_ENTRIES = 2**20
_WRITTEN_ON_DEVICE = 2**24

# So many in all are kept for the backward pass, not worked out again: some 64 MB a layer.
_KEPT_ENTRIES = 2**22

# With fewer queries times keys than this, one call costs less than what blocks would leave out.
_WORTH_BLOCKS = 2**16

# torch's CPU kernel reads 512 keys at a time and leaves out such portions as are hidden by "causal": below
# this length, blocks leave out more. (At 512: 0.72 of the time; at 1024 the two are equal.)
_CAUSAL_BLOCKS_BELOW = 768


def fused_attention(inputs: AttentionInputs) -> Tensor:
    """The context alone, equal to `reference_attention(inputs).context`, in O(N) memory.

    In float32 the two differ by at most 5e-6 of the largest entry. In half precision scores are summed and
    normalised in float32; the weights are rounded once before they meet the values, and the context once.

    Args:
        inputs: the record; see `AttentionInputs`.

    Returns:
        (batch, heads, queries, v_dim), in the dtype of v. A query that may attend to nothing gets zeros,
        with finite gradients.

    Example:
        >>> from regard.core import AttentionInputs, fused_attention
        >>> import torch
        >>> from regard.core import Causal, reference_attention
        >>> inputs = AttentionInputs(q=torch.randn(1, 2, 7, 5), k=torch.randn(1, 2, 7, 5),
        ...                          v=torch.randn(1, 2, 7, 3), mask=Causal())
        >>> torch.allclose(fused_attention(inputs), reference_attention(inputs).context, atol=1e-6)
        True
    """
    # A backward pass inside autocast would round what autograd itself has kept.
    return _fused(inputs, saves=not torch.is_autocast_enabled(inputs.q.device.type))


@without_autocast
def _fused(inputs: AttentionInputs, *, saves: bool) -> Tensor:
    # The order of what follows: the mask made small, padding silenced, the scorer turned to dot
    # products.
    inputs.require_scores()
    mask = inputs.mask
    if mask is not None:
        # A mask that hides nothing here would keep torch's fast paths away.
        mask = mask.simplified(inputs.q_len, inputs.k_len)
        if mask is not inputs.mask:
            inputs = inputs.changed(mask=mask)
        # The copies of k and v are made only where an entry could get through a weight of zero.
        if not (mask is None or padding_of(mask) is None or _harmless(inputs.k, inputs.v)):
            k, v = silence_padding(mask, inputs.k, inputs.v)
            inputs = inputs.changed(k=k, v=v)
    # None for additive scores, which are no product of matrices.
    product = inputs.as_dot_product()
    if product is not None and product.q.dtype != inputs.v.dtype:
        # A scorer has worked in float32, and so does the kernel; the context is rounded once.
        return _scored(product.changed(v=inputs.v.to(product.q.dtype)), True, saves).to(inputs.v.dtype)
    return _scored(inputs if product is None else product, product is not None, saves)


def _scored(inputs: AttentionInputs, by_dots: bool, saves: bool) -> Tensor:
    # What torch's kernel cannot do: cap, our dropout, scores that are no dot products.
    explicit = inputs.softcap is not None or inputs.dropout is not None or not by_dots
    # Nothing but q, k and v.
    if inputs.mask is None and inputs.bias is None and inputs.sinks is None and not explicit:
        return attend(inputs.q, inputs.k, inputs.v, inputs.factor)
    learned = learned_by(inputs) if torch.is_grad_enabled() else ()
    # Parameters in scorer, bias or sinks learn: their gradients are added up block by block.
    if explicit or any(tensor.requires_grad for tensor in learned):
        return _by_explicit_scores(inputs, learned, by_dots, saves)
    return _by_kernel(inputs)


# Scores of keys below this stay finite, so that -inf hides them.
_HARMLESS = 1e15


def _harmless(*tensors: Tensor) -> bool:
    """Whether every entry is finite and small enough to be hidden by a weight of zero: then none need be set.

    A sum of squares is seven times as fast as setting entries, and not smaller than any of them. On other
    devices than the CPU its answer would have to be waited for.
    """
    # `<` is False for NaN. A norm in half precision overflows early: then entries are set, as without it.
    return all(on_cpu(x) and float(torch.linalg.vector_norm(x.detach())) < _HARMLESS for x in tensors)


def _by_kernel(inputs: AttentionInputs) -> Tensor:
    # From the cheapest to the most general: torch's own mask, one call, blocks.
    if _is_causal_alone(inputs):
        return attend(inputs.q, inputs.k, inputs.v, inputs.factor, is_causal=True)
    if _in_one_call(inputs):
        whole = range(inputs.q_len), range(inputs.k_len)
        return attend_block(inputs, inputs.q, inputs.k, inputs.v, *whole)
    return by_blocks(inputs, attend_block, _plan(inputs), learned=())


def _is_causal_alone(inputs: AttentionInputs) -> bool:
    """Whether the kernel's own mask is all that there is, and the quickest."""
    if inputs.mask is None or inputs.bias is not None or inputs.sinks is not None:
        return False
    # torch's own causal mask is of as many queries as keys.
    square = inputs.q_len == inputs.k_len
    return square and inputs.mask.parts() == (Causal(),) and not _causal_by_blocks(inputs)


def _plan(inputs: AttentionInputs) -> Plan:
    # Sinks are by head, so that what is added has all heads.
    planes = inputs.q.shape[0] * inputs.num_heads if inputs.sinks is not None else _planes_of(inputs)
    return plan(inputs, planes=planes, entries=_entries(inputs))


def _entries(inputs: AttentionInputs) -> int:
    return _BLOCK_ENTRIES if on_cpu(inputs.q) else ON_DEVICE


def _wants_gradient(inputs: AttentionInputs) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in (inputs.q, inputs.k, inputs.v))


def _causal_by_blocks(inputs: AttentionInputs) -> bool:
    length = inputs.q_len
    return (
        length**2 >= _WORTH_BLOCKS
        and length < _CAUSAL_BLOCKS_BELOW
        and on_cpu(inputs.q)
        and not _wants_gradient(inputs)
    )


def _in_one_call(inputs: AttentionInputs) -> bool:
    """Whether blocks would gain nothing: mask and bias are small, and hide little that could be left out."""
    mask = inputs.mask
    # Padding alone: the mask has one row for all queries, so that it never grows to N^2.
    if inputs.bias is None and (mask is None or all(isinstance(part, Padding) for part in mask.parts())):
        return True  # one row stands for all
    size = inputs.q_len * inputs.k_len
    if inputs.q.shape[0] * inputs.num_heads * size > _entries(inputs):
        return False
    # In training a block is worked out twice, and elsewhere than on the CPU calls cost more than masks.
    return size < _WORTH_BLOCKS or _wants_gradient(inputs) or not on_cpu(inputs.q)


def _planes_of(inputs: AttentionInputs) -> int:
    """How many (queries, keys) matrices mask and bias make: ask each for one entry."""
    # One entry tells the sizes of the two leading axes.
    origin = torch.zeros(1, dtype=torch.int64, device=inputs.q.device)
    batch = heads = 1
    for part in (inputs.mask, None if inputs.bias is None else as_object(inputs.bias)):
        if part is not None:
            shape = part.block(origin, origin).shape
            batch, heads = max(batch, shape[0]), max(heads, shape[1])
    return batch * heads


def _by_explicit_scores(
    inputs: AttentionInputs, learned: tuple[Tensor, ...], by_dots: bool, saves: bool
) -> Tensor:
    """The contexts by blocks whose scores are written out; those of a small record are saved for backward."""
    plain = inputs.dropout is None and inputs.sinks is None
    wants = _wants_gradient(inputs) or any(tensor.requires_grad for tensor in learned)
    # The quick way of Gemma 2, where no gradient is wanted.
    if inputs.softcap is not None and by_dots and plain and not wants:
        return capped_attention(inputs, inputs.softcap)
    # How many numbers are alive for one row and key.
    planes = inputs.q.shape[0] * inputs.num_heads * inputs.scorer.entries(inputs.q.shape[3])
    # Small enough that autograd may keep all of it: nothing is worked out twice.
    if saves and wants and planes * inputs.q_len * inputs.k_len <= _KEPT_ENTRIES:
        return _attend_explicitly(
            inputs, inputs.q, inputs.k, inputs.v, range(inputs.q_len), range(inputs.k_len)
        )
    entries = _WRITTEN_ENTRIES if on_cpu(inputs.q) else _WRITTEN_ON_DEVICE
    return by_blocks(inputs, _attend_explicitly, plan(inputs, planes=planes, entries=entries), learned)


def _attend_explicitly(
    inputs: AttentionInputs, q: Tensor, k: Tensor, v: Tensor, rows: range, keys: range
) -> Tensor:
    device = q.device
    return attend_rows(inputs, q, k, v, as_tensor(rows, device), as_tensor(keys, device)).context


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
    """One call of torch's kernel, or what is quicker for one query; `added` is added to the scaled scores.

    `scaled_dot_product_attention` silently turns to arithmetic on the whole matrix for d_v != d_k, for
    tensors whose last axis is not contiguous, for dropout and for a mask with a gradient. So the narrower of
    d_k and d_v is padded with zeros, and mask and bias come as one float matrix of the rows at hand.
    """
    # Writing a text: one query over all keys read so far.
    if q.shape[2] == 1 and on_cpu(q):
        return _attend_once(q, k, v, scale, added)
    # Fewer key heads than query heads: torch repeats them without a copy, where it can.
    grouped = k.shape[1] != q.shape[1]
    if grouped and added is not None and not on_cpu(q):
        # Elsewhere than on the CPU no fused kernel takes both a mask and grouped heads.
        k, v, grouped = expand_heads(k, q.shape[1]), expand_heads(v, q.shape[1]), False
    return _by_torch(q, k, v, scale, added=added, is_causal=is_causal, enable_gqa=grouped)


def _by_torch(
    q: Tensor, k: Tensor, v: Tensor, scale: float, *, added: Tensor | None, **options: bool
) -> Tensor:
    v_dim = v.shape[3]
    # The fused kernel wants one width: zeros change no dot product, and are cut off the context.
    width = max(q.shape[3], v_dim)
    q, k, v = _fit(q, width), _fit(k, width), _fit(v, width)
    context = scaled_dot_product_attention(q, k, v, attn_mask=added, scale=scale, **options)
    return context if width == v_dim else context[..., :v_dim]


def _attend_once(q: Tensor, k: Tensor, v: Tensor, scale: float, added: Tensor | None) -> Tensor:
    """One query of each head, on a processor: a step of writing.

    The heads of a group become queries of one head, so that they read its keys together. A single row is slow
    in torch's kernel. In bfloat16 it goes without oneDNN, so the row comes twice (3 times as fast over 256
    keys); in float32 the kernel takes head by head, and the products of all at once take less.
    """
    batch, heads, _, dim = q.shape
    # Query heads of one key head become rows of one product: no key is read twice.
    group = heads // k.shape[1]
    q = q.reshape(batch, k.shape[1], group, dim)
    # (batch, kv_heads, group, keys), as q is now
    if added is not None and added.shape[1] == heads:
        added = added.reshape(added.shape[0], k.shape[1], group, added.shape[3])
    # Two equal rows, of which one is dropped at the end.
    if group == 1 and q.dtype == torch.bfloat16 and _onednn_takes_bfloat16():
        q = torch.cat((q, q), dim=2)
    if group == 1 and q.dtype == torch.float32 and not torch.is_grad_enabled():
        scores = q @ k.transpose(2, 3) * scale
        weights = torch.softmax(scores if added is None else scores + added, dim=3)
        if added is not None:
            weights = weights.masked_fill(_empty(added), 0.0)
        return weights @ v
    # (batch, kv_heads, group, v_dim)
    context = _by_torch(q, k, v, scale, added=added)[:, :, :group]
    return context.reshape(batch, heads, 1, -1)


@cache
def _onednn_takes_bfloat16() -> bool:
    is_there = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return bool(is_there and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _fit(tensor: Tensor, width: int) -> Tensor:
    # Zeros behind the last axis.
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
    # Elsewhere a row of -inf gives NaN: made finite before, and zero after.
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
    # The CPU adds in float32; a device's kernel takes a mask in q's own type only.
    dtype = at_least_float32(q) if on_cpu(q) else q.dtype
    at_rows, at_keys = as_tensor(rows, q.device), as_tensor(keys, q.device)
    bias = inputs.bias
    # A tensor gives a view of its rows and keys.
    if isinstance(bias, DenseBias):
        added: Tensor | None = _part(bias.values, rows, keys)  # picking by numbers would copy it
    else:
        added = bias_block(inputs, at_rows, at_keys)
    allowed = mask_block(inputs, at_rows, at_keys)
    if allowed is not None:
        # A mask alone: 0 where a key is seen.
        added = torch.zeros((), dtype=dtype, device=q.device) if added is None else added
        added = torch.where(allowed, added, _MINUS_INFINITY)
    assert added is not None, "a mask or a bias is there"
    # The kernel reads the last axis in order, and does not broadcast along it.
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
    # One more column behind the keys, the sink's score in every row.
    sinks = inputs.sinks[None, :, None, None].to(added.dtype)
    shape = (added.shape[0], inputs.num_heads, added.shape[2])
    return torch.cat((added.expand(*shape, num_keys), sinks.expand(*shape, 1)), dim=3)


# Scores of one block for each thread that works on it: 2^18 are 1 MB in float32. The arithmetic is bound by
# memory: a block small enough for a core's own cache goes through product, tanh, mask and softmax at once.
_CAPPED_ENTRIES = 2**18


def capped_attention(inputs: AttentionInputs, softcap: float) -> Tensor:
    """softmax(softcap * tanh(scale * q k^T / softcap) + bias, masked) v, in float32 or wider, in place.

    No fused kernel has the cap (Gemma 2). Here no gradient is wanted, padding is silenced, and there is no
    dropout and no sinks.
    """
    # Blocks over rows, then over items of the batch, so that a block stays in the cache.
    q, heads, kv_heads = inputs.q, inputs.num_heads, inputs.k.shape[1]
    batch, dtype, group = q.shape[0], at_least_float32(q), heads // kv_heads
    # (batch, kv_heads, ..): the query heads of a group go through one product, and no key is repeated.
    k, v = inputs.k.to(dtype).contiguous(), inputs.v.to(dtype).contiguous()
    context = empty_context(q, inputs.v)
    entries = _CAPPED_ENTRIES * min(8, torch.get_num_threads()) if on_cpu(q) else ON_DEVICE

    def of_block(
        items: slice, rows: range, keys: range, added: Tensor | None, empty: Tensor | None
    ) -> Tensor:
        """A function of its own, so that a block's matrices have gone before the next is begun."""
        at_rows, at_keys = slice(rows.start, rows.stop), slice(keys.start, keys.stop)
        # (items, heads, rows, head_dim)
        some = q[items, :, at_rows].to(dtype)
        # Scaled and divided by the cap before the product, which has many more numbers; in order.
        scaled = torch.mul(some, inputs.factor / softcap, out=some.new_empty(some.shape))
        # (items, kv_heads, group * rows, keys)
        scores = scaled.view(-1, kv_heads, group * len(rows), q.shape[3]) @ k[items, :, at_keys].mT
        # The same memory as (items, heads, rows, keys), where mask and bias are by head.
        matrices = scores.tanh_().view(-1, heads, len(rows), len(keys))
        if added is None:
            # softcap * tanh(..), and on it the bias and the mask in one pass.
            matrices *= softcap
        else:
            torch.add(_items(added, items), matrices, alpha=softcap, out=matrices)
        weights = torch.softmax(matrices, dim=-1)
        if empty is not None:
            weights.masked_fill_(_items(empty, items), 0.0)
        # (items, kv_heads, group * rows, v_dim)
        product = weights.view_as(scores) @ v[items, :, at_keys]
        return product.view(-1, heads, len(rows), v.shape[3])

    for rows, keys in plan(inputs, planes=heads, entries=entries):
        added = added_to_scores(inputs, rows, keys)
        empty = None if added is None else empty_rows(added)
        # Items of the batch that fit into a block at once: at least one.
        size = max(1, entries // (heads * len(rows) * len(keys)))
        for start in range(0, batch, size):
            items = slice(start, min(batch, start + size))
            context[items, :, rows.start : rows.stop] = of_block(items, rows, keys, added, empty)
    return context


def _items(tensor: Tensor, items: slice) -> Tensor:
    return tensor if tensor.shape[0] == 1 else tensor[items]
