"""Layers, residual connections, feed-forward and embeddings, each by hand."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard.blocks import (
    ACTIVATIONS,
    DecoderLayer,
    Embeddings,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    Residual,
)
from regard.core import Causal, Padding, Taps
from regard.core.errors import InputError
from tolerances import FP64, assert_close_to_largest

BATCH, LENGTH, ENCODED, D_MODEL, D_FF, HEADS = 2, 7, 5, 6, 11, 3

BY_HAND: dict[str, Callable[[float], float]] = {
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "gelu_new": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: max(x, 0.0),
    "silu": lambda x: x / (1 + math.exp(-x)),
}
BY_HAND["gelu_pytorch_tanh"] = BY_HAND["gelu_new"]
BY_HAND["swish"] = BY_HAND["silu"]


def norm_by_hand(vector: list[float], weight: list[float], bias: list[float], eps: float) -> list[float]:
    mean = math.fsum(vector) / len(vector)
    variance = math.fsum((x - mean) ** 2 for x in vector) / len(vector)
    return [
        w * (x - mean) / math.sqrt(variance + eps) + b for x, w, b in zip(vector, weight, bias, strict=True)
    ]


def normed(residual: Residual, x: Tensor) -> Tensor:
    norm = residual.norm
    weight, bias = norm.weight.tolist(), norm.bias.tolist()
    rows = [norm_by_hand(row, weight, bias, norm.eps) for row in x.flatten(0, -2).tolist()]
    return torch.tensor(rows, dtype=torch.float64).view_as(x)


def shaken(module: torch.nn.Module) -> torch.nn.Module:
    """Every parameter drawn anew: a fresh norm's ones and zeros would hide that it is not applied."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    return module.double()


# --- feed-forward


def test_every_activation_is_under_test() -> None:
    assert set(BY_HAND) == set(ACTIVATIONS)


@pytest.mark.parametrize("name", sorted(BY_HAND))
def test_feed_forward(name: str) -> None:
    ffn = FeedForward(3, 5, activation=name).double()
    x = torch.randn(2, 7, 3, dtype=torch.float64) * 3
    for b in range(2):
        for row in range(7):
            hidden = [
                BY_HAND[name](c + math.fsum(w * v for w, v in zip(weights, x[b, row].tolist(), strict=True)))
                for weights, c in zip(ffn.hidden.weight.tolist(), ffn.hidden.bias.tolist(), strict=True)
            ]
            wanted = [
                c + math.fsum(w * h for w, h in zip(weights, hidden, strict=True))
                for weights, c in zip(ffn.output.weight.tolist(), ffn.output.bias.tolist(), strict=True)
            ]
            assert ffn(x)[b, row].tolist() == pytest.approx(wanted, abs=FP64)


def test_an_unknown_activation() -> None:
    with pytest.raises(InputError, match=r"activation must be one of gelu, gelu_new, .*; got 'gelo'"):
        FeedForward(3, 5, activation="gelo")


@pytest.mark.parametrize(("point", "size"), [("hidden", 5), ("output", 3)])
def test_taps_of_the_feed_forward(point: str, size: int) -> None:
    ffn = FeedForward(3, 5)
    x = torch.randn(1, 7, 3)
    seen: list[Tensor] = []
    assert torch.equal(ffn(x, taps=Taps({point: seen.append})), ffn(x))
    assert seen[0].shape == (1, 7, size)
    assert torch.equal(ffn(x, taps=Taps({point: lambda value: value.clone()})), ffn(x))
    assert (ffn(x, taps=Taps({point: lambda value: value + 1})) - ffn(x)).abs().max().item() > 1e-2


# --- residual connections


def test_post_norm() -> None:
    residual = shaken(PostNorm(D_MODEL, norm_eps=1e-3))
    x = torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64)
    assert_close_to_largest(residual(x, torch.sin), normed(residual, x + x.sin()), FP64)


def test_pre_norm() -> None:
    residual = shaken(PreNorm(D_MODEL, norm_eps=1e-3))
    x = torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64)
    assert_close_to_largest(residual(x, torch.sin), x + normed(residual, x).sin(), FP64)


@pytest.mark.parametrize("kind", [PostNorm, PreNorm])
def test_dropout_of_a_residual_is_on_the_sublayer_in_training(kind: type) -> None:
    residual = kind(997, dropout_p=0.5).double()
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


# --- encoder layer


def encoder_layer(kind: type, **kwargs: float) -> EncoderLayer:
    layer = EncoderLayer(
        MultiHeadAttention(D_MODEL, HEADS),
        FeedForward(D_MODEL, D_FF),
        attention_residual=kind(D_MODEL, **kwargs),
        ffn_residual=kind(D_MODEL, **kwargs),
    )
    shaken(layer)
    return layer


def test_an_encoder_layer_with_post_norm() -> None:
    layer = encoder_layer(PostNorm)
    x = torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64)
    middle = normed(layer.attention_residual, x + layer.attention(x))
    wanted = normed(layer.ffn_residual, middle + layer.ffn(middle))
    assert_close_to_largest(layer(x), wanted, FP64)


def test_an_encoder_layer_with_pre_norm() -> None:
    layer = encoder_layer(PreNorm)
    x = torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64)
    middle = x + layer.attention(normed(layer.attention_residual, x))
    wanted = middle + layer.ffn(normed(layer.ffn_residual, middle))
    assert_close_to_largest(layer(x), wanted, FP64)


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
    *("ffn.hidden", "ffn.output", "output"),
]


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


# --- decoder layer


def decoder_layer(kind: type = PostNorm) -> DecoderLayer:
    layer = DecoderLayer(
        MultiHeadAttention(D_MODEL, HEADS),
        MultiHeadAttention(D_MODEL, HEADS),
        FeedForward(D_MODEL, D_FF),
        attention_residual=kind(D_MODEL),
        cross_attention_residual=kind(D_MODEL),
        ffn_residual=kind(D_MODEL),
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
    first = normed(layer.attention_residual, x + layer.attention(x, mask=Causal()))
    crossed = layer.cross_attention(first, encoded, mask=Padding(real))
    second = normed(layer.cross_attention_residual, first + crossed)
    wanted = normed(layer.ffn_residual, second + layer.ffn(second))
    assert_close_to_largest(layer(x, encoded, mask=Causal(), encoded_mask=Padding(real)), wanted, FP64)


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
        *("input", "attention.q", "attention.weights", "attention.output"),
        *("cross_attention.q", "cross_attention.k", "cross_attention.v", "cross_attention.scores"),
        *("cross_attention.weights", "cross_attention.context", "cross_attention.output"),
        *("ffn.hidden", "ffn.output", "output"),
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


# --- embeddings


def embeddings(num_token_types: int = 3, dropout_p: float = 0.0) -> Embeddings:
    made = Embeddings(
        vocab_size=13,
        d_model=6,
        max_seq_len=7,
        num_token_types=num_token_types,
        norm_eps=1e-3,
        dropout_p=dropout_p,
    )
    shaken(made)
    return made


@pytest.mark.parametrize("types", [None, [[0, 2, 1], [1, 1, 0]]])
def test_embeddings(types: list[list[int]] | None) -> None:
    made = embeddings()
    ids = [[3, 12, 0], [7, 7, 1]]
    assert made.token_types is not None
    tables = (made.tokens.weight.tolist(), made.positions.weight.tolist(), made.token_types.weight.tolist())
    rows = []
    for b in range(2):
        for i in range(3):
            kind = 0 if types is None else types[b][i]
            summands = (tables[0][ids[b][i]], tables[1][i], tables[2][kind])
            total = [math.fsum(parts) for parts in zip(*summands, strict=True)]
            rows.append(norm_by_hand(total, made.norm.weight.tolist(), made.norm.bias.tolist(), 1e-3))
    given = None if types is None else torch.tensor(types)
    output = made(torch.tensor(ids), token_types=given)
    assert_close_to_largest(output, torch.tensor(rows).view(2, 3, 6), 1e-6)
    assert_close_to_largest(output, torch.tensor(rows, dtype=torch.float64).view(2, 3, 6), FP64)


def test_embeddings_without_token_types() -> None:
    made = embeddings(num_token_types=0)
    assert made.token_types is None
    ids = torch.tensor([[3, 12, 0]])
    wanted = made.norm(made.tokens.weight[ids] + made.positions.weight[:3])
    assert_close_to_largest(made(ids), wanted, FP64)
    seen: list[Tensor] = []
    made(ids, taps=Taps({"token_types": seen.append}))
    assert seen == []


@pytest.mark.parametrize(
    ("point", "shape"),
    [("tokens", (2, 3, 6)), ("positions", (1, 3, 6)), ("token_types", (2, 3, 6)), ("output", (2, 3, 6))],
)
def test_taps_of_the_embeddings(point: str, shape: tuple[int, ...]) -> None:
    made = embeddings()
    ids = torch.tensor([[3, 12, 0], [7, 7, 1]])
    seen: list[Tensor] = []
    assert torch.equal(made(ids, taps=Taps({point: seen.append})), made(ids))
    assert [tuple(value.shape) for value in seen] == [shape]
    assert torch.equal(made(ids, taps=Taps({point: lambda value: value.clone()})), made(ids))
    noise = torch.randn(shape, dtype=torch.float64)
    written = made(ids, taps=Taps({point: lambda value: value + noise}))
    assert (written - made(ids)).abs().max().item() > 1e-2


def test_dropout_of_the_embeddings() -> None:
    made = embeddings(dropout_p=0.5)
    ids = torch.tensor([[3, 12, 0, 5, 6, 1, 2]])
    torch.manual_seed(3)
    trained = made(ids)
    torch.manual_seed(3)
    assert torch.equal(made(ids), trained)
    whole = made.eval()(ids)
    kept = trained != 0
    assert 0 < int(kept.sum()) < kept.numel()
    assert_close_to_largest(trained, torch.where(kept, 2 * whole, 0.0), FP64)
