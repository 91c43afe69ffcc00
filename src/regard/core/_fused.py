"""Attention at full speed in O(N) memory: torch's fused kernel, never its N x N fallback.

torch's `scaled_dot_product_attention` silently turns to arithmetic on the whole (queries, keys) matrix for
d_v != d_k, for tensors whose last axis is not contiguous, for dropout and for a bias with a gradient, and it
wants a dense mask for all but "causal". Here it is only ever handed what its fused kernels take: the narrower
of d_k and d_v is padded with zeros, padding goes in as one row a batch item, any other mask goes in by blocks
of queries. Bias, soft cap and dropout, which no kernel takes with gradients, are written out, by blocks too.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad, scaled_dot_product_attention

from regard.core._attention import (
    AttentionInputs,
    attend_rows,
    learned_by,
    mask_block,
    padding_of,
    silence_padding,
)
from regard.core._masks import Causal, Padding

# Entries of one block of scores, or of the mask: 2^21 are 8 MB in float32, which stays in today's CPU caches.
_BLOCK_ENTRIES = 2**21

# Fewer rows than this are not worth a call, however few keys they see.
_FEWEST_ROWS = 256


def fused_attention(inputs: AttentionInputs) -> Tensor:
    """The context alone, equal to `reference_attention(inputs).context`, in O(N) memory.

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
    real = padding_of(inputs)
    others = [] if inputs.mask is None else [m for m in inputs.mask.parts() if not isinstance(m, Padding)]
    inputs = silence_padding(inputs)
    if inputs.bias is not None or inputs.softcap is not None or inputs.dropout is not None:
        return _by_blocks(inputs, _arithmetic_block, planes=inputs.q.shape[0] * inputs.num_heads)
    if inputs.mask is None or not others:
        # A batch item without any real key attends to all of its zeroed values: the context is zero.
        keys = None if real is None else (real | ~real.any(1, keepdim=True))[:, None, None, :]
        return _kernel(inputs.q, inputs.k, inputs.v, inputs.factor, mask=keys)
    if others == [Causal()] and real is None and inputs.q_len == inputs.k_len:
        return _kernel(inputs.q, inputs.k, inputs.v, inputs.factor, is_causal=True)
    # A mask that is the same for all heads makes a small block: ask it for one entry.
    origin = torch.zeros(1, dtype=torch.int64, device=inputs.q.device)
    batches, heads = inputs.mask.block(origin, origin).shape[:2]
    return _by_blocks(inputs, _kernel_block, planes=batches * heads)


def _kernel(
    q: Tensor, k: Tensor, v: Tensor, scale: float, *, mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    v_dim = v.shape[3]
    width = max(q.shape[3], v_dim)
    q, k, v = (_fit(tensor, width) for tensor in (q, k, v))
    context = scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=mask,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=k.shape[1] != q.shape[1],
    )
    return context[..., :v_dim]


def _fit(tensor: Tensor, width: int) -> Tensor:
    if tensor.shape[3] != width:
        return pad(tensor, (0, width - tensor.shape[3]))
    # The kernel asks for the last axis only; the heads of a projection stay where they are.
    return tensor if tensor.stride(3) == 1 else tensor.contiguous()


_Block = Callable[[AttentionInputs, Tensor, Tensor, Tensor, range, range], Tensor]


def _by_blocks(inputs: AttentionInputs, block: _Block, *, planes: int) -> Tensor:
    """Queries in blocks, each over only the keys that it may see; a block's scores are never kept."""
    learned: tuple[Tensor, ...] = ()
    if inputs.bias is not None and torch.is_grad_enabled():
        learned = learned_by(inputs.bias, inputs.q.device)
    arguments = (inputs, block, planes, inputs.q, inputs.k, inputs.v, *learned)
    context: Tensor = _Blocks.apply(*arguments)  # type: ignore[no-untyped-call]
    return context


class _Blocks(torch.autograd.Function):
    """Each block is computed again in the backward pass, so that what autograd holds stays O(N) too.

    Not `torch.utils.checkpoint`: what it keeps from block to block lies between the blocks' large tensors in
    the allocator's heap, which then grows with the number of blocks. Here blocks write into what is there.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: AttentionInputs,
        block: _Block,
        planes: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *learned: Tensor,
    ) -> Tensor:
        ctx.inputs, ctx.block, ctx.planes, ctx.learned = inputs, block, planes, learned
        ctx.save_for_backward(q, k, v, *learned)
        context = v.new_empty(*q.shape[:3], v.shape[3])
        for rows, keys in _plan(inputs, planes):
            context[:, :, _slice(rows)] = block(inputs, *_parts(q, k, v, rows, keys), rows, keys)
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *_ = ctx.saved_tensors
        wanted = [tensor for tensor in ctx.learned if tensor.requires_grad]
        # Many blocks add to the gradient of a key: half precision would lose the later ones.
        wide = torch.promote_types(q.dtype, torch.float32)
        d_q, d_k, d_v = (torch.zeros_like(tensor, dtype=wide) for tensor in (q, k, v))
        of_learned = [torch.zeros_like(tensor) for tensor in wanted]
        for rows, keys in _plan(ctx.inputs, ctx.planes):
            parts = [part.detach().requires_grad_() for part in _parts(q, k, v, rows, keys)]
            with torch.enable_grad():
                context = ctx.block(ctx.inputs, *parts, rows, keys)
            gradients = torch.autograd.grad(
                context, [*parts, *wanted], upstream[:, :, _slice(rows)], allow_unused=True
            )
            totals = [*_parts(d_q, d_k, d_v, rows, keys), *of_learned]
            for total, gradient in zip(totals, gradients, strict=True):
                if gradient is not None:
                    total += gradient
        answers = iter(of_learned)
        return (
            *(None, None, None),
            *(total.to(q.dtype) for total in (d_q, d_k, d_v)),
            *(next(answers) if tensor.requires_grad else None for tensor in ctx.learned),
        )


def _plan(inputs: AttentionInputs, planes: int) -> Iterator[tuple[range, range]]:
    """Blocks of queries with the keys that they may see."""
    first = 0
    while first < inputs.q_len:
        # As many rows as one row has keys: the keys of a window's block are then at most twice its width.
        rows = min(inputs.q_len - first, max(_FEWEST_ROWS, len(_keys_of(inputs, first, first))))
        keys = _keys_of(inputs, first, first + rows - 1)
        while rows > 1 and planes * rows * len(keys) > _BLOCK_ENTRIES:
            rows = (rows + 1) // 2
            keys = _keys_of(inputs, first, first + rows - 1)
        yield range(first, first + rows), keys
        first += rows


def _keys_of(inputs: AttentionInputs, first_query: int, last_query: int) -> range:
    if inputs.mask is None:
        return range(inputs.k_len)
    start, stop = inputs.mask.key_range(first_query, last_query, inputs.k_len)
    # Rows that see nothing get a key all the same: the mask hides it.
    start = min(start, inputs.k_len - 1)
    return range(start, max(stop, start + 1))


def _parts(q: Tensor, k: Tensor, v: Tensor, rows: range, keys: range) -> tuple[Tensor, Tensor, Tensor]:
    return q[:, :, _slice(rows)], k[:, :, _slice(keys)], v[:, :, _slice(keys)]


def _slice(positions: range) -> slice:
    return slice(positions.start, positions.stop)


def _kernel_block(
    inputs: AttentionInputs, q: Tensor, k: Tensor, v: Tensor, rows: range, keys: range
) -> Tensor:
    allowed = mask_block(inputs, *_positions(rows, keys, q.device))
    assert allowed is not None, "without a mask the kernel needs no blocks"
    # A row that may attend to nothing attends to everything, and its context is thrown away.
    empty = ~allowed.any(dim=-1, keepdim=True)
    return _kernel(q, k, v, inputs.factor, mask=allowed | empty).masked_fill(empty, 0.0)


def _arithmetic_block(
    inputs: AttentionInputs, q: Tensor, k: Tensor, v: Tensor, rows: range, keys: range
) -> Tensor:
    return attend_rows(inputs, q, k, v, *_positions(rows, keys, q.device)).context


def _positions(rows: range, keys: range, device: torch.device) -> tuple[Tensor, Tensor]:
    return (
        torch.arange(rows.start, rows.stop, device=device),
        torch.arange(keys.start, keys.stop, device=device),
    )
