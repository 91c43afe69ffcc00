"""Attention that forgets, as a module: against its equations, and token by token against the whole."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.blocks import ExpireSpanAttention, FeedForward, PreNorm, SelfAttentionLayer
from regard.core import Causal, KeyValueCache, Padding, Taps
from regard.core.errors import InputError
from tolerances import FP64, assert_close_to_largest

D_MODEL, HEADS, LENGTH = 6, 2, 47


def made(**changes: Any) -> ExpireSpanAttention:
    return ExpireSpanAttention(D_MODEL, HEADS, **({"max_span": 9.0, "ramp": 3.0} | changes)).double().eval()


@torch.no_grad()
def test_spans_and_weights_are_those_of_the_paper() -> None:
    attention, x, seen = made(), torch.randn(1, LENGTH, D_MODEL).double(), {}
    with_taps = attention(x, mask=Causal(), taps=Taps({"*": lambda _: None, **_into(seen)}))
    assert_close_to_largest(attention(x, mask=Causal()), with_taps, FP64)
    w, b = attention.span.weight[0], float(attention.span.bias)
    for i in range(LENGTH):
        e = 9.0 / (1.0 + math.exp(-(float(w @ x[0, i]) + b)))
        assert math.isclose(float(seen["spans"][0, i]), e, rel_tol=FP64)
        t = LENGTH - 1
        m = max(0.0, min(1.0, 1.0 + (e - (t - i)) / 3.0))
        ratio = m * math.exp(float(seen["q"][0, 1, t] @ seen["k"][0, 1, i]) / math.sqrt(3))
        seen.setdefault("masked", []).append(ratio)
    expected = torch.tensor(seen["masked"], dtype=torch.float64)
    assert_close_to_largest(seen["weights"][0, 1, t], expected / expected.sum(), FP64)


def _into(seen: dict[str, Any]) -> dict[str, Any]:
    def keep(name: str) -> Any:
        return lambda value: seen.__setitem__(name, value)

    return {name: keep(name) for name in ("spans", "q", "k", "weights")}


@torch.no_grad()
@pytest.mark.parametrize("sizes", [[1] * LENGTH, [5, 1, 30, 11]])
def test_pieces_give_what_the_whole_gives(sizes: list[int]) -> None:
    layer = SelfAttentionLayer(
        made(),
        FeedForward(D_MODEL, 11),
        attention_residual=PreNorm(torch.nn.LayerNorm(D_MODEL)),
        ffn_residual=PreNorm(torch.nn.LayerNorm(D_MODEL)),
    ).double()
    x, real = torch.randn(3, LENGTH, D_MODEL).double(), torch.arange(LENGTH) >= torch.tensor([[0], [2], [4]])
    mask = Causal() & Padding(real)
    whole, state, found = layer(x, mask=mask), layer.new_state(), []
    for piece in x.split(sizes, dim=1):
        past = state.attention.length
        until = Causal() & Padding(real[:, : past + piece.shape[1]])
        found.append(layer(piece, mask=until.since(past), state=state))
    got = torch.cat(found, dim=1)
    assert_close_to_largest(got[real], whole[real], FP64)
    assert state.attention.length == LENGTH
    if max(sizes) == 1:
        assert state.attention.since(0)[0].shape[2] < 20


def test_gradients_reach_the_predictor() -> None:
    attention = made().train()
    attention(torch.randn(2, LENGTH, D_MODEL).double(), mask=Causal()).square().sum().backward()
    gradients: list[Tensor | None] = [each.grad for each in attention.parameters()]
    assert all(each is not None and each.isfinite().all() and each.any() for each in gradients)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda x: made(max_span=0), "max_span must be a number of positions above 0; got 0"),
        (lambda x: made(ramp=-1.0), "ramp must be a number of positions above 0; got -1.0"),
        (lambda x: made()(x, cache=KeyValueCache()), "cache must be from new_cache; got a KeyValueCache"),
        (lambda x: made()(x, source=x), "source and bias must be None"),
    ],
)
def test_refused(ask: Callable[[Tensor], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask(torch.randn(1, 3, D_MODEL).double())
