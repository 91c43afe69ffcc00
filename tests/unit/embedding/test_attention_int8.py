"""Attention with whole numbers, against its own formula and the exact one, both in float64."""

import math

import pytest
import torch
from torch import Tensor

from regard import kernels
from regard.embedding._quantized import KernelAttention
from regard.kernels._attention_float32 import FLOAT32
from regard.kernels._attention_int8 import INT8
from regard.kernels._target import Target
from tolerances import FP32_OF_LARGEST, WEIGHT_CODES_OF_LARGEST, assert_close_to_largest
from unit.embedding.attention import exact, made
from unit.kernels.targets import WITH_VNNI, needs_vnni

pytestmark = needs_vnni


@pytest.fixture(params=WITH_VNNI, ids=str, autouse=True)
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setattr(kernels, "here", lambda: request.param)
    found: Target = request.param
    return found


def _by_codes(qkv: Tensor, rows: int) -> Tensor:
    """What `_attention_int8` says that it works out, head by head in float64 from the codes on."""
    contexts = torch.empty(len(qkv), *qkv.shape[2:], dtype=torch.float64)
    length = len(qkv) // rows
    for text in range(rows):
        for head in range(qkv.shape[2]):
            part = slice(text * length, text * length + length)
            q, k, v = qkv[part, :, head].unbind(1)
            of_q, of_k = (each.abs().max() for each in (q, k))
            a, b = ((x * (127 / most)).round().double() for x, most in ((q, of_q), (k, of_k)))
            scores = of_q.double() * of_k.double() / 127**2 * (a @ b.T)
            weights = (scores - scores.max(1, keepdim=True).values).exp()
            most = v.abs().amax(0)
            codes = (v * (511 / most)).round().double()
            weights = (8191 * weights).round()
            contexts[part, head] = most.double() / 511 * (weights @ codes) / weights.sum(1, keepdim=True)
    return contexts.flatten(1)


@pytest.mark.parametrize("head_dim", [32, 64])
def test_attention_with_whole_numbers(head_dim: int) -> None:
    for length in (17, 31, 32, 33, 47, 48, 49, 101, 509, 512):
        torch.manual_seed(length)
        qkv = torch.randn(3 * length, 3, 5, head_dim) / math.sqrt(math.sqrt(head_dim)) * 2
        qkv[:, 2] += torch.randn(head_dim)
        qkv[0, 2, 1] *= 40.0  # a value far above the others, and a dimension
        qkv[:, 2, 2, 7] *= 30.0
        found = made(qkv, 3, INT8)
        assert_close_to_largest(found, _by_codes(qkv, 3), WEIGHT_CODES_OF_LARGEST)
        as_it_is = exact(qkv, 3)
        assert 1e-4 < (found - as_it_is).norm() / as_it_is.norm() < 0.05
        for text in range(3):  # not a bit depends on the others
            part = slice(length * text, length * (text + 1))
            assert torch.equal(made(qkv[part].clone(), 1, INT8), found[part])


def test_whole_numbers_of_all_sizes() -> None:
    """Weights that are all the same, or all but one 0; values that are all the same."""
    torch.manual_seed(0)
    qkv = torch.randn(7 * 37, 3, 2, 32)
    texts = qkv.view(7, 37, 3, 2, 32)
    texts[0, :, 0] = 0.0
    texts[1, :, 1] = 0.0
    texts[2, :, 0] *= 300.0
    texts[3, :, :2] = 1.0
    texts[4, :, 2] = 0.0
    texts[5] *= 1e-12
    texts[6, :, 2] = 3.0
    found = made(qkv, 7, INT8)
    for text in range(7):
        part = slice(37 * text, 37 * text + 37)
        if text in (0, 1, 3, 5):
            means = texts[text, :, 2].double().mean(0).flatten().expand(37, -1)
            assert_close_to_largest(found[part], means, 1e-2)  # codes of values have 9 bits
        elif text == 2:
            assert_close_to_largest(found[part], _by_codes(qkv[part], 1), WEIGHT_CODES_OF_LARGEST)
        else:
            assert_close_to_largest(found[part], texts[text, :, 2].flatten(1).double(), FP32_OF_LARGEST)


def test_the_largest_sums_fit(target: Target) -> None:
    """As many tokens as there can be, with all weights and all values the largest."""
    qkv = torch.ones(512, 3, 1, 64)
    qkv[:, 2, :, ::2] = -1.0
    assert torch.equal(made(qkv, 1, INT8), qkv[:, 2, 0])
    assert not INT8.takes(target, 64, 513)


@pytest.mark.parametrize(("of", "entry"), [(0, 5), (1, 31), (2, 17)])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_whole_numbers_hide_nothing(of: int, entry: int, bad: float) -> None:
    """What is not a number in a query or a key leaves none to the head of its text, in a value none to its
    dimension; others do not notice."""
    torch.manual_seed(0)
    qkv = torch.randn(2 * 23, 3, 2, 32)
    clean = made(qkv, 2, INT8)
    qkv[3, of, 0, entry] = bad
    found = made(qkv, 2, INT8)
    lost = torch.zeros(46, 64, dtype=torch.bool)
    lost[:23, slice(entry, entry + 1) if of == 2 else slice(32)] = True
    assert not found[lost].isfinite().any()
    assert torch.equal(found[~lost], clean[~lost])


def test_each_text_goes_the_first_way_that_takes_it() -> None:
    torch.manual_seed(0)
    shape = [(1, 40), (2, 16), (1, 17), (1, 513), (3, 20)]
    qkv = torch.randn(sum(rows * length for rows, length in shape), 3, 2, 32)
    found = KernelAttention(INT8, FLOAT32).attend(qkv, torch.full((len(qkv), 64), math.nan), shape)
    start = 0
    for rows, length in shape:
        part = slice(start, start + rows * length)
        expected = made(qkv[part], rows, INT8 if 17 <= length <= 512 else FLOAT32)
        assert torch.equal(found[part], expected)
        start += rows * length
