"""Residual connections by hand: where the norms stand, and what dropout acts on."""

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
