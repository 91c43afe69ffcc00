"""Encoder and decoder layers by hand, and the points that they offer."""

from collections.abc import Callable
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
from unit.blocks.by_hand import normed, read_and_written, rms_norm_by_hand, shaken
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
    read_and_written(point, lambda taps: layer(x, taps=taps), moves=1e-3)


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
    seen = read_and_written(point, lambda taps: layer(*decoded, mask=Causal(), taps=taps), moves=1e-3)
    if point == "cross_attention.weights":
        assert seen.shape == (BATCH, HEADS, LENGTH, ENCODED)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64)


def test_post_norm(x: torch.Tensor) -> None:
    residual = PostNorm(nn.LayerNorm(D_MODEL, eps=1e-3))
    shaken(residual)
    assert_close_to_largest(residual(x, torch.sin), normed(residual.norm, x + x.sin()), FP64)


def test_pre_norm(x: torch.Tensor) -> None:
    residual = PreNorm(nn.LayerNorm(D_MODEL, eps=1e-3))
    shaken(residual)
    assert_close_to_largest(residual(x, torch.sin), x + normed(residual.norm, x).sin(), FP64)


def test_sandwich_norm(x: torch.Tensor) -> None:
    residual = SandwichNorm(nn.LayerNorm(D_MODEL, eps=1e-3), nn.LayerNorm(D_MODEL, eps=1e-2))
    shaken(residual)
    wanted = x + normed(residual.after, normed(residual.before, x).sin())
    assert_close_to_largest(residual(x, torch.sin), wanted, FP64)


def test_any_norm_can_be_handed_in(x: torch.Tensor) -> None:
    residual = PostNorm(RMSNorm(D_MODEL, eps=1e-3))
    shaken(residual)
    weight = residual.norm.weight.tolist()
    wanted = [[rms_norm_by_hand(row, weight, 0.0, 1e-3) for row in rows] for rows in (x + x.sin()).tolist()]
    assert_close_to_largest(residual(x, torch.sin), wanted, FP64)


def test_the_names_of_the_norms() -> None:
    norm = nn.LayerNorm(D_MODEL)
    assert set(PostNorm(norm).state_dict()) == {"norm.weight", "norm.bias"}
    assert set(PreNorm(norm).state_dict()) == {"norm.weight", "norm.bias"}
    sandwich = SandwichNorm(RMSNorm(D_MODEL), RMSNorm(D_MODEL))
    assert set(sandwich.state_dict()) == {"before.weight", "after.weight"}


@pytest.mark.parametrize("kind", [PostNorm, PreNorm])
def test_dropout_of_a_residual_is_on_the_sublayer_in_training(kind: type) -> None:
    residual = kind(nn.LayerNorm(997), dropout_p=0.5).double()
    x = torch.randn(1, 997, dtype=torch.float64)
    torch.manual_seed(3)
    trained = residual(x, lambda inner: torch.ones_like(inner))
    torch.manual_seed(3)
    assert torch.equal(residual(x, lambda inner: torch.ones_like(inner)), trained)
    kept = torch.nn.functional.dropout(torch.ones_like(x), 0.0)
    assert torch.equal(
        residual.eval()(x, lambda inner: torch.ones_like(inner)),
        residual.norm(x + kept) if kind is PostNorm else x + kept,
    )
    if kind is PreNorm:
        added = (trained - x).round(decimals=9)
        assert set(added.flatten().tolist()) == {0.0, 2.0}


def test_dropout_of_a_sandwich_is_after_its_second_norm() -> None:
    residual = SandwichNorm(nn.Identity(), nn.LayerNorm(2), dropout_p=0.5).double()
    x = torch.zeros(997, 2, dtype=torch.float64)
    signs = torch.tensor([[-1.0, 1.0]], dtype=torch.float64).expand(997, 2)
    added = residual(x, lambda inner: signs * 1e6)
    # The norm gives -1 and 1, of which dropout leaves nothing or twice as much; before it, a dropped entry
    # would have changed its neighbour.
    assert set(added.round(decimals=9).flatten().tolist()) == {-2.0, 0.0, 2.0}
    assert_close_to_largest(residual.eval()(x, lambda inner: signs * 1e6), signs, FP64)


@pytest.mark.parametrize("offset", [0.0, 1.0, 0.25])
@pytest.mark.parametrize("eps", [0.0, 0.3])
def test_rms_norm(offset: float, eps: float) -> None:
    norm = RMSNorm(5, eps=eps, offset=offset)
    shaken(norm)
    x = torch.randn(2, 7, 5, dtype=torch.float64) * 3
    output = norm(x)
    assert output.dtype == torch.float64
    for b in range(2):
        for row in range(7):
            wanted = rms_norm_by_hand(x[b, row].tolist(), norm.weight.tolist(), offset, eps)
            assert output[b, row].tolist() == pytest.approx(wanted, abs=FP64)


@pytest.mark.parametrize("offset", [0.0, 1.0, 0.25])
def test_a_new_one_only_divides_by_the_root_mean_square(offset: float) -> None:
    norm = RMSNorm(2, eps=0.0, offset=offset).double()
    assert norm.weight.tolist() == [1.0 - offset] * 2
    assert_close_to_largest(norm(torch.tensor([3.0, 4.0], dtype=torch.float64)) * 12.5**0.5, [3.0, 4.0], FP64)


def test_it_keeps_the_mean_which_a_layer_norm_takes_away() -> None:
    x = torch.full((1, 5), 3.0)
    assert torch.equal(RMSNorm(5, eps=0.0)(x), torch.ones(1, 5))


def test_zeros_have_no_direction_and_stay() -> None:
    x = torch.zeros(1, 5, requires_grad=True)
    RMSNorm(5)(x).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_the_mean_is_taken_in_float32() -> None:
    # 300^2 is beyond float16; the sum of 4096 squares of 1 stops growing at 256 in bfloat16.
    assert torch.equal(RMSNorm(7).half()(torch.full((1, 7), 300.0).half()), torch.ones(1, 7).half())
    ones = torch.ones(1, 4096, dtype=torch.bfloat16)
    assert torch.equal(RMSNorm(4096).to(torch.bfloat16)(ones), ones)


def _llama(size: int, eps: float) -> nn.Module:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    return LlamaRMSNorm(size, eps=eps)


def _t5(size: int, eps: float) -> nn.Module:
    from transformers.models.t5.modeling_t5 import T5LayerNorm

    return T5LayerNorm(size, eps=eps)


def _gemma(size: int, eps: float) -> nn.Module:
    from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm

    return Gemma2RMSNorm(size, eps=eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("theirs", "offset"), [(_llama, 0.0), (_t5, 0.0), (_gemma, 1.0)])
def test_bit_for_bit_as_transformers(
    theirs: Callable[[int, float], nn.Module], offset: float, dtype: torch.dtype
) -> None:
    oracle, norm = theirs(37, 1e-5), RMSNorm(37, eps=1e-5, offset=offset)
    with torch.no_grad():
        norm.weight.copy_(torch.randn(37))
        oracle.weight.copy_(norm.weight)
    oracle, norm = oracle.to(dtype), norm.to(dtype)
    x = torch.randn(3, 101, 37).to(dtype) * 3
    output = norm(x)
    assert output.dtype == dtype
    assert torch.equal(output, oracle(x))
    if dtype == torch.float32:
        return
    # Where it is rounded matters: the other order differs somewhere.
    wide = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
    other = (wide * norm.weight.float()).to(dtype) if not offset else (1 + norm.weight) * wide.to(dtype)
    assert not torch.equal(output, other)


def test_it_says_what_it_is() -> None:
    assert repr(RMSNorm(5, eps=1e-5, offset=1.0)) == "RMSNorm(5, eps=1e-05, offset=1.0)"
