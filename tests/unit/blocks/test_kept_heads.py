"""Heads cut out of a block of attention."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.blocks import MultiHeadAttention, RMSNorm
from regard.core import Additive, Bias, BiasOfHeads, DenseBias, Taps
from regard.positions import RelativeBias
from tolerances import FP64, assert_close_to_largest

BATCH, QUERIES, KEYS, D_MODEL, D_SOURCE = 2, 5, 7, 13, 11

BLOCKS: dict[str, dict[str, Any]] = {
    "plain": {"num_heads": 5, "head_dim": 3},
    "no bias": {"num_heads": 5, "head_dim": 3, "use_bias": False, "output_bias": True},
    "values of another size": {"num_heads": 5, "head_dim": 3, "v_dim": 2, "scale": 0.7, "softcap": 2.0},
    "grouped": {"num_heads": 6, "num_kv_heads": 3, "head_dim": 3, "v_dim": 2},
    "another source": {"num_heads": 5, "head_dim": 3, "d_source": D_SOURCE},
    "additive scores": {
        "num_heads": 5,
        "head_dim": 3,
        "scorer": Additive(torch.linspace(-2, 3, 15).view(5, 3)),
    },
}
KEPT = {"grouped": [(0, 1, 4, 5), (0, 3, 4), (2, 3), (1, 2, 5), (3,)]}


def zeroing(kept: tuple[int, ...]) -> Taps:
    def without(context: Tensor) -> Tensor:
        chosen = torch.zeros(context.shape[1], dtype=context.dtype)
        chosen[list(kept)] = 1
        return context * chosen[:, None, None]

    return Taps({"context": without})


@pytest.mark.parametrize(
    ("name", "kept"),
    [(name, kept) for name in BLOCKS for kept in KEPT.get(name, [(0, 2, 4), (1,), (0, 1, 2, 3)])],
)
def test_the_output_is_that_of_the_others_at_zero(name: str, kept: tuple[int, ...]) -> None:
    block = MultiHeadAttention(
        D_MODEL, **BLOCKS[name], q_norm=RMSNorm(3, eps=1e-3), k_norm=RMSNorm(3, eps=1e-3)
    ).double()
    x = torch.randn(BATCH, QUERIES, D_MODEL, dtype=torch.float64)
    source = torch.randn(BATCH, KEYS, D_SOURCE, dtype=torch.float64) if "source" in name else None
    bias = torch.randn(1, block.num_heads, QUERIES, KEYS if "source" in name else QUERIES).double()
    expected = block(x, source, bias=bias, taps=zeroing(kept))
    whole = block(x, source, bias=bias)
    block.keep_heads(kept)
    assert_close_to_largest(block(x, source, bias=bias), expected, FP64)
    assert (block.num_heads, block.kept) == (len(kept), kept)
    assert not torch.allclose(whole, expected)


def test_twice_is_once() -> None:
    torch.manual_seed(1)
    once = MultiHeadAttention(D_MODEL, 5, head_dim=3)
    torch.manual_seed(1)
    twice = MultiHeadAttention(D_MODEL, 5, head_dim=3)
    once.keep_heads([1, 4])
    twice.keep_heads([1, 2, 4])
    twice.keep_heads([0, 2])
    assert twice.kept == once.kept == (1, 4)
    mine, other = twice.state_dict(), once.state_dict()
    assert all(torch.equal(mine[key], other[key]) for key in other)


def test_one_reader_of_one_group() -> None:
    block = MultiHeadAttention(D_MODEL, 6, num_kv_heads=3, head_dim=2)
    block.keep_heads([0])
    assert (block.num_heads, block.num_kv_heads) == (1, 1)


def test_what_is_cut_is_let_go() -> None:
    """A view would keep all of the memory."""
    block = MultiHeadAttention(D_MODEL, 5, head_dim=3).requires_grad_(False)
    block.keep_heads([4])
    for parameter in block.parameters():
        assert parameter.untyped_storage().nbytes() == parameter.numel() * parameter.element_size()
        assert not parameter.requires_grad


def biases() -> list[Bias]:
    dense = DenseBias(torch.randn(1, 5, QUERIES, KEYS))
    relative = RelativeBias(5, num_buckets=8, max_distance=16)()
    same = DenseBias(torch.randn(BATCH, 1, QUERIES, KEYS))
    return [dense, relative, same]


@pytest.mark.parametrize("which", range(3))
def test_a_bias_of_some_heads(which: int) -> None:
    whole = biases()[which]
    rows, columns = torch.tensor([0, 3]), torch.arange(KEYS)
    wanted = whole.block(rows, columns)
    if wanted.shape[1] > 1:
        wanted = torch.stack([wanted[:, 3], wanted[:, 0]], dim=1)
    some = BiasOfHeads(whole, (3, 0))
    assert torch.equal(some.block(rows, columns), wanted)
    assert some.learned() == whole.learned()
