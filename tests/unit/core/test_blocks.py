"""Attention by blocks of queries: what many of them add to one gradient."""

import torch

from regard.core import AttentionInputs
from regard.core._blocks import by_blocks, plan
from regard.core._fused import attend_block


def test_many_blocks_add_up_in_more_than_half_precision() -> None:
    """A single key has the weight 1, so that its value's gradient is the number of queries."""
    queries = 64 * 1031
    q, k, v = (torch.zeros(1, 1, count, 1, dtype=torch.bfloat16) for count in (queries, 1, 1))
    v.requires_grad_()
    inputs = AttentionInputs(q=q, k=k, v=v)
    blocks = plan(inputs, planes=1, entries=64)
    assert len(blocks) == 1031
    by_blocks(inputs, attend_block, blocks, ()).sum().backward()
    # In bfloat16 the sum of 64s would stay at 16,384, half of whose last digit they are.
    assert v.grad is not None
    assert v.grad.item() == torch.tensor(queries, dtype=torch.bfloat16).item()
