"""Attention at full speed in O(N) memory: by torch's fused kernel wherever that can be had, else by blocks.

The kernel takes no soft cap, no dropout of ours, no scores but dot products, and no gradient of a bias: these
are written out, a block of queries at a time. All else goes to the kernel: in one call, or by blocks where
the mask or bias of all rows would be large, or where blocks need not look at the keys that nobody sees.
"""

import torch
from torch import Tensor

from regard.core._attention import attend_rows, learned_by
from regard.core._autocast import without_autocast
from regard.core._blocks import Plan, by_blocks, plan
from regard.core._capped import capped_attention
from regard.core._devices import ON_DEVICE, on_cpu
from regard.core._inputs import AttentionInputs, as_object, padding_of, silence_padding
from regard.core._kernel import attend, attend_block
from regard.core._masks import Causal, Padding
from regard.core._positions import as_tensor

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
        >>> import torch
        >>> from regard.core import Causal, reference_attention
        >>> inputs = AttentionInputs(q=torch.randn(1, 2, 7, 5), k=torch.randn(1, 2, 7, 5),
        ...                          v=torch.randn(1, 2, 7, 3), mask=Causal())
        >>> torch.allclose(fused_attention(inputs), reference_attention(inputs).context, atol=1e-6)
        True
    """
    # A backward pass inside autocast would round what autograd itself has kept.
    return _fused(inputs, keeps=not torch.is_autocast_enabled(inputs.q.device.type))


@without_autocast
def _fused(inputs: AttentionInputs, *, keeps: bool) -> Tensor:
    inputs.require_scores()
    mask = inputs.mask
    if mask is not None:
        mask = mask.simplified(inputs.q_len, inputs.k_len)
        if mask is not inputs.mask:
            inputs = inputs.changed(mask=mask)
        if not (mask is None or padding_of(mask) is None or _harmless(inputs.k, inputs.v)):
            k, v = silence_padding(mask, inputs.k, inputs.v)
            inputs = inputs.changed(k=k, v=v)
    product = inputs.as_dot_product()
    if product is not None and product.q.dtype != inputs.v.dtype:
        # A scorer has worked in float32, and so does the kernel; the context is rounded once.
        return _scored(product.changed(v=inputs.v.to(product.q.dtype)), True, keeps).to(inputs.v.dtype)
    return _scored(inputs if product is None else product, product is not None, keeps)


def _scored(inputs: AttentionInputs, by_dots: bool, keeps: bool) -> Tensor:
    written_out = inputs.softcap is not None or inputs.dropout is not None or not by_dots
    if inputs.mask is None and inputs.bias is None and inputs.sinks is None and not written_out:
        return attend(inputs.q, inputs.k, inputs.v, inputs.factor)
    learned = learned_by(inputs) if torch.is_grad_enabled() else ()
    if written_out or any(tensor.requires_grad for tensor in learned):
        return _written_out(inputs, learned, by_dots, keeps)
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
    square = inputs.q_len == inputs.k_len
    return square and inputs.mask.parts() == (Causal(),) and not _causal_by_blocks(inputs)


def _plan(inputs: AttentionInputs) -> Plan:
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
    if inputs.bias is None and (mask is None or all(isinstance(part, Padding) for part in mask.parts())):
        return True  # one row stands for all
    size = inputs.q_len * inputs.k_len
    if inputs.q.shape[0] * inputs.num_heads * size > _entries(inputs):
        return False
    # In training a block is worked out twice, and elsewhere than on the CPU calls cost more than masks.
    return size < _WORTH_BLOCKS or _wants_gradient(inputs) or not on_cpu(inputs.q)


def _planes_of(inputs: AttentionInputs) -> int:
    """How many (queries, keys) matrices mask and bias make: ask each for one entry."""
    origin = torch.zeros(1, dtype=torch.int64, device=inputs.q.device)
    batch = heads = 1
    for part in (inputs.mask, None if inputs.bias is None else as_object(inputs.bias)):
        if part is not None:
            shape = part.block(origin, origin).shape
            batch, heads = max(batch, shape[0]), max(heads, shape[1])
    return batch * heads


def _written_out(inputs: AttentionInputs, learned: tuple[Tensor, ...], by_dots: bool, keeps: bool) -> Tensor:
    plain = inputs.dropout is None and inputs.sinks is None
    wants = _wants_gradient(inputs) or any(tensor.requires_grad for tensor in learned)
    if inputs.softcap is not None and by_dots and plain and not wants:
        return capped_attention(inputs, inputs.softcap)
    planes = inputs.q.shape[0] * inputs.num_heads * inputs.scorer.entries(inputs.q.shape[3])
    if keeps and wants and planes * inputs.q_len * inputs.k_len <= _KEPT_ENTRIES:
        return _arithmetic(inputs, inputs.q, inputs.k, inputs.v, range(inputs.q_len), range(inputs.k_len))
    entries = _WRITTEN_ENTRIES if on_cpu(inputs.q) else _WRITTEN_ON_DEVICE
    return by_blocks(inputs, _arithmetic, plan(inputs, planes=planes, entries=entries), learned)


def _arithmetic(inputs: AttentionInputs, q: Tensor, k: Tensor, v: Tensor, rows: range, keys: range) -> Tensor:
    device = q.device
    return attend_rows(inputs, q, k, v, as_tensor(rows, device), as_tensor(keys, device)).context
