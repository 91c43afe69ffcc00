"""What a trace holds adds up, and what is wrong in one place is found there."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import lens_models
import regard
from regard.core import AttentionInputs, attention_errors, reference_attention
from regard.core.errors import InputError, RegardError
from regard.core.rows import _weights
from regard.models import LayerParity, Parity, Transformer
from regard.models._parity import bound_of
from regard.tracing import Trace, Zero
from tolerances import FP64
from unit.models import tiny
from unit.tracing import measured
from unit.tracing.measured import NETWORKS, traced

FAMILIES = ["encoder", "decoder", "both", "bart", "gemma2", "gemma3_text", "deberta-v2"]


@pytest.mark.parametrize("name", FAMILIES)
def test_everything_adds_up(name: str) -> None:
    parity = traced(NETWORKS[name]()).parity()
    for each in parity.layers:
        assert max(each.weights, each.context, each.heads) < 10 * FP64
    assert parity.largest < 10 * FP64
    assert "not checked" not in repr(parity)
    parity.check(name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["encoder", "both", "gemma2"])
def test_within_what_rounding_explains(name: str, dtype: torch.dtype) -> None:
    parity = traced(NETWORKS[name]().to(dtype)).parity()
    parity.check(name)
    assert parity.bound == bound_of(dtype)
    assert 0.0 < parity.heads <= parity.bound / 2


# --- what is wrong is found


def broken(name: str, change: Callable[[Transformer], None]) -> tuple[Parity, float]:
    """The parity of a true trace with a model that is another in one place."""
    trace = traced(NETWORKS[name]())
    other = deepcopy(trace.loaded)
    with torch.no_grad():
        change(other.network)  # type: ignore[union-attr]
    return replace(trace, loaded=other).parity(), 1e-3


def layer_of(network: Transformer, index: int = 1) -> Any:
    return network.stack(list(network.prefixes)[-1]).layers[index]


def turned(network: Transformer) -> None:
    """Each head's rows of the projection are those of its neighbour."""
    attention = layer_of(network).attention
    width = attention.output.weight.shape[1] // attention.num_heads
    attention.output.weight.copy_(attention.output.weight.roll(width, dims=1))


def interleaved(network: Transformer) -> None:
    """The heads' entries lie side by side, not the heads."""
    attention = layer_of(network).attention
    whole = attention.output.weight.unflatten(1, (attention.num_heads, -1))
    attention.output.weight.copy_(whole.transpose(1, 2).flatten(1))


def no_bias(network: Transformer) -> None:
    layer_of(network).attention.output.bias.zero_()


@pytest.mark.parametrize("name", ["encoder", "bart"])
@pytest.mark.parametrize("change", [turned, interleaved, no_bias])
def test_heads_that_do_not_sum(name: str, change: Callable[[Transformer], None]) -> None:
    parity, far = broken(name, change)
    wrong = [(each.kind, each.layer) for each in parity.layers if each.heads > parity.bound]
    assert wrong == [("encoder" if name == "encoder" else "decoder", 1)]
    assert parity.heads > far
    assert parity.context < parity.bound
    with pytest.raises(
        RegardError, match="attention layer 1: the heads do not sum to the recorded attention"
    ):
        parity.check("tiny")


def test_an_output_that_is_not_finite() -> None:
    trace = traced(NETWORKS["encoder"]())
    passage = trace.encoder
    assert passage is not None
    first = passage.attention[0]
    output = first.output.clone()
    output[0, 0] = float("inf")
    layers = (replace(first, output=output), passage.attention[1])
    assert replace(trace, encoder=replace(passage, attention=layers)).parity().heads == float("inf")


def test_weights_that_are_no_softmax_of_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(1, 2, 7, 5, dtype=torch.float64)
    inputs = AttentionInputs(q=x, k=x.flip(2), v=x)
    assert attention_errors(inputs, None) == (pytest.approx(0, abs=FP64), None, pytest.approx(0, abs=FP64))
    blocks = _weights.weight_blocks

    def swapped(*arguments: Any) -> Any:
        for place, weights in blocks(*arguments):
            yield place, weights.roll(1, dims=3)  # rows sum to one all the same

    monkeypatch.setattr(_weights, "weight_blocks", swapped)
    errors = attention_errors(inputs, reference_attention(inputs).context)
    assert errors.row_sum < FP64
    assert errors.softmax > 0.1


# --- what cannot be checked


def test_without_the_model() -> None:
    parity = replace(traced(NETWORKS["encoder"]()), loaded=None).parity()
    assert parity.heads is None
    assert parity.context < 10 * FP64
    assert "heads not checked; 2 layers)" in repr(parity)
    parity.check("tiny")


def kept(**keep: Any) -> Trace:
    return regard.Model(tiny.loaded(NETWORKS["both"]())).trace(
        token_ids=measured.IDS, target_ids=measured.TARGET_IDS, **keep
    )


def test_what_was_not_kept() -> None:
    parity = kept(keep="qk").parity()
    assert len(parity.layers) == 8
    assert (parity.context, parity.heads) == (None, None)
    assert parity.weights < 10 * FP64
    parity = kept(keep="qkv").parity()
    assert parity.context < 10 * FP64
    assert parity.heads is None
    parity = kept(layers=1).parity()
    assert [(each.kind, each.layer) for each in parity.layers] == [
        ("encoder", 1),
        ("decoder", 1),
        ("cross", 1),
    ]
    assert parity.largest < 10 * FP64
    assert "not checked" not in repr(parity)
    with pytest.raises(InputError, match="parity checks attention, of which this trace holds none"):
        kept(keep="residual").parity()


def test_some_layers_are_told_apart() -> None:
    one = LayerParity(kind="encoder", layer=0, weights=1e-9, context=1e-8, heads=2e-7)
    other = LayerParity(kind="encoder", layer=1, weights=None, context=1e-8)
    assert repr(Parity(layers=(one, other), output=None, bound=1e-5)) == (
        "Parity(largest 2.0e-07 of 1.0e-05: weights 1.0e-09 (1 of 2 layers not checked), context 1.0e-08, "
        "heads 2.0e-07 (1 of 2 layers not checked); 2 layers)"
    )


def test_what_an_edit_wrote() -> None:
    model = regard.Model(tiny.loaded(NETWORKS["decoder"]()))
    for site, missing in {"weights": {"weights"}, "head": {"context"}, "attention": {"heads"}}.items():
        edited = model.edited(Zero(site, layer=1))  # type: ignore[arg-type]
        parity = edited.trace(token_ids=measured.IDS).parity()
        parity.check("edited")
        assert parity.largest < 1e-10
        layer = parity.layers[1]
        names = ("weights", "context", "heads")
        assert {name for name in names if getattr(layer, name) is None} == missing, site
        assert all(getattr(parity.layers[0], name) is not None for name in names)


@pytest.mark.parametrize("family", ["gpt2", "llama", "bart"])
def test_through_the_lens(family: str) -> None:
    model = regard.lens(lens_models.FAMILIES[family]())
    both = len(model.network.prefixes) == 2
    trace = model.trace(token_ids=measured.IDS, target_ids=measured.TARGET_IDS if both else None)
    for parity in (model.parity(), trace.parity()):
        assert all(each.heads is not None for each in parity.layers)
        assert 0.0 < parity.heads <= parity.bound
        assert "not checked" not in repr(parity)
    attention = lens_attention(model.network)
    with torch.no_grad():
        attention.weight.mul_(1.01)
    assert trace.parity().heads > 1e-3


def lens_attention(network: Any) -> Any:
    prefix = list(network.prefixes.values())[-1]
    return network.layout.points[f"{prefix}layers.1.attention.output"].execution.module


def test_a_projection_that_does_more_than_multiply_is_not_checked() -> None:
    hf_model = lens_models.gpt2()

    class Adapted(type(hf_model.transformer.h[1].attn.c_proj)):  # type: ignore[misc]
        def forward(self, x: Tensor) -> Tensor:
            return 2.0 * super().forward(x)

    hf_model.transformer.h[1].attn.c_proj.__class__ = Adapted
    model = regard.lens(hf_model)
    assert [each.heads is None for each in model.parity().layers] == [False, True]
    assert "heads" in repr(model.parity())
    assert "(1 of 2 layers not checked)" in repr(model.parity())


def test_a_model_that_lost_heads() -> None:
    model = regard.Model(tiny.loaded(NETWORKS["encoder"]()))
    pruned = model.prune({1: [0]})
    trace = pruned.trace(token_ids=measured.IDS)
    parity = trace.parity()
    parity.check("pruned")
    assert parity.largest < 10 * FP64
    assert "not checked" not in repr(parity)
    assert [trace.norm_weighted(layer).shape[0] for layer in range(2)] == [3, 2]
