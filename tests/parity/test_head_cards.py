"""Cards of heads through the lens on transformers' model are those of regard's own."""

import pytest
from transformers import AutoModel, AutoTokenizer

import regard
from regard.checkpoints import DEFAULT_MODEL, find
from tolerances import PARITY_FP32

TEXTS = [
    "The cat sat on the mat, and the dog lay on the rug.",
    "Time flies like an arrow; fruit flies like a banana.",
]


def test_cards_through_the_lens() -> None:
    folder = find(DEFAULT_MODEL).folder
    hf_model = AutoModel.from_pretrained(folder, attn_implementation="sdpa").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ours, theirs = regard.load().heads(TEXTS), regard.lens(hf_model, tokenizer).heads(TEXTS)
    assert [card.pattern for card in ours.cards] == [card.pattern for card in theirs.cards]
    for one, other in zip(ours.cards, theirs.cards, strict=True):
        by_name = {finding.name: finding for finding in other.findings}
        for finding in one.findings:
            same = by_name[finding.name]
            for field in ("effect", "low", "high", "mass", "captured"):
                wanted = pytest.approx(getattr(same, field), abs=PARITY_FP32, nan_ok=True)
                assert getattr(finding, field) == wanted, (one.layer, one.head, finding.name, field)
