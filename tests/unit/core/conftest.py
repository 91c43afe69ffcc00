"""The forms of attention that every promise is checked on."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from regard.core import AttentionInputs, _blocks, _fused, fused_attention, reference_attention, tensors
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


@pytest.fixture(params=["reference", "fused", "fused in blocks", "fused on a device"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Form:
    """The reference, and the fused form: as it is, with blocks of a few queries and keys, and with these
    where all that depends on the device is decided as elsewhere than on the CPU.
    """
    if request.param in ("fused in blocks", "fused on a device"):
        for name in ("_BLOCK_ENTRIES", "_CAPPED_ENTRIES", "ON_DEVICE"):
            monkeypatch.setattr(_fused, name, 40)
        monkeypatch.setattr(_fused, "_WORTH_BLOCKS", 1)
        monkeypatch.setattr(_fused, "_KEPT_ENTRIES", 0)
        monkeypatch.setattr(_blocks, "_FEWEST_ROWS", 2)
    if request.param == "fused on a device":
        monkeypatch.setattr(tensors, "_CPU", "another device")
    return _reference if request.param == "reference" else fused_attention
