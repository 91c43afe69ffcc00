"""What surrounds sublayers, and norms."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from regard.blocks import PostNorm, PreNorm, RMSNorm, SandwichNorm
from tolerances import FP64, assert_close_to_largest
from unit.blocks.by_hand import normed, rms_norm_by_hand, shaken

BATCH, LENGTH, D_MODEL = 2, 7, 6


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
