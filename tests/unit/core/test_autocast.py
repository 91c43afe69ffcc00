"""Attention inside `torch.autocast` is what it is outside, to the last bit."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.core import (
    AttentionInputs,
    Causal,
    SeededDropout,
    attention_errors,
    attention_scores,
    attention_weights,
    fused_attention,
    reference_attention,
    row_statistics,
)


def _gradient(inputs: AttentionInputs) -> Tensor:
    leaf = inputs.q.detach().requires_grad_()
    written = inputs.changed(q=leaf, dropout=SeededDropout(0.3, seed=1))
    fused_attention(written).square().sum().backward()
    assert leaf.grad is not None
    return leaf.grad


ASKED: dict[str, Callable[[AttentionInputs], Any]] = {
    "fused": fused_attention,
    "gradient": _gradient,
    "reference": lambda inputs: reference_attention(inputs).context,
    "scores": attention_scores,
    "weights": attention_weights,
    "received": lambda inputs: row_statistics(inputs).received,
    "mass": lambda inputs: row_statistics(inputs, values=inputs.v[0, 0]).mass,
    "errors": lambda inputs: torch.tensor(attention_errors(inputs, fused_attention(inputs))),
}


@pytest.mark.parametrize("asked", ASKED)
def test_nothing_changes_inside(asked: str) -> None:
    q, k, v = torch.randn(3, 2, 3, 7, 5)
    inputs = AttentionInputs(q=q, k=k, v=v, mask=Causal())
    expected = ASKED[asked](inputs)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ASKED[asked](inputs), expected)
