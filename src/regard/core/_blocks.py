"""Attention by blocks of queries, each over the keys that it may see: O(N) memory, forward and backward."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core._inputs import AttentionInputs

Plan = list[tuple[range, range]]
"""Blocks of queries with the keys that they may see."""

Block = Callable[[AttentionInputs, Tensor, Tensor, Tensor, range, range], Tensor]
"""The context of some rows over some keys, of the record's q, k and v at these positions."""

# Fewer rows than this are not worth a call, however few keys they see.
_FEWEST_ROWS = 64


def plan(inputs: AttentionInputs, *, planes: int, entries: int) -> Plan:
    """Blocks whose scores or masks, `planes` numbers for a row and a key, are at most so many entries."""
    return list(_planned(inputs, planes, entries))


def _planned(inputs: AttentionInputs, planes: int, entries: int) -> Iterator[tuple[range, range]]:
    first = 0
    # The rows of a block follow from the keys that its first row sees.
    while first < inputs.q_len:
        # As many rows as one row has keys: the keys of a window's block are then at most twice its width. Not
        # more than an eighth of all where rows see fewer than all: half of a causal matrix is then left out.
        seen = len(_keys_of(inputs, first, first))
        most = inputs.k_len if seen == inputs.k_len else inputs.k_len // 8
        rows = min(inputs.q_len - first, max(_FEWEST_ROWS, min(seen, most)))
        keys = _keys_of(inputs, first, first + rows - 1)
        while rows > 1 and planes * rows * len(keys) > entries:
            # Too large: half the rows, which may also see fewer keys.
            rows = (rows + 1) // 2
            keys = _keys_of(inputs, first, first + rows - 1)
        yield range(first, first + rows), keys
        first += rows


def _keys_of(inputs: AttentionInputs, first_query: int, last_query: int) -> range:
    if inputs.mask is None:
        return range(inputs.k_len)
    # The mask tells a range that holds every key which one of these rows may see.
    start, stop = inputs.mask.key_range(first_query, last_query, inputs.k_len)
    # Rows that see nothing get a key all the same: the mask hides it.
    start = min(start, inputs.k_len - 1)
    return range(start, max(stop, start + 1))


def by_blocks(inputs: AttentionInputs, block: Block, blocks: Plan, learned: tuple[Tensor, ...]) -> Tensor:
    """The context, block by block; a block's scores are never kept."""
    # Only a backward pass needs the autograd function.
    if torch.is_grad_enabled() and any(x.requires_grad for x in (inputs.q, inputs.k, inputs.v, *learned)):
        arguments = (inputs, block, blocks, inputs.q, inputs.k, inputs.v, *learned)
        context: Tensor = _Blocks.apply(*arguments)  # type: ignore[no-untyped-call]
        return context
    return _forward(inputs, block, blocks, inputs.q, inputs.k, inputs.v)


def _forward(inputs: AttentionInputs, block: Block, blocks: Plan, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    if len(blocks) == 1:  # without a copy into another context
        ((rows, keys),) = blocks
        return block(inputs, *parts(q, k, v, rows, keys), rows, keys)
    # Each block writes its own rows; every row lies in exactly one block.
    context = empty_context(q, v)
    for rows, keys in blocks:
        context[:, :, _slice(rows)] = block(inputs, *parts(q, k, v, rows, keys), rows, keys)
    return context


def empty_context(q: Tensor, v: Tensor) -> Tensor:
    """(batch, heads, queries, v_dim), laid out so that joining the heads copies nothing."""
    # Laid out as (batch, queries, heads, v_dim), seen as (batch, heads, queries, v_dim).
    batch, heads, queries, _ = q.shape
    return v.new_empty(batch, queries, heads, v.shape[3]).transpose(1, 2)


class _Blocks(torch.autograd.Function):
    """Each block is computed again in the backward pass, so that what autograd holds stays O(N) too.

    Not `torch.utils.checkpoint`: what it keeps from block to block lies between the blocks' large tensors in
    the allocator's heap, which then grows with the number of blocks. Here blocks write into what is there.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: AttentionInputs,
        block: Block,
        blocks: Plan,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *learned: Tensor,
    ) -> Tensor:
        # The record without its tensors: what is saved can then be let go of and made again, by checkpoints.
        ctx.inputs = inputs.changed(q=_shape_of(q), k=_shape_of(k), v=_shape_of(v))
        ctx.block, ctx.blocks, ctx.learned = block, blocks, learned
        ctx.save_for_backward(q, k, v, *learned)
        return _forward(inputs, block, blocks, q, k, v)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *_ = ctx.saved_tensors
        wanted = [tensor for tensor in ctx.learned if tensor.requires_grad]
        # Many blocks add to the gradient of a key: half precision would lose the later ones.
        wide = torch.promote_types(q.dtype, torch.float32)
        # The sums of all blocks' gradients.
        d_q, d_k, d_v = (torch.zeros_like(tensor, dtype=wide) for tensor in (q, k, v))
        of_learned = [torch.zeros_like(tensor) for tensor in wanted]
        for rows, keys in ctx.blocks:
            # Leaves of a graph that lives for this block only.
            own = [part.detach().requires_grad_() for part in parts(q, k, v, rows, keys)]
            with torch.enable_grad(), torch.autocast(q.device.type, enabled=False):
                context = ctx.block(ctx.inputs, *own, rows, keys)
                # A parameter may have no part in a block.
                gradients = torch.autograd.grad(
                    context, [*own, *wanted], upstream[:, :, _slice(rows)], allow_unused=True
                )
            # Views of the sums, so that adding to them adds to the whole.
            totals = [*parts(d_q, d_k, d_v, rows, keys), *of_learned]
            for total, gradient in zip(totals, gradients, strict=True):
                if gradient is not None:
                    total += gradient
        # In the order of forward's arguments; the record, the function and the plan have none.
        answers = iter(of_learned)
        return (
            # inputs, block, blocks
            *(None, None, None),
            *(total.to(q.dtype) for total in (d_q, d_k, d_v)),
            *(next(answers) if tensor.requires_grad else None for tensor in ctx.learned),
        )


def _shape_of(tensor: Tensor) -> Tensor:
    """A tensor of the same shape, type and device that takes the memory of one number, which nobody reads."""
    return tensor.new_zeros(()).expand(tensor.shape)


def parts(q: Tensor, k: Tensor, v: Tensor, rows: range, keys: range) -> tuple[Tensor, Tensor, Tensor]:
    """Views of some rows of q, and of some keys of k and v."""
    return q[:, :, _slice(rows)], k[:, :, _slice(keys)], v[:, :, _slice(keys)]


def _slice(positions: range) -> slice:
    return slice(positions.start, positions.stop)
