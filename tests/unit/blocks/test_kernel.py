"""Multi-head attention with a kernel: its contexts, its own weights, and what it refuses by name."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from regard.blocks import MultiHeadAttention
from regard.core import (
    AttentionInputs,
    Causal,
    Padding,
    Taps,
    attention_errors,
    attention_scores,
    attention_weights,
    fused_attention,
    reference_attention,
    row_statistics,
)
from regard.core.errors import InputError
from tolerances import FP32_OF_LARGEST, FP64, assert_close_to_largest

BATCH, N, HEADS, KV_HEADS, D_MODEL = 2, 7, 6, 3, 18


@dataclass(frozen=True)
class ByDistance:
    """Weights 1 / (1 + |i - j|), normalised over what the mask allows."""

    name = "attention by distance"

    def __call__(self, inputs: AttentionInputs) -> Tensor:
        group = inputs.num_heads // inputs.k.shape[1]
        weights = self.weights(inputs, torch.arange(inputs.q_len)).to(inputs.v.dtype)
        return weights @ inputs.v.repeat_interleave(group, dim=1)

    def weights(self, inputs: AttentionInputs, queries: Tensor) -> Tensor:
        keys = torch.arange(inputs.k_len)
        raw = 1.0 / (1.0 + (queries[:, None] - keys).abs().double()).expand(BATCH, inputs.num_heads, -1, -1)
        if inputs.mask is not None:
            raw = raw * inputs.mask.block(queries, keys)
        return raw / raw.sum(dim=3, keepdim=True)


@dataclass(frozen=True)
class Unweighted(ByDistance):
    """The same without weights to show."""

    name = "attention without weights"

    def weights(self, inputs: AttentionInputs, queries: Tensor) -> Tensor:
        raise InputError(f"{self.name} has none for each key.")

    def __call__(self, inputs: AttentionInputs) -> Tensor:
        return ByDistance()(inputs)


@pytest.fixture
def block() -> MultiHeadAttention:
    return MultiHeadAttention(D_MODEL, HEADS, num_kv_heads=KV_HEADS, kernel=ByDistance())


@pytest.fixture
def record(block: MultiHeadAttention) -> AttentionInputs:
    seen: list[AttentionInputs] = []
    real = torch.ones(BATCH, N, dtype=torch.bool)
    real[1, 5:] = False
    mask = Causal() & Padding(real)
    block(torch.randn(BATCH, N, D_MODEL), mask=mask, taps=Taps({"inputs": seen.append}))
    return seen[0]


def test_the_kernel_makes_the_contexts(block: MultiHeadAttention) -> None:
    x = torch.randn(BATCH, N, D_MODEL)
    values = block.v(x).view(BATCH, N, KV_HEADS, -1)
    distance = (torch.arange(N)[:, None] - torch.arange(N)).abs()
    weights = 1 / (1 + distance) / (1 / (1 + distance)).sum(dim=1, keepdim=True)
    by_hand = torch.einsum("ij,bjgd->bigd", weights, values).repeat_interleave(2, dim=2)
    assert_close_to_largest(block(x), block.output(by_hand.flatten(2)), FP32_OF_LARGEST)
    seen: list[Tensor] = []
    tapped = block(x, taps=Taps({"weights": seen.append}))
    assert_close_to_largest(tapped, block(x), FP32_OF_LARGEST)
    assert_close_to_largest(seen[0][1, 3], weights, FP32_OF_LARGEST)
    zeroed = block(x, taps=Taps({"weights": torch.zeros_like}))
    assert_close_to_largest(zeroed[0, 0], block.output.bias, FP32_OF_LARGEST)


def test_a_record_gives_the_weights_of_its_kernel(record: AttentionInputs) -> None:
    weights = ByDistance().weights(record, torch.arange(N))
    picked = attention_weights(record, torch.tensor([5, 2]), torch.tensor([1, 6, 0]))
    assert_close_to_largest(picked, weights[:, :, [5, 2]][..., [1, 6, 0]].float(), FP32_OF_LARGEST)
    errors = attention_errors(record, ByDistance()(record))
    assert errors.context is not None
    assert errors.row_sum < FP64
    assert errors.context < FP32_OF_LARGEST
    away = attention_errors(record, 1.5 * ByDistance()(record)).context
    assert away is not None
    assert away > 0.1
    assert attention_weights(record.head(4)).shape == (BATCH, 1, N, N)


def test_its_statistics_are_those_of_its_weights(record: AttentionInputs) -> None:
    asked = {"positions": torch.arange(N), "top_k": 3, "values": torch.randn(N, 2)}
    told = row_statistics(record, **asked)
    weights = attention_weights(record)
    written = row_statistics(record.changed(kernel=None, weights=weights), **asked)
    for name in ("entropy", "largest", "received", "mass", "distance", "spread", "top_weights"):
        assert_close_to_largest(getattr(told, name), getattr(written, name), FP32_OF_LARGEST)
    assert torch.equal(told.top_keys[0, 0, 6, :2], torch.tensor([6, 5]))


@pytest.mark.parametrize("compute", [attention_scores, fused_attention, reference_attention])
def test_what_needs_a_softmax_is_refused_by_name(compute: object, record: AttentionInputs) -> None:
    with pytest.raises(InputError, match="this attention layer is attention by distance, whose context is"):
        compute(record)  # type: ignore[operator]


def test_what_a_kernel_lacks_is_refused(block: MultiHeadAttention) -> None:
    x = torch.randn(BATCH, N, D_MODEL)
    with pytest.raises(InputError, match="is attention by distance, whose context is no softmax"):
        block(x, taps=Taps({"scores": lambda scores: None}))
    block.kernel = Unweighted()
    assert block(x).shape == x.shape
    with pytest.raises(InputError, match="attention without weights has none"):
        block(x, taps=Taps({"weights": lambda weights: None}))
    seen: list[AttentionInputs] = []
    block(x, taps=Taps({"inputs": seen.append}))
    for compute in (attention_weights, row_statistics):
        with pytest.raises(InputError, match="attention without weights has none"):
            compute(seen[0])
