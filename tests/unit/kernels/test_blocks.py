"""Blocks of a few bits: their numbers bit for bit as the `gguf` package has them, and products with them."""

from __future__ import annotations

from collections.abc import Iterator

import gguf
import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from torch import Tensor

from regard.checkpoints import BLOCK_TYPES as NAMES
from regard.kernels import _blocks as kernels
from regard.kernels._block_types import BLOCK_TYPES
from tolerances import FP32_OF_LARGEST, assert_close_to_largest
from unit.kernels.targets import TARGETS

pytestmark = pytest.mark.skipif(not TARGETS, reason="the processor has no AVX2")

SCALES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "MXFP4": ()}
"""Where a block has numbers of 16 bits that a random byte could make infinite; 0 and 2 in the others."""


@pytest.fixture(params=TARGETS, ids=str)
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(kernels, "here", lambda: request.param)
    for each in (kernels.unpacking, kernels._address):
        each.cache_clear()
    yield
    for each in (kernels.unpacking, kernels._address):
        each.cache_clear()


def blocks_of(kind: str, rows: int, count: int) -> tuple[Tensor, Tensor]:
    """Random blocks, every bit of theirs drawn but for the scales, and their numbers."""
    draw = np.random.default_rng(2)
    size = BLOCK_TYPES[kind].size
    blocks = draw.integers(0, 256, (rows, count, size), dtype=np.uint8)
    shifted = kind in ("Q4_1", "Q5_1", "Q4_K", "Q5_K")
    for at in SCALES.get(kind, (0, 2) if shifted else (0,)):
        halves = draw.standard_normal((rows, count)).astype(np.float16)
        blocks[:, :, at : at + 2] = halves.view(np.uint8).reshape(rows, count, 2)
    if kind == "MXFP4":  # the exponent, of which 0 and 1 are no usual ones
        blocks[:, :, 0] = draw.choice([0, 1, 2, 120, 127, 131], (rows, count))
    blocks = blocks.reshape(rows, -1)
    numbers = gguf.dequantize(blocks, GGMLQuantizationType[kind])
    return torch.from_numpy(blocks), torch.from_numpy(numbers)


def test_sizes_are_those_of_the_format() -> None:
    theirs = {kind.name: (kind.value, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}
    assert all(theirs[kind.name] == (number, kind.entries, kind.size) for number, kind in NAMES.items())
    assert all(theirs[name][1:] == (kind.entries, kind.size) for name, kind in BLOCK_TYPES.items())


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("kind", BLOCK_TYPES)
def test_numbers_and_products(kind: str) -> None:
    blocks, numbers = blocks_of(kind, 37, 3)  # three portions, the last short
    unpack = kernels.unpacking(kind)
    assert unpack is not None
    for dtype in (torch.float32, torch.bfloat16):
        made = torch.empty(numbers.shape, dtype=dtype)
        unpack(blocks, made)
        assert torch.equal(made, numbers.to(dtype))
    x, bias = torch.randn(kernels.MOST_ROWS, numbers.shape[1]), torch.randn(37)
    multiply = kernels.multiplying(kind, blocks, bias)
    assert multiply is not None
    for rows in range(1, kernels.MOST_ROWS + 1):
        wanted = x[:rows].double() @ numbers.double().T + bias.double()
        assert_close_to_largest(multiply(x[:rows]).double(), wanted, FP32_OF_LARGEST)


def test_every_thread_takes_its_share() -> None:
    blocks, numbers = blocks_of("Q4_K", 1000, 1)
    unpack, made, before = kernels.unpacking("Q4_K"), torch.empty(numbers.shape), torch.get_num_threads()
    assert unpack is not None
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            made.zero_()
            unpack(blocks, made)
            assert torch.equal(made, numbers)
    finally:
        torch.set_num_threads(before)


def test_a_type_without_a_kernel_has_none() -> None:
    assert kernels.unpacking("IQ1_S") is None
    assert kernels.multiplying("F16", torch.zeros(1, 2, dtype=torch.uint8), None) is None
