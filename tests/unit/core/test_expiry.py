"""Expire-Span against its equations as loops over floats, and a cache that forgets."""

import math

import pytest
import torch
from torch import Tensor

from regard.core import (
    AttentionInputs,
    Causal,
    ForgettingCache,
    Padding,
    Ramp,
    Unexpired,
    attention_weights,
    fused_attention,
    of_keys,
    reference_attention,
)
from regard.core.errors import InputError
from tolerances import FP64, assert_close_to_largest

BATCH, HEADS, LENGTH, DIM = 2, 3, 17, 5
RAMP = 2.5


def by_hand(q: Tensor, k: Tensor, v: Tensor, spans: Tensor) -> Tensor:
    """Equations of section 4.1, as they are printed: mask the softmax's weights, and norm them again."""
    found = torch.zeros_like(v)
    for b in range(BATCH):
        for h in range(HEADS):
            for t in range(LENGTH):
                powers = [math.exp(float(q[b, h, t] @ k[b, h, i]) / math.sqrt(DIM)) for i in range(t + 1)]
                a = [each / math.fsum(powers) for each in powers]
                m = [max(0.0, min(1.0, 1.0 + (float(spans[b, i]) - (t - i)) / RAMP)) for i in range(t + 1)]
                total = math.fsum(m[i] * a[i] for i in range(t + 1))
                for i in range(t + 1):
                    found[b, h, t] += m[i] * a[i] / total * v[b, h, i]
    return found


def drawn() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    q, k, v = (torch.randn(BATCH, HEADS, LENGTH, DIM, dtype=torch.float64) for _ in "qkv")
    return q, k, v, 6.0 * torch.rand(BATCH, LENGTH, dtype=torch.float64)


def record(q: Tensor, k: Tensor, v: Tensor, spans: Tensor) -> AttentionInputs:
    mask = Causal() & Unexpired(spans, RAMP)
    return AttentionInputs(q=q, k=k, v=v, mask=mask, bias=Ramp(spans, RAMP))


def test_both_forms_are_the_papers_loop() -> None:
    q, k, v, spans = drawn()
    expected = by_hand(q, k, v, spans)
    inputs = record(q, k, v, spans)
    assert_close_to_largest(reference_attention(inputs).context, expected, FP64)
    assert_close_to_largest(fused_attention(inputs), expected, FP64)
    weights = attention_weights(inputs)
    age = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    gone = (spans[:, None] - age + RAMP <= 0)[:, None].expand_as(weights)
    assert gone.any()
    assert not weights[gone].any()


def test_gradients_reach_the_spans_on_their_ramp_only() -> None:
    q, k, v = (each[:1, :1, :7].clone().requires_grad_() for each in drawn()[:3])
    spans = (3.0 * torch.rand(1, 7, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda *each: fused_attention(record(*each)), (q, k, v, spans))
    gradient = torch.autograd.grad(fused_attention(record(q, k, v, spans)).square().sum(), spans)[0]
    age = 6 - torch.arange(7)  # of each key, for the last query
    assert gradient.isfinite().all()
    assert torch.equal(gradient[0] != 0, spans[0] < age)  # somebody has come to its ramp


def test_blocks_leave_out_what_has_expired() -> None:
    """A plan over many positions reads few keys, and changes nothing."""
    spans = torch.rand(1, 1500) * 40
    mask = Unexpired(spans, 8.0)
    start, stop = mask.key_range(1000, 1063, 1500)
    assert 940 < start < 1000
    assert stop == 1500
    dense = mask.dense(1500, 1500)[0, 0]
    for query in range(0, 1500, 7):
        start, _ = mask.key_range(query, query, 1500)
        assert not dense[query, :start].any()
    assert mask.simplified(1500, 1500) is mask
    assert Unexpired(spans, 2000.0).simplified(1500, 1500) is None


@torch.no_grad()
def test_a_cache_forgets_and_nothing_changes() -> None:
    length = 120
    q, k, v = (torch.randn(BATCH, HEADS, length, DIM, dtype=torch.float64) for _ in "qkv")
    spans = 12.0 * torch.rand(BATCH, length, dtype=torch.float64)
    real = torch.ones(BATCH, length, dtype=torch.bool)
    real[0, :3] = False
    mask = Padding(real) & Causal() & Unexpired(spans, RAMP)
    expected = reference_attention(AttentionInputs(q=q, k=k, v=v, mask=mask, bias=Ramp(spans, RAMP))).context
    cache, held = ForgettingCache(ramp=RAMP, back=3), []
    at = 0
    for size in [1, 7, *[1] * 60, 5, *[1] * 47]:
        own, positions = cache.remember(spans[:, at : at + size])
        keys, values = cache.append(k[:, :, at : at + size], v[:, :, at : at + size])
        before = of_keys(Padding(real) & Causal(offset=at), positions)
        assert before is not None
        inputs = AttentionInputs(
            q=q[:, :, at : at + size],
            k=keys,
            v=values,
            mask=before & Unexpired(own, RAMP, at, positions),
            bias=Ramp(own, RAMP, at, positions),
        )
        at += size
        assert_close_to_largest(fused_attention(inputs), expected[:, :, at - size : at], FP64)
        held.append(keys.shape[2])
        if len(held) == 50:
            cache.cut(at := at - 3)
    assert at == cache.length == 117
    assert max(held) < 32
    with pytest.raises(InputError, match=r"length must be from \d+ to 117 \(what expired before"):
        cache.cut(80)


@pytest.mark.parametrize(
    ("spans", "ramp", "message"),
    [
        (torch.ones(2, 3), 0.0, "ramp must be greater than 0; got 0.0"),
        (torch.ones(3), 1.0, r"spans must be floating point of shape \(batch, keys\)"),
    ],
)
def test_refused(spans: Tensor, ramp: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Ramp(spans, ramp)
    with pytest.raises(InputError, match=message):
        Unexpired(spans, ramp)
