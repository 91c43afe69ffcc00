"""Attention in float32 against float64."""

import math

import pytest
import torch
from torch import Tensor

from regard import kernels
from regard.embedding._engine import AttentionBackend
from regard.embedding._quantized import KernelAttention
from regard.kernels._attention_float32 import FLOAT32
from tolerances import FP32_OF_LARGEST, assert_close_to_largest
from unit.embedding.attention import exact, made
from unit.kernels.targets import TARGETS

CAPABILITY = torch.backends.cpu.get_cpu_capability()
pytestmark = pytest.mark.skipif(not CAPABILITY.startswith("AVX"), reason="the processor has no AVX2")


@pytest.fixture(params=TARGETS, ids=str, autouse=True)
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "here", lambda: request.param)


@pytest.mark.parametrize("head_dim", [16, 32, 48, 64])
def test_it_is_softmax_attention(head_dim: int) -> None:
    for length in (1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 43, 64):
        torch.manual_seed(length)
        qkv = torch.randn(5 * length, 3, 3, head_dim) / math.sqrt(math.sqrt(head_dim)) * 2
        assert_close_to_largest(made(qkv, 5, FLOAT32), exact(qkv, 5), FP32_OF_LARGEST)


def test_long_texts_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    longest = 512
    torchs = AttentionBackend.attend

    def noted(self: AttentionBackend, qkv: Tensor, context: Tensor, shape: list[tuple[int, int]]) -> Tensor:
        asked.extend(length for _, length in shape)
        return torchs(self, qkv, context, shape)

    monkeypatch.setattr(AttentionBackend, "attend", noted)
    torch.manual_seed(0)
    shape = [(1, 3), (1, longest + 1), (2, 5), (1, longest), (3, 1)]
    qkv = torch.randn(sum(rows * length for rows, length in shape), 3, 2, 32) / 2
    found = KernelAttention(FLOAT32).attend(qkv, torch.full((len(qkv), 64), math.nan), shape)
    assert asked == [longest + 1]
    start = 0
    for rows, length in shape:
        here = slice(start, start + rows * length)
        assert_close_to_largest(found[here], exact(qkv[here], rows), FP32_OF_LARGEST)
        start += rows * length
    made(torch.randn(5, 3, 2, 20), 1, FLOAT32)  # no whole registers
    assert asked == [longest + 1, 5]


def test_kernels_get_no_address_of_anything_else() -> None:
    qkv = torch.randn(2 * 5, 3, 2, 32)
    for given in (qkv.double(), qkv.transpose(0, 1).contiguous().transpose(0, 1)):
        with pytest.raises(AssertionError):
            made(given, 2, FLOAT32)


def test_scores_of_all_sizes() -> None:
    """A key far above the others, all of them equal, and scores whose exponentials float32 does not have."""
    torch.manual_seed(0)
    qkv = torch.randn(3 * 11, 3, 2, 32)
    qkv[:11, 0] *= 300.0
    qkv[11:22, 0] = 0.0
    qkv[22:, 1, :, :] = 0.0
    qkv[25, 1] = -1e4 * qkv[22:, 0].sign().mean(0)
    assert_close_to_largest(made(qkv, 3, FLOAT32), exact(qkv, 3), 2e-5)


def test_a_text_does_not_depend_on_the_others() -> None:
    torch.manual_seed(0)
    qkv = torch.randn(4 * 13, 3, 5, 32)
    together = made(qkv, 4, FLOAT32)
    for text in range(4):
        part = slice(13 * text, 13 * text + 13)
        assert torch.equal(made(qkv[part].clone(), 1, FLOAT32), together[part])


def test_what_is_not_a_number_is_not_hidden() -> None:
    torch.manual_seed(0)
    qkv = torch.randn(2 * 19, 3, 2, 32)
    clean = made(qkv, 2, FLOAT32)
    qkv[3, 1, 0, 5] = math.nan  # a key of the first text, in the first head
    found = made(qkv, 2, FLOAT32)
    assert found[:19, :32].isnan().all()
    assert torch.equal(found[:19, 32:], clean[:19, 32:])
    assert torch.equal(found[19:], clean[19:])
