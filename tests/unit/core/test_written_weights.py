"""A record whose weights were written: they are told, and nothing that q and k would tell is."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

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
    row_statistics,
)
from regard.core.errors import InputError
from tolerances import FP64, assert_close_to_largest

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
    with pytest.raises(
        InputError, match="an edit wrote the weights of this attention layer, of head 0, 1, 2"
    ):
        ask(written)
    some = replace(written, weights=written.weights[:, :2], written=(1, 4))  # type: ignore[index]
    with pytest.raises(InputError, match=r"of head 1, 4, .*for another head or layer"):
        ask(some)
    ask(some.head(2))
    ask(replace(written, weights=None, sinks=None, mask=Causal()))


def test_heads_that_were_not_written_are_told_by_q_and_k(written: AttentionInputs) -> None:
    assert written.weights is not None
    mask = Causal(offset=2)
    own = attention_weights(replace(written, weights=None, mask=mask))
    some = replace(written, weights=written.weights[:, :2], written=(1, 4), mask=mask)
    wanted = own.clone()
    wanted[:, [1, 4]] = written.weights[:, :2]
    assert torch.equal(attention_weights(some), wanted)
    for head in range(HEADS):
        assert torch.equal(attention_weights(some.head(head)), wanted[:, [head]])
    context = wanted[..., :KEYS] @ written.v.repeat_interleave(2, dim=1)
    errors = attention_errors(some, context)
    assert max(errors.row_sum, errors.context or 0.0, errors.softmax) < FP64
    context[:, 4] += 0.1
    assert attention_errors(some, context).context > 0.05  # type: ignore[operator]


@pytest.mark.parametrize("sinks", [True, False])
def test_statistics_of_written_weights(written: AttentionInputs, sinks: bool) -> None:
    """Of rows that sum to anything, one of them to nothing; beyond the mask, too."""
    assert written.weights is not None
    weights = written.weights[:, :2].abs().contiguous()
    weights[0, 1, 3] = 0.0
    weights = weights if sinks else weights[..., :-1]
    some = replace(
        written,
        weights=weights,
        written=(1, 4),
        mask=Causal(offset=2),
        sinks=written.sinks if sinks else None,
    )
    values = torch.randn(KEYS, 3, dtype=torch.float64)
    asked: dict[str, Any] = {"values": values, "positions": torch.arange(QUERIES), "top_k": 2}
    found = row_statistics(some, **asked)
    plain = row_statistics(some.unwritten(), **asked)
    others = [0, 2, 3, 5]
    for name in ("entropy", "largest", "received", "mass", "distance", "spread", "top_weights", "top_keys"):
        assert torch.equal(getattr(found, name)[:, others], getattr(plain, name)[:, others]), name
    keys, at = weights[..., :KEYS], [1, 4]
    far = (torch.arange(QUERIES)[:, None] - torch.arange(KEYS)).abs().double()
    total = keys.sum(dim=3).clamp(min=1e-300)
    distance = (keys * far).sum(dim=3) / total
    spread = ((keys * (far - distance[..., None]).square()).sum(dim=3) / total).sqrt()
    for name, wanted in (
        ("entropy", torch.special.entr(weights).sum(dim=3)),
        ("largest", keys.amax(dim=3)),
        ("received", keys.sum(dim=2)),
        ("mass", keys @ values),
        ("distance", distance),
        ("top_weights", keys.topk(2).values),
    ):
        assert_close_to_largest(getattr(found, name)[:, at], wanted, FP64)
    assert_close_to_largest(found.spread[:, at], spread, 1e-6)  # type: ignore[index]
    if sinks:
        assert torch.equal(found.sink[:, at], weights[..., -1])  # type: ignore[index]
    assert found.largest_at[0, 4, 3] == -1
    whole = row_statistics(replace(some, weights=weights.repeat(1, 3, 1, 1), written=None), **asked)
    assert_close_to_largest(whole.entropy[:, 2:4], found.entropy[:, at], FP64)
    with pytest.raises(InputError, match="not negative; an edit wrote some below 0, of head 1, 4"):
        row_statistics(replace(some, weights=-weights), **asked)


def test_weights_of_another_shape(written: AttentionInputs) -> None:
    with pytest.raises(InputError, match=r"weights must have shape .* = \(2, 6, 5, 8\); got \(2, 6, 5, 7\)"):
        replace(written, weights=torch.zeros(2, HEADS, QUERIES, KEYS))
