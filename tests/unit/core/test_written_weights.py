"""A record whose weights were written: they are told, and nothing that q and k would tell is."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from regard.core import (
    AttentionInputs,
    Causal,
    attention_errors,
    attention_scores,
    attention_weights,
    fused_attention,
    reference_attention,
)
from regard.core.errors import InputError
from tolerances import FP64

HEADS, KV_HEADS, QUERIES, KEYS, DIM = 6, 3, 5, 7, 2


@pytest.fixture
def written() -> AttentionInputs:
    return AttentionInputs(
        q=torch.randn(2, HEADS, QUERIES, DIM, dtype=torch.float64),
        k=torch.randn(2, KV_HEADS, KEYS, DIM, dtype=torch.float64),
        v=torch.randn(2, KV_HEADS, KEYS, DIM, dtype=torch.float64),
        sinks=torch.randn(HEADS, dtype=torch.float64),
        weights=torch.randn(2, HEADS, QUERIES, KEYS + 1, dtype=torch.float64),
    )


def test_the_weights_are_the_written_ones(written: AttentionInputs) -> None:
    assert written.weights is not None
    assert torch.equal(attention_weights(written), written.weights)
    rows, keys = torch.tensor([4, 1]), torch.tensor([7, 0, 3])
    assert torch.equal(attention_weights(written, rows, keys), written.weights[:, :, rows][..., keys])
    for head in (0, 4, -1):
        assert torch.equal(attention_weights(written.head(head)), written.weights[:, [head]])
    assert "weights" in repr(written)


def test_the_context_is_theirs(written: AttentionInputs) -> None:
    assert written.weights is not None
    context = torch.einsum(
        "bhqk,bhkd->bhqd", written.weights[..., :KEYS], written.v.repeat_interleave(2, dim=1)
    )
    errors = attention_errors(written, context)
    assert errors.row_sum == 0.0
    assert errors.context < FP64
    assert attention_errors(written, context.roll(1, dims=1)).context > 0.1
    own = replace(written, weights=None)
    assert attention_errors(own, context).context > 0.1


@pytest.mark.parametrize("ask", [attention_scores, reference_attention, fused_attention])
def test_what_q_and_k_would_tell_is_refused(written: AttentionInputs, ask: Callable[..., object]) -> None:
    with pytest.raises(InputError, match="an edit wrote the weights of this attention layer"):
        ask(written)
    ask(replace(written, weights=None, sinks=None, mask=Causal()))


def test_weights_of_another_shape(written: AttentionInputs) -> None:
    with pytest.raises(InputError, match=r"weights must have shape .* = \(2, 6, 5, 8\); got \(2, 6, 5, 7\)"):
        replace(written, weights=torch.zeros(2, HEADS, QUERIES, KEYS))
