"""Encoder and decoder layers by hand, and the points that they offer."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.blocks import (
    DecoderLayer,
    FeedForward,
    GatedFeedForward,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    RMSNorm,
    SandwichNorm,
    SelfAttentionLayer,
)
from regard.core import Causal, Padding, Taps
from tolerances import FP64, assert_close_to_largest
from unit.blocks.by_hand import normed, shaken
from unit.blocks.fakes import FakeRotation

BATCH, LENGTH, ENCODED, D_MODEL, D_FF, HEADS = 2, 7, 5, 6, 11, 3


# --- encoder layer


def encoder_layer(kind: type) -> SelfAttentionLayer:
    layer = SelfAttentionLayer(
        MultiHeadAttention(D_MODEL, HEADS),
        FeedForward(D_MODEL, D_FF),
        attention_residual=kind(nn.LayerNorm(D_MODEL)),
        ffn_residual=kind(nn.LayerNorm(D_MODEL)),
    )
    shaken(layer)
    return layer


def test_an_encoder_layer_with_post_norm() -> None:
    layer = encoder_layer(PostNorm)
    x = torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64)
    middle = normed(layer.attention_residual.norm, x + layer.attention(x))
    wanted = normed(layer.ffn_residual.norm, middle + layer.ffn(middle))
    assert_close_to_largest(layer(x), wanted, FP64)


def test_an_encoder_layer_with_pre_norm() -> None:
    layer = encoder_layer(PreNorm)
    x = torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64)
    middle = x + layer.attention(normed(layer.attention_residual.norm, x))
    wanted = middle + layer.ffn(normed(layer.ffn_residual.norm, middle))
    assert_close_to_largest(layer(x), wanted, FP64)


def test_a_layer_of_gemma_s_kind() -> None:
    layer = SelfAttentionLayer(
        MultiHeadAttention(D_MODEL, HEADS, num_kv_heads=1, use_bias=False),
        GatedFeedForward(D_MODEL, D_FF, activation="gelu_pytorch_tanh"),
        attention_residual=SandwichNorm(RMSNorm(D_MODEL, offset=1.0), RMSNorm(D_MODEL, offset=1.0)),
        ffn_residual=SandwichNorm(RMSNorm(D_MODEL, offset=1.0), RMSNorm(D_MODEL, offset=1.0)),
    )
    shaken(layer)
    x = torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64)
    first, second = layer.attention_residual, layer.ffn_residual
    assert isinstance(first, SandwichNorm)
    assert isinstance(second, SandwichNorm)
    middle = x + first.after(layer.attention(first.before(x), mask=Causal()))
    wanted = middle + second.after(layer.ffn(second.before(middle)))
    assert_close_to_largest(layer(x, mask=Causal()), wanted, FP64)


def test_the_sublayers_may_be_surrounded_each_in_its_way() -> None:
    layer = SelfAttentionLayer(
        MultiHeadAttention(D_MODEL, HEADS),
        FeedForward(D_MODEL, D_FF),
        attention_residual=PreNorm(nn.LayerNorm(D_MODEL)),
        ffn_residual=PostNorm(nn.LayerNorm(D_MODEL)),
    )
    shaken(layer)
    x = torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64)
    middle = x + layer.attention(normed(layer.attention_residual.norm, x))
    wanted = normed(layer.ffn_residual.norm, middle + layer.ffn(middle))
    assert_close_to_largest(layer(x), wanted, FP64)


def test_a_rotation_reaches_the_attention() -> None:
    layer = encoder_layer(PreNorm)
    x = torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64)
    rotation = FakeRotation(torch.arange(LENGTH)[None])
    middle = x + layer.attention(normed(layer.attention_residual.norm, x), rotation=rotation)
    wanted = middle + layer.ffn(normed(layer.ffn_residual.norm, middle))
    assert_close_to_largest(layer(x, rotation=rotation), wanted, FP64)
    assert (layer(x, rotation=rotation) - layer(x)).abs().max().item() > 1e-3


def test_mask_and_bias_reach_the_attention() -> None:
    layer = encoder_layer(PostNorm)
    x = torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64)
    real = torch.ones(BATCH, LENGTH, dtype=torch.bool)
    real[:, -2:] = False
    short = layer(x[:, :-2])
    assert_close_to_largest(layer(x, mask=Padding(real))[:, :-2], short, FP64)
    bias = torch.zeros(1, 1, 1, LENGTH, dtype=torch.float64)
    bias[..., -2:] = -1e9
    assert_close_to_largest(layer(x, bias=bias)[:, :-2], short, FP64)
    assert (layer(x)[:, :-2] - short).abs().max().item() > 1e-3


ENCODER_POINTS = [
    "input",
    *(f"attention.{name}" for name in ("q", "k", "v", "scores", "weights", "context", "output")),
    *("middle", "ffn.hidden", "ffn.output", "output"),
]


def order_of(layer: SelfAttentionLayer | DecoderLayer, *inputs: Tensor) -> list[str]:
    seen: list[str] = []

    def listen(name: str) -> object:
        return lambda value: seen.append(name)

    layer(*inputs, taps=Taps({name: listen(name) for name in layer.tap_names()}))
    everything: list[object] = []
    layer(*inputs, taps=Taps({"*": everything.append}))
    assert len(everything) == len(seen)
    return seen


@pytest.mark.parametrize("kind", [PostNorm, PreNorm])
def test_points_of_an_encoder_layer_are_offered_in_their_order(kind: type) -> None:
    layer = encoder_layer(kind)
    names = layer.tap_names()
    assert order_of(layer, torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64)) == names
    assert [name for name in names if name != "attention.inputs"] == ENCODER_POINTS


def test_points_of_a_decoder_layer_are_offered_in_their_order(decoded: tuple[Tensor, Tensor]) -> None:
    layer = decoder_layer()
    names = layer.tap_names()
    assert order_of(layer, *decoded) == names
    crossed = [name.replace("attention", "cross_attention") for name in ENCODER_POINTS if "." in name][:7]
    wanted = [*ENCODER_POINTS[:8], *crossed, *ENCODER_POINTS[8:]]
    assert [name for name in names if not name.endswith(".inputs")] == wanted


@pytest.mark.parametrize("kind", [PostNorm, PreNorm])
@pytest.mark.parametrize("point", ENCODER_POINTS)
def test_taps_of_an_encoder_layer(kind: type, point: str) -> None:
    layer = encoder_layer(kind)
    x = torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64)
    seen: list[Tensor] = []
    read = layer(x, taps=Taps({point: seen.append}))
    assert len(seen) == 1
    assert_close_to_largest(read, layer(x), FP64)
    assert torch.equal(layer(x, taps=Taps({point: lambda value: value.clone()})), read)
    noise = torch.randn(seen[0].shape, dtype=torch.float64)
    assert (layer(x, taps=Taps({point: lambda value: value + noise})) - read).abs().max().item() > 1e-3


class Doubled(SelfAttentionLayer):
    def sublayers(self, x: Tensor, **given: Any) -> Tensor:
        return 2 * super().sublayers(x, **given)


def test_what_a_layer_has_more_lies_between_its_ends() -> None:
    layer = encoder_layer(PostNorm)
    more = Doubled(
        layer.attention,
        layer.ffn,
        attention_residual=layer.attention_residual,
        ffn_residual=layer.ffn_residual,
    )
    x = torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64)
    seen: list[Tensor] = []
    read = more(x, mask=Causal(), taps=Taps({"input": lambda value: value + 1, "output": seen.append}))
    assert torch.equal(read, 2 * layer(x + 1, mask=Causal()))
    assert torch.equal(seen[0], read)


# --- decoder layer


def decoder_layer(kind: type = PostNorm) -> DecoderLayer:
    layer = DecoderLayer(
        MultiHeadAttention(D_MODEL, HEADS),
        MultiHeadAttention(D_MODEL, HEADS),
        FeedForward(D_MODEL, D_FF),
        attention_residual=kind(nn.LayerNorm(D_MODEL)),
        cross_attention_residual=kind(nn.LayerNorm(D_MODEL)),
        ffn_residual=kind(nn.LayerNorm(D_MODEL)),
    )
    shaken(layer)
    return layer


@pytest.fixture
def decoded() -> tuple[Tensor, Tensor]:
    return (
        torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64),
        torch.randn(BATCH, ENCODED, D_MODEL, dtype=torch.float64),
    )


def test_a_decoder_layer_by_hand(decoded: tuple[Tensor, Tensor]) -> None:
    x, encoded = decoded
    layer = decoder_layer()
    real = torch.tensor([[True] * ENCODED, [True, True, False, False, False]])
    first = normed(layer.attention_residual.norm, x + layer.attention(x, mask=Causal()))
    crossed = layer.cross_attention(first, encoded, mask=Padding(real))
    second = normed(layer.cross_attention_residual.norm, first + crossed)
    wanted = normed(layer.ffn_residual.norm, second + layer.ffn(second))
    assert_close_to_largest(layer(x, encoded, mask=Causal(), encoded_mask=Padding(real)), wanted, FP64)


def test_bias_and_rotation_are_for_the_decoder_s_own_attention(decoded: tuple[Tensor, Tensor]) -> None:
    x, encoded = decoded
    layer = decoder_layer(PreNorm)
    bias = torch.randn(1, HEADS, LENGTH, LENGTH, dtype=torch.float64)
    rotation = FakeRotation(torch.arange(LENGTH)[None])
    own = layer.attention(normed(layer.attention_residual.norm, x), bias=bias, rotation=rotation)
    first = x + own
    crossed = layer.cross_attention(normed(layer.cross_attention_residual.norm, first), encoded)
    second = first + crossed
    wanted = second + layer.ffn(normed(layer.ffn_residual.norm, second))
    assert_close_to_largest(layer(x, encoded, bias=bias, rotation=rotation), wanted, FP64)


@pytest.mark.parametrize("kind", [PostNorm, PreNorm])
def test_a_causal_decoder_layer_does_not_see_the_future(kind: type, decoded: tuple[Tensor, Tensor]) -> None:
    x, encoded = decoded
    layer = decoder_layer(kind)
    before = layer(x, encoded, mask=Causal())
    for first_changed in range(1, LENGTH):
        later = x.clone()
        later[:, first_changed:] += torch.randn(BATCH, LENGTH - first_changed, D_MODEL, dtype=torch.float64)
        after = layer(later, encoded, mask=Causal())
        assert_close_to_largest(after[:, :first_changed], before[:, :first_changed], FP64)
        assert (after[:, first_changed:] - before[:, first_changed:]).abs().amax(dim=(0, 2)).min() > 1e-3
        open_eyes = layer(later, encoded)[:, :first_changed] - layer(x, encoded)[:, :first_changed]
        assert open_eyes.abs().max().item() > 1e-3


def test_a_padded_encoder_position_does_not_matter(decoded: tuple[Tensor, Tensor]) -> None:
    x, encoded = decoded
    layer = decoder_layer()
    real = torch.tensor([[True] * ENCODED, [True, True, False, False, False]])
    before = layer(x, encoded, encoded_mask=Padding(real))
    changed = encoded.clone()
    changed[1, 2:] = 1e6
    assert torch.equal(layer(x, changed, encoded_mask=Padding(real)), before)
    changed[1, 1] += 1.0
    assert not torch.equal(layer(x, changed, encoded_mask=Padding(real))[1], before[1])


@pytest.mark.parametrize(
    "point",
    [
        *("input", "attention.q", "attention.k", "attention.v", "attention.scores", "attention.weights"),
        *("attention.context", "attention.output"),
        *("cross_attention.q", "cross_attention.k", "cross_attention.v", "cross_attention.scores"),
        *("cross_attention.weights", "cross_attention.context", "cross_attention.output"),
        *("middle", "ffn.hidden", "ffn.output", "output"),
    ],
)
def test_taps_of_a_decoder_layer(decoded: tuple[Tensor, Tensor], point: str) -> None:
    layer = decoder_layer()
    seen: list[Tensor] = []
    read = layer(*decoded, mask=Causal(), taps=Taps({point: seen.append}))
    assert len(seen) == 1
    if point == "cross_attention.weights":
        assert seen[0].shape == (BATCH, HEADS, LENGTH, ENCODED)
    assert_close_to_largest(read, layer(*decoded, mask=Causal()), FP64)
    assert torch.equal(layer(*decoded, mask=Causal(), taps=Taps({point: lambda value: value.clone()})), read)
    noise = torch.randn(seen[0].shape, dtype=torch.float64)
    written = layer(*decoded, mask=Causal(), taps=Taps({point: lambda value: value + noise}))
    assert (written - read).abs().max().item() > 1e-3
