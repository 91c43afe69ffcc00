"""Modules whose weights stay in blocks, against plain ones with the same numbers."""

from __future__ import annotations

import copy
import pickle

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from torch import Tensor, nn
from torch.nn import functional as F

from regard.blocks import Linear, PackedEmbedding, PackedLinear, Packing, learned, unpacked
from regard.checkpoints import BLOCK_TYPES, Packed
from regard.checkpoints.gguf import _blocks
from regard.core.errors import InputError
from tolerances import FP32_OF_LARGEST, assert_close_to_largest

TYPES = {kind.name: kind for kind in BLOCK_TYPES.values()}


def packed(kind: str, rows: int, columns: int) -> tuple[Packed, Tensor]:
    """A random matrix in blocks, and its numbers."""
    numbers = np.random.default_rng(5).standard_normal((rows, columns)).astype(np.float32)
    stored = gguf.quantize(numbers, Kind[kind])
    own = torch.from_numpy(np.ascontiguousarray(stored).view(np.uint8).reshape(rows, -1))
    return Packed(own, TYPES[kind]), torch.from_numpy(gguf.dequantize(stored, Kind[kind]).astype(np.float32))


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "F16", "TQ2_0"])  # with kernels, and without
@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_map_gives_the_product_and_its_gradient(kind: str, bias: bool) -> None:
    weight, numbers = packed(kind, 41, 256)
    added = nn.Parameter(torch.randn(41)) if bias else None
    layer = PackedLinear(weight, added)
    assert torch.equal(layer.weight, numbers)
    for rows in (1, 8, 9, 70):
        x = torch.randn(3, rows, 256, requires_grad=True)
        made, wanted = (
            layer(x),
            F.linear(x.double(), numbers.double(), None if added is None else added.double()),
        )
        assert_close_to_largest(made.detach().double(), wanted.detach(), FP32_OF_LARGEST)
        given = torch.randn(made.shape)
        inputs = [x] if added is None else [x, added]
        ours = torch.autograd.grad(made, inputs, given)
        theirs = torch.autograd.grad(wanted, inputs, given.double())
        for one, other in zip(ours, theirs, strict=True):
            assert_close_to_largest(one.double(), other.double(), FP32_OF_LARGEST)
        with torch.no_grad():
            assert torch.equal(layer(x), made)


def test_pieces_of_a_large_matrix_are_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_blocks, "_ENTRIES", 7 * 64)
    weight, numbers = packed("Q8_0", 37, 64)
    assert weight.step == 7
    x = torch.randn(19, 64)
    assert_close_to_largest(PackedLinear(weight, None)(x), x @ numbers.T, FP32_OF_LARGEST)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_network_in_another_type_computes_in_it(dtype: torch.dtype) -> None:
    weight, numbers = packed("Q4_1", 37, 64)
    table, layer = (
        PackedEmbedding(weight).to(dtype),
        PackedLinear(weight, nn.Parameter(torch.randn(37))).to(dtype),
    )
    ids = torch.tensor([[3, 1, 4], [36, 0, 3]])
    assert torch.equal(table(ids), numbers[ids].to(dtype))
    assert table(ids).dtype == layer(table(ids)).dtype == dtype
    assert table.blocks.dtype == torch.uint8
    wanted = F.linear(table(ids).double(), numbers.double(), layer.bias.double())
    assert_close_to_largest(layer(table(ids)).double(), wanted, 0.02 if dtype == torch.bfloat16 else 1e-12)


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.inner, self.norm = nn.Embedding(37, 64), Linear(64, 64), nn.LayerNorm(64)
        self.head = Linear(64, 37, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.norm(self.inner(self.table(ids))))  # type: ignore[no-any-return]


def test_weights_are_put_in_place_counted_and_unpacked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    network = _Tied().eval()
    (table, _), (inner, _) = packed("Q4_0", 37, 64), packed("Q8_0", 64, 64)
    count = sum(each.numel() for each in network.parameters())
    packing = Packing(network, torch.float32)
    assert packing.takes("inner.weight")
    assert not packing.takes("norm.weight")
    assert not packing.takes("inner.bias")
    for name in ("table.weight", "head.weight"):
        packing.put(name, table)
    packing.put("inner.weight", inner)
    sizes = learned(network)
    assert sum(each.count for each in sizes) == count
    assert sum(each.bytes for each in sizes) == 37 * 2 * 18 + 64 * 2 * 34 + 4 * 3 * 64
    ids = torch.tensor([[3, 1, 4]])
    with monkeypatch.context() as patch:
        patch.setattr(nn.init, "normal_", None)  # no weight is drawn that is replaced at once
        plain = unpacked(network)
    assert plain.head.weight is plain.table.weight
    assert [name for name, _ in plain.named_parameters()] == [name for name, _ in _Tied().named_parameters()]
    assert_close_to_largest(network(ids), plain(ids), FP32_OF_LARGEST)
    assert unpacked(plain) is plain


def test_a_copy_has_a_memory_of_its_own() -> None:
    layer, x = PackedLinear(packed("Q4_0", 37, 64)[0], None), torch.randn(1, 64)
    made = layer(x)
    for copied in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        copied.blocks.zero_()
        assert torch.equal(layer(x), made)
        assert not copied(x).any()


def test_a_weight_in_blocks_cannot_be_exchanged() -> None:
    layer = PackedLinear(packed("Q4_0", 37, 64)[0], None)
    with pytest.raises(InputError, match="packed=False"):
        layer.weight = nn.Parameter(torch.zeros(37, 64))
