"""ALiBi against BLOOM, MPT and the numbers of the paper."""

from __future__ import annotations

import math

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from regard.core import Bias, Causal
from regard.core.errors import InputError
from regard.positions import Alibi
from tolerances import FP32_OF_LARGEST, WEIGHTS, assert_close_to_largest


def test_the_slopes_of_the_paper() -> None:
    assert Alibi(8).slopes == tuple(2.0**-h for h in range(1, 9))
    assert Alibi(16).slopes == pytest.approx([2 ** (-h / 2) for h in range(1, 17)])
    assert Alibi(1).slopes == (2.0**-8,)


@pytest.mark.parametrize("num_heads", [1, 2, 3, 5, 8, 12, 13, 16, 71, 112])
def test_the_slopes_of_bloom_and_mpt(num_heads: int) -> None:
    of_bloom = build_alibi_tensor(torch.ones(1, 2), num_heads, torch.float32)[:, 0, 1]
    of_mpt = -build_mpt_alibi_tensor(num_heads, 2)[:, 0, 0]
    ours = torch.tensor(Alibi(num_heads).slopes)
    assert_close_to_largest(ours, of_bloom, FP32_OF_LARGEST)
    assert_close_to_largest(ours, of_mpt, FP32_OF_LARGEST)


def test_the_steepest_of_mpt() -> None:
    of_mpt = -build_mpt_alibi_tensor(6, 2, alibi_bias_max=5)[:, 0, 0]
    assert_close_to_largest(torch.tensor(Alibi(6, steepest=5.0).slopes), of_mpt, FP32_OF_LARGEST)


def test_the_formula() -> None:
    bias = Alibi(3)
    assert isinstance(bias, Bias)
    assert bias.learned() == ()
    assert bias() is bias
    rows, columns = torch.tensor([5, 0, 4]), torch.tensor([3, 0, 1, 6, 2])
    block = bias.block(rows, columns)
    assert block.shape == (1, 3, 3, 5)
    assert block.dtype == torch.float32
    for h, slope in enumerate((2**-4, 2**-8, 2**-2)):
        for r, i in enumerate(rows.tolist()):
            for c, j in enumerate(columns.tolist()):
                assert block[0, h, r, c].item() == pytest.approx(-slope * abs(i - j))


def test_causal_weights_of_bloom() -> None:
    heads, n = 5, 11
    scores = torch.randn(heads, n, n).masked_fill(~Causal().dense(n, n)[0], -math.inf)
    ours = torch.softmax(scores + Alibi(heads).block(torch.arange(n), torch.arange(n))[0], dim=-1)
    theirs = torch.softmax(scores + build_alibi_tensor(torch.ones(1, n), heads, torch.float32), dim=-1)
    assert (ours - theirs).abs().max() <= WEIGHTS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((0,), "num_heads must be at least 1; got 0"), ((3, 0.0), "steepest must be .* got 0.0")],
)
def test_what_is_refused(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Alibi(*arguments)
