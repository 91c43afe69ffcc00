"""ALiBi against BLOOM, MPT and the numbers of the paper; relative bias against T5's and MPNet's functions."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import T5Config
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from regard.core import AttentionInputs, Bias, Causal, fused_attention, reference_attention
from regard.core.errors import InputError
from regard.positions import Alibi, RelativeBias, relative_buckets
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


FAR = [10**6, 2**31, 2**40, 2**62]
DISTANCES = torch.tensor([*range(-1009, 1010), *FAR, *(-far for far in FAR)])


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(
    ("num_buckets", "max_distance"), [(32, 128), (32, 20), (7, 13), (4, 1009), (64, 256), (6, 1000)]
)
def test_buckets_of_t5(num_buckets: int, max_distance: int, bidirectional: bool) -> None:
    theirs = T5Attention._relative_position_bucket(
        DISTANCES, bidirectional=bidirectional, num_buckets=num_buckets, max_distance=max_distance
    )
    ours = relative_buckets(
        DISTANCES, num_buckets=num_buckets, max_distance=max_distance, bidirectional=bidirectional
    )
    assert ours.dtype == torch.int64
    assert torch.equal(ours, theirs)
    assert len(ours.unique()) > 2


def test_buckets_of_mpnet() -> None:
    assert torch.equal(relative_buckets(DISTANCES), MPNetEncoder.relative_position_bucket(DISTANCES))


def test_distances_beyond_the_furthest_change_nothing() -> None:
    # What lets a block be read from a vector of 2 * max_distance + 1 numbers.
    for bidirectional in (True, False):
        near = relative_buckets(DISTANCES.clamp(-128, 128), bidirectional=bidirectional)
        assert torch.equal(near, relative_buckets(DISTANCES, bidirectional=bidirectional))


def t5(bidirectional: bool, heads: int = 3) -> tuple[T5Attention, RelativeBias]:
    config = T5Config(
        d_model=5 * heads,
        d_kv=5,
        num_heads=heads,
        relative_attention_num_buckets=14,
        relative_attention_max_distance=23,
        is_decoder=not bidirectional,
    )
    theirs = T5Attention(config, has_relative_attention_bias=True)
    torch.nn.init.normal_(theirs.relative_attention_bias.weight)
    ours = RelativeBias(heads, 14, 23, bidirectional=bidirectional)
    ours.table.load_state_dict(theirs.relative_attention_bias.state_dict())
    return theirs, ours


@pytest.mark.parametrize("bidirectional", [True, False])
def test_the_bias_of_t5(bidirectional: bool) -> None:
    theirs, ours = t5(bidirectional)
    wanted = theirs.compute_bias(41, 53)
    bias = ours()
    assert isinstance(bias, Bias)
    assert bias.learned() == (ours.table.weight,)
    block = bias.block(torch.arange(41), torch.arange(53))
    assert torch.equal(block, wanted)
    for rows, columns in (
        (torch.tensor([40, 0, 7]), torch.tensor([3, 52, 51, 0, 9])),
        (torch.arange(3, 40), torch.arange(11, 24)),
        (torch.arange(5), torch.arange(40, 53)),
        (torch.arange(5), torch.arange(1, 53, 2)),
        (torch.arange(4, -1, -1), torch.arange(7)),
        (torch.tensor([17]), torch.tensor([2])),
    ):
        assert torch.equal(bias.block(rows, columns), wanted[:, :, rows][..., columns])
    assert bias.block(torch.arange(0), torch.arange(7)).shape == (1, 3, 0, 7)


def test_queries_after_a_cache() -> None:
    theirs, ours = t5(bidirectional=False)
    wanted = theirs.compute_bias(5, 37, past_seen_tokens=32)
    assert torch.equal(ours(query_offset=32).block(torch.arange(5), torch.arange(37)), wanted)


def test_gradients_reach_the_table() -> None:
    theirs, ours = t5(bidirectional=True)
    upstream = torch.randn(1, 3, 41, 53)
    theirs.compute_bias(41, 53).backward(upstream)
    halves = [ours().block(torch.arange(start, 41, 2), torch.arange(53)) for start in (0, 1)]
    (sum((half * upstream[:, :, start::2]).sum() for start, half in enumerate(halves)) / 2).backward()
    (ours().block(torch.arange(41), torch.arange(53)) / 2).backward(upstream)
    assert ours.table.weight.grad is not None
    assert_close_to_largest(
        ours.table.weight.grad, theirs.relative_attention_bias.weight.grad, FP32_OF_LARGEST
    )


def test_gradients_through_fused_attention() -> None:
    _, ours = t5(bidirectional=True)
    q, k, v = torch.randn(3, 2, 3, 307, 5)
    gradients: list[Tensor] = []
    for attend in (fused_attention, lambda inputs: reference_attention(inputs).context):
        ours.zero_grad()
        attend(AttentionInputs(q=q, k=k, v=v, bias=ours())).square().sum().backward()
        assert ours.table.weight.grad is not None
        gradients.append(ours.table.weight.grad.clone())
    assert_close_to_largest(*gradients, FP32_OF_LARGEST)


def test_half_precision() -> None:
    _, ours = t5(bidirectional=True)
    assert ours.bfloat16()().block(torch.arange(3), torch.arange(5)).dtype == torch.bfloat16


def test_built_on_the_meta_device() -> None:
    with torch.device("meta"):
        blank = RelativeBias(3, 14, 23)
    assert blank.table.weight.is_meta
    _, ours = t5(bidirectional=True)
    blank.load_state_dict(ours.state_dict(), assign=True)
    rows, columns = torch.arange(7), torch.arange(11)
    assert torch.equal(blank().block(rows, columns), ours().block(rows, columns))
    assert list(blank.state_dict()) == ["table.weight"]
    assert torch.equal(copy.deepcopy(blank)().block(rows, columns), ours().block(rows, columns))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Alibi(0), "num_heads must be a whole number, at least 1; got 0"),
        (lambda: Alibi(3, 0.0), "steepest must be .* got 0.0"),
        (lambda: RelativeBias(0), "num_heads must be at least 1; got 0"),
        (lambda: RelativeBias(3, num_buckets=3), "num_buckets must be at least 4; got 3"),
        (lambda: RelativeBias(3, 1, bidirectional=False), "num_buckets must be at least 2; got 1"),
        (lambda: RelativeBias(3, max_distance=8), "max_distance must be greater than 8,.* got 8"),
    ],
)
def test_what_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
