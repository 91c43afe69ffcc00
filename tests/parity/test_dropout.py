"""In training, every dropout stands where transformers has it, with the probability of its own field.

Chance is taken out: a dropout of probability p multiplies by 1 + p, in both, and every field of a
configuration has a p of its own. A dropout that is missing, in another place or of another field then changes
the numbers.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from parity.conftest import Workshop
from parity.families import ENTRIES, OF_PARAMETERS
from regard.core import SeededDropout
from tolerances import PARITY_FP32, assert_close_to_largest

pytestmark = pytest.mark.usefixtures("quiet")

# A head's body is the base, whose dropouts are then met with it; a stack without any head is left.
CLASSES = [
    (name, label)
    for name in OF_PARAMETERS
    for label in ENTRIES[name].classes
    if label not in ("base", *ENTRIES[name].left_out)
]


def probabilities(name: str) -> dict[str, float]:
    """A p for each field, none like another. Layers are not dropped here, and summaries belong to no head."""
    fields = [
        field
        for field in ENTRIES[name].make_config().to_dict()
        if "drop" in field and "layerdrop" not in field and not field.startswith("summary")
    ]
    return {field: 0.15 + 0.07 * place for place, field in enumerate(sorted(fields))}


@pytest.fixture
def certain(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Takes chance out of every dropout; the probabilities that were asked for."""
    asked: list[float] = []

    def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        del inplace
        asked.append(p)
        return x * (1 + p) if training else x

    def keep(self: Any, *, batch: int, heads: int, queries: Tensor, keys: Tensor) -> Tensor:
        asked.append(self.p)  # what is kept is divided by 1 - p
        return torch.full((batch, heads, len(queries), len(keys)), (1 + self.p) * (1 - self.p))

    monkeypatch.setattr(torch.nn.functional, "dropout", dropout)
    monkeypatch.setattr(torch, "dropout", dropout)
    monkeypatch.setattr(SeededDropout, "keep", keep)
    return asked


@pytest.mark.parametrize(("name", "label"), CLASSES)
def test_places_and_probabilities(workshop: Workshop, certain: list[float], name: str, label: str) -> None:
    entry = ENTRIES[name]
    saved = workshop.saved(name, label, **probabilities(name))
    model = regard.load(saved.folder).network.train()
    batch = entry.inputs(label).of_head(label)["plain"]
    of_theirs: dict[str, Any] = {"input_ids": batch.token_ids}
    of_ours: dict[str, Any] = {"mask": batch.mask}
    if batch.mask is not None:
        of_theirs["attention_mask"] = batch.mask.long()
    if batch.target_ids is not None:
        of_theirs["decoder_input_ids"] = of_ours["decoder_token_ids"] = batch.target_ids
    try:
        with torch.no_grad():
            theirs = saved.model.train()(**of_theirs)
            asked = len(certain)
            ours = model(batch.token_ids, **of_ours)
    finally:
        saved.model.eval()
    assert asked
    assert {round(p, 6) for p in certain[asked:]} - {0.0} == {round(p, 6) for p in certain[:asked]} - {0.0}
    wanted = theirs.logits if "logits" in theirs else theirs[0]
    got = ours.last_hidden_state if ours.logits is None else ours.logits
    if wanted.ndim == 3:
        real = batch.real("encoder" if batch.target_ids is None else "decoder")
        wanted, got = wanted[real], got[real]
    assert_close_to_largest(got, wanted, PARITY_FP32)
