"""The feed-forward networks and their activations, by hand."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.activations import ACT2FN

from regard.blocks import ACTIVATIONS, FeedForward, GatedFeedForward, activation_named
from regard.core import Taps
from regard.core.errors import InputError
from tolerances import FP64, assert_close_to_largest
from unit.blocks.by_hand import project, read_and_written

BY_HAND: dict[str, Callable[[float], float]] = {
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "gelu_new": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: max(x, 0.0),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "tanh": math.tanh,
    # With the constant cut off as below: the full one would differ by 3e-11 only, but by that.
    "gelu_fast": lambda x: 0.5 * x * (1 + math.tanh(0.7978845608 * (x + 0.044715 * x**3))),
    "mish": lambda x: x * math.tanh(math.log1p(math.exp(x))),
    "quick_gelu": lambda x: x / (1 + math.exp(-1.702 * x)),
    "relu2": lambda x: max(x, 0.0) ** 2,
}
BY_HAND["gelu_pytorch_tanh"] = BY_HAND["gelu_new"]
BY_HAND["gelu_python"] = BY_HAND["gelu"]
BY_HAND["swish"] = BY_HAND["silu"]


def test_every_activation_is_under_test() -> None:
    assert set(BY_HAND) == set(ACTIVATIONS)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_the_same_as_transformers(name: str) -> None:
    x = torch.linspace(-9, 9, 1009, dtype=torch.float64)
    assert torch.allclose(ACTIVATIONS[name](x), ACT2FN[name](x), rtol=0, atol=FP64)


def test_numbers_from_the_formulas() -> None:
    x = torch.tensor([-1.5, 0.0, 2.0], dtype=torch.float64)
    assert activation_named("relu2")(x).tolist() == [0.0, 0.0, 4.0]
    quick = [-1.5 / (1 + math.exp(2.553)), 0.0, 2 / (1 + math.exp(-3.404))]
    assert activation_named("quick_gelu")(x).tolist() == pytest.approx(quick, abs=FP64)


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("name", sorted(BY_HAND))
def test_against_loops(name: str, use_bias: bool, kind: type) -> None:
    ffn = kind(3, 5, activation=name, use_bias=use_bias).double()
    x = torch.randn(2, 7, 3, dtype=torch.float64) * 3
    gated = kind is GatedFeedForward
    for vector, found in zip(x.flatten(0, 1).tolist(), ffn(x).flatten(0, 1).tolist(), strict=True):
        hidden = [BY_HAND[name](value) for value in project(ffn.gate if gated else ffn.hidden, vector)]
        if gated:
            hidden = [g * h for g, h in zip(hidden, project(ffn.up, vector), strict=True)]
        assert found == pytest.approx(project(ffn.output, hidden), abs=FP64)


def test_parameters() -> None:
    weights = {"hidden.weight": (5, 3), "output.weight": (3, 5)}
    biases = {"hidden.bias": (5,), "output.bias": (3,)}
    gated = {"gate.weight": (5, 3), "up.weight": (5, 3), "output.weight": (3, 5)}

    def sizes(ffn: torch.nn.Module) -> dict[str, tuple[int, ...]]:
        return {name: tuple(value.shape) for name, value in ffn.state_dict().items()}

    assert sizes(FeedForward(3, 5)) == weights | biases
    assert sizes(FeedForward(3, 5, use_bias=False)) == weights
    assert sizes(GatedFeedForward(3, 5)) == gated
    of_gated = {"gate.bias": (5,), "up.bias": (5,), "output.bias": (3,)}
    assert sizes(GatedFeedForward(3, 5, use_bias=True)) == gated | of_gated


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_an_unknown_activation(kind: type) -> None:
    with pytest.raises(
        InputError, match=r"one of gelu, gelu_fast, .*; got 'gelo'\. Did you mean 'gelu'\? regard\.lens"
    ):
        kind(3, 5, activation="gelo")
    with pytest.raises(InputError, match=r"activation must be one of .*; got 'GELU'"):
        activation_named("GELU")


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
@pytest.mark.parametrize(("point", "size"), [("hidden", 5), ("output", 3)])
def test_taps_of_the_feed_forward(kind: type, point: str, size: int) -> None:
    ffn = kind(3, 5)
    x = torch.randn(1, 7, 3)
    seen = read_and_written(point, lambda taps: ffn(x, taps=taps), moves=1e-2, close=0)
    assert seen.shape == (1, 7, size)


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_the_hidden_point_is_what_the_output_reads(kind: type) -> None:
    ffn = kind(3, 5).double()
    x = torch.randn(1, 7, 3, dtype=torch.float64)
    given = torch.randn(1, 7, 5, dtype=torch.float64)
    seen: list[Tensor] = []
    output = ffn(x, taps=Taps({"hidden": lambda value: given, "output": seen.append}))
    assert torch.equal(output, ffn.output(given))
    assert torch.equal(seen[0], output)
    assert list(kind.TAPS) == ["hidden", "output"]


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_dropout_is_between_the_projections_in_training(kind: type) -> None:
    ffn = kind(3, 997, dropout_p=0.5).double()
    x = torch.randn(1, 1, 3, dtype=torch.float64)
    with torch.no_grad():
        ffn.output.weight.copy_(torch.eye(3, 997))
    torch.manual_seed(3)
    trained = ffn(x)
    torch.manual_seed(3)
    hidden: list[Tensor] = []
    assert torch.equal(ffn(x, taps=Taps({"hidden": hidden.append})), trained)
    # The point is before dropout: it is what evaluation has.
    torch.manual_seed(3)
    dropped = torch.nn.functional.dropout(hidden[0], 0.5)
    assert torch.equal(trained, ffn.output(dropped))
    assert torch.equal(ffn.eval()(x), ffn.output(hidden[0]))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_without_gradients_the_gate_stays_what_a_hook_has_seen(activation: str) -> None:
    """The product is written over what the activation made of it, with the same numbers."""
    ffn = GatedFeedForward(3, 5, activation=activation)
    x = torch.randn(2, 7, 3)
    seen: list[Tensor] = []
    ffn.gate.register_forward_hook(lambda module, args, output: seen.append(output))
    whole = ffn(x)
    with torch.no_grad():
        assert torch.equal(ffn(x), whole)
    assert torch.equal(seen[1], seen[0])


@pytest.mark.parametrize("make", [FeedForward, GatedFeedForward])
def test_a_long_text_goes_through_by_rows(make: Any) -> None:
    """The same numbers as from all rows together; only where nobody looks inside and wants no gradient."""
    layer = make(6, 11).double().eval()
    x = torch.randn(3, 701, 6, dtype=torch.float64)
    sizes: list[int] = []
    layer.output.register_forward_pre_hook(lambda module, args: sizes.append(args[0].shape[-2]))
    whole = layer(x)
    assert sizes == [701]
    with torch.no_grad():
        by_rows = layer(x)
        assert sizes[1:] == [256] * 8 + [3 * 701 - 8 * 256]
        assert_close_to_largest(by_rows, whole, FP64)
        del sizes[:]
        layer(x, taps=Taps({"hidden": lambda hidden: None}))
        layer(x[:2])
        layer.train()(x)
    assert sizes == [701, 701, 701]
