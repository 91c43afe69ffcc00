"""The forms of attention that every promise is checked on."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from regard.core import AttentionInputs, _blocks, _capped, _fused, fused_attention, reference_attention
from unit.core.cases import Form


def _reference(inputs: AttentionInputs) -> Tensor:
    return reference_attention(inputs).context


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """The tensors here are tiny: threads would only wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=["reference", "fused", "fused in blocks"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Form:
    """The reference, the fused form as it is, and the fused form with blocks of a few queries and keys."""
    if request.param == "fused in blocks":
        for module in (_fused, _capped):
            monkeypatch.setattr(module, "_BLOCK_ENTRIES", 40)
        monkeypatch.setattr(_fused, "_WORTH_BLOCKS", 1)
        monkeypatch.setattr(_blocks, "_FEWEST_ROWS", 2)
    return _reference if request.param == "reference" else fused_attention
