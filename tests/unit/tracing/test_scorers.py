"""Layers that score otherwise than by products: traced, explained, saved, drawn, or refused by name."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor

from regard.blocks import Identity, MultiHeadAttention
from regard.core import Additive, Bilinear, Cosine, Dot, Scorer
from regard.core.errors import InputError
from regard.models import Loaded
from regard.tracing import Trace, page_record, trace_text
from regard.views import LiveRun, weight_rows
from regard.views._kernel import Kernel
from tolerances import FP32_OF_LARGEST, WEIGHTS, assert_close_to_largest
from unit.tracing.conftest import HEAD_DIM, HEADS, TEXT, make_loaded


def _additive() -> Additive:
    return Additive(2 * torch.randn(HEADS, HEAD_DIM))


def _bilinear() -> Bilinear:
    return Bilinear(torch.randn(HEADS, HEAD_DIM, HEAD_DIM))


# Each by itself, with the walk-through's words for a score.
CASES: dict[str, tuple[Any, str]] = {
    "dot": (Dot, "q . k"),
    "additive": (_additive, "v_a . tanh(q + k)"),
    "bilinear": (_bilinear, "q W . k"),
    "cosine": (lambda: Cosine(temperature=0.1), "cos(q, k)"),
}


def scored(scorer: Scorer, **others: Any) -> Loaded:
    """The tiny BERT with such scores in layer 1."""
    loaded = make_loaded()
    attention = MultiHeadAttention(HEADS * HEAD_DIM, HEADS, scorer=scorer, **others)
    loaded.network.encoder.layers[1].attention = attention.eval()
    return loaded


def by_hand(scorer: Scorer, head: int, q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """The weights of a head in float64, (queries, keys)."""
    if isinstance(scorer, Additive):
        v = scorer.v.detach().double().numpy()[head]
        scores = np.tanh(q[:, None] + k[None]) @ v
    elif isinstance(scorer, Bilinear):
        scores = q @ scorer.weight.detach().double().numpy()[head] @ k.T
    elif isinstance(scorer, Cosine):
        scores = q @ k.T / np.outer(np.linalg.norm(q, axis=1), np.linalg.norm(k, axis=1)) / scorer.temperature
    else:
        scores = q @ k.T
    powers = np.exp(scores)
    return powers / powers.sum(axis=1, keepdims=True)


def _vectors(trace: Trace, head: int) -> tuple[np.ndarray, np.ndarray]:
    inputs = trace.attention()[1].inputs
    q, k = (each[0, head].detach().double().numpy() for each in (inputs.q, inputs.k))
    return q, k


@pytest.mark.parametrize("name", CASES)
def test_from_the_model_to_the_page(name: str, tmp_path: Path) -> None:
    make, formula = CASES[name]
    trace = trace_text(scored(make()), TEXT)
    scorer, head = trace.attention()[1].inputs.scorer, 2
    q, k = _vectors(trace, head)
    wanted = by_hand(scorer, head, q, k)
    assert np.abs(trace.weights(1, head).numpy() - wanted).max() < WEIGHTS
    assert trace.parity().largest < FP32_OF_LARGEST

    e = trace.explain("bank", 1, head)
    row = e.token
    assert np.abs(e.weights - wanted[row]).max() < WEIGHTS
    assert_close_to_largest(e.right @ e.left, e.scores, FP32_OF_LARGEST)
    screen = io.StringIO()
    Console(file=screen, width=120).print(e)
    best = int(e.weights.argmax())
    assert f"  {formula} = {e.left[0]:.4f} x {e.right[best, 0]:.4f} + " in screen.getvalue()
    if name == "additive":
        assert_close_to_largest(e.left, scorer.v[head].detach(), FP32_OF_LARGEST)
        assert_close_to_largest(e.right, np.tanh(q[row] + k), FP32_OF_LARGEST)

    again = Trace.open(trace.save(tmp_path / "scored.safetensors"))
    assert type(again.attention()[1].inputs.scorer) is type(scorer)
    assert torch.equal(again.weights(1), trace.weights(1))
    assert again.explain("bank", 1, head).formula == formula

    record = page_record(trace, statistics=False)
    layer = record.layers["encoder"][1]
    assert np.abs(weight_rows(layer, head, np.arange(len(wanted))) - wanted).max() < WEIGHTS
    asked = {"layer": 1, "head": head, "query": row}
    answer, parts = Kernel([LiveRun(record=record)])._steps(0, "encoder", asked)
    q_shown, k_shown = (np.frombuffer(part, np.float32).reshape(-1, HEAD_DIM) for part in parts[:2])
    v = answer["scorer"] and answer["scorer"]["v"]
    scores = q_shown[0] @ k_shown.T if v is None else np.tanh(q_shown[0] + k_shown) @ np.array(v)
    powers = np.exp(scores * answer["scale"])
    assert np.abs(powers / powers.sum() - wanted[row]).max() < 10 * WEIGHTS


@dataclass(frozen=True)
class Distance(Scorer):
    """A rule of one's own: -|q - k|^2, which is 2 q . k - |q|^2 - |k|^2; without the length of q."""

    def operands(self, q: Tensor, k: Tensor) -> None:
        return None

    def factors(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        apart = q[:, :, :, None] - k[:, :, None]
        return torch.ones_like(apart[..., :1, :]), -(apart**2)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return -(torch.cdist(q, k) ** 2)


def test_a_scorer_of_ones_own_is_traced_and_refused_where_nobody_knows_it(tmp_path: Path) -> None:
    trace = trace_text(scored(Distance()), TEXT)
    q, k = _vectors(trace, 0)
    powers = np.exp(-((q[:, None] - k[None]) ** 2).sum(axis=2))
    assert np.abs(trace.weights(1, 0).numpy() - powers / powers.sum(axis=1, keepdims=True)).max() < WEIGHTS
    e = trace.explain("bank", 1, 0)
    assert_close_to_largest(e.right @ e.left, e.scores, FP32_OF_LARGEST)
    with pytest.raises(InputError, match=r"cannot draw layer 1 exactly: it has a scorer .* \(Distance\)"):
        page_record(trace)
    with pytest.raises(InputError, match="is a Distance, which a file cannot hold"):
        trace.save(tmp_path / "own.safetensors")


def test_attention_without_parameters(tmp_path: Path) -> None:
    loaded = scored(Dot(), use_bias=False, projection=Identity)
    attention = loaded.network.encoder.layers[1].attention
    assert not list(attention.parameters())
    assert not attention.state_dict()
    trace = trace_text(loaded, TEXT)
    x = trace.source.hidden[1].double().numpy().reshape(-1, HEADS, HEAD_DIM)
    for head in range(HEADS):
        own = x[:, head]
        assert np.abs(trace.weights(1, head).numpy() - by_hand(Dot(), head, own, own)).max() < WEIGHTS
        weighted = by_hand(Dot(), head, own, own) @ own
        assert_close_to_largest(trace.context(1, head), weighted, FP32_OF_LARGEST)
    assert page_record(trace).layers["encoder"][1].scorer is None
    assert trace.parity().largest < FP32_OF_LARGEST


def test_what_a_scorer_has_learned_is_a_parameter() -> None:
    attention = MultiHeadAttention(6, 2, scorer=Additive(torch.zeros(2, 3)))
    assert attention.state_dict()["scorer_v"].shape == (2, 3)
    x = torch.randn(1, 5, 6)
    even = attention(x)  # v = 0: every weight is 1 / 5
    assert torch.allclose(even, even[:, :1].expand_as(even), atol=WEIGHTS)
    attention(x).square().sum().backward()
    assert attention.scorer_v.grad.abs().min() > 0
    with torch.no_grad():
        attention.scorer_v.fill_(1.0)
    assert not torch.allclose(attention(x), even)
    with pytest.raises(InputError, match=r"v of the scorer .* \(2, 3\)"):
        MultiHeadAttention(6, 2, scorer=Additive(torch.zeros(3, 3)))
    with pytest.raises(InputError, match="use_bias must be False"):
        MultiHeadAttention(6, 2, projection=Identity)


def test_the_compiled_engine_leaves_other_scores_alone() -> None:
    from regard.embedding._post_norm import is_plain

    loaded = scored(Cosine())
    layers = loaded.network.encoder.layers
    assert is_plain(layers[0])
    assert not is_plain(layers[1])
