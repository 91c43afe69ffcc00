"""Engines whose products are those of kernels."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from regard.embedding import Embedder, Request
from regard.embedding._engine import Engine, NetworkEngine
from regard.embedding._quantized import in_float32, in_int8, in_int16
from regard.models import Transformer, load_checkpoint
from tolerances import PARITY_FP32, assert_close_to_largest
from unit.kernels.targets import needs_vnni
from unit.models.tiny import IDS, decoder, encoder

has_avx2 = torch.backends.cpu.get_cpu_capability().startswith("AVX")
pytestmark = pytest.mark.skipif(not has_avx2, reason="the processor has no AVX2")


@pytest.mark.parametrize("made", [in_float32, in_int16, pytest.param(in_int8, marks=needs_vnni)])
@pytest.mark.parametrize("form", [encoder, decoder])
def test_maps_of_other_sizes_stay_in_float32(
    made: Callable[[Transformer, list[int]], Engine], form: Callable[[], Transformer]
) -> None:
    network = form().float()  # 30 entries, and not 32 or 128
    found = made(network, [1, 2]).hidden(IDS.flatten(), [(2, 7)])
    own = NetworkEngine(network, [1, 2]).hidden(IDS.flatten(), [(2, 7)])
    for ours, theirs in zip(found, own, strict=True):
        assert_close_to_largest(ours, theirs, PARITY_FP32)


@pytest.mark.parametrize("precision", ["float32", "int16", pytest.param("int8", marks=needs_vnni)])
def test_vectors_are_the_same_bits_in_any_company(precision: Any) -> None:
    texts = [" ".join(words) for words in itertools.permutations(["a", "river", "bank", "unexpectedly"])]
    texts = ["The bank raised its interest rates, unexpectedly!", *texts, *(text[:20] for text in texts)]
    embedder = Embedder(load_checkpoint(), Request(precision=precision))
    if precision == "float32" and not embedder.settled["kernel"].endswith(" float32"):
        pytest.skip("torch's products are taken here")
    together = embedder.sentences(texts).vectors
    alone = np.concatenate([embedder.sentences([text]).vectors for text in texts])
    assert np.array_equal(together, alone)
