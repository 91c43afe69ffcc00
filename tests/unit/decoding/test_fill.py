"""Guesses behind masks: each mask by itself, in the words of its tokenizer."""

from pathlib import Path

import pytest
import torch
import transformers

import regard
from regard.core.errors import CheckpointError, InputError, RegardError
from regard.models import write_checkpoint
from regard.text import write_tokenizer
from tolerances import PARITY_FP32, assert_close_to_largest
from unit.training.small import WORDS, network, tokenizer

TEXT = "The  [MASK] of a river [MASK]!"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three rows more than words."""
    made = network("bert", head="masked-lm", vocab_size=len(WORDS) + 3)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(0.0, 0.6)
    folder = write_checkpoint(made, tmp_path_factory.mktemp("bert") / "model")
    write_tokenizer(tokenizer(), folder)
    return folder


def test_the_guesses_are_those_of_transformers(folder: Path) -> None:
    model = regard.load(folder)
    filled = model.fill(TEXT, top=4)
    ids = list(model.tokenizer.encode(TEXT).token_ids)
    assert [place for place, id in enumerate(ids) if id == 4] == [2, 6]
    theirs = transformers.BertForMaskedLM.from_pretrained(folder).eval()
    with torch.no_grad():
        shares = theirs(torch.tensor([ids])).logits[0, [2, 6]].softmax(dim=1)
    for guesses, row in zip(filled.masks, shares, strict=True):
        expected = row[: len(WORDS)].sort(descending=True)
        assert [each.token_id for each in guesses] == expected.indices[:4].tolist()
        assert [each.token for each in guesses] == [WORDS[each.token_id] for each in guesses]
        told = [each.probability for each in guesses]
        assert_close_to_largest(told, expected.values[:4], PARITY_FP32)
    first, second = (guesses[0].token for guesses in filled.masks)
    joined = TEXT.replace("[MASK]", first, 1).replace("[MASK]", second, 1)
    assert filled.best.replace("##", "") == joined.replace("##", "")
    assert f"{filled.masks[1][3].probability:.4f}" in str(filled)
    assert str(filled).count("mask 2 of 2") == 1
    assert [row["mask"] for row in filled.to_rows()] == [0] * 4 + [1] * 4
    everything = model.fill("a [MASK]", top=99)
    assert len(everything.masks[0]) == len(WORDS)
    assert sum(each.probability for each in everything.masks[0]) < 1


def test_damaged_weights_fill_no_gap(folder: Path) -> None:
    model = regard.load(folder)
    with torch.no_grad():
        model.network.stack("encoder").layers[-1].ffn.output.weight[0, 0] = float("inf")
    with pytest.raises(RegardError, match="logits that are not finite"):
        model.fill(TEXT)


def test_refusals(folder: Path, tmp_path: Path) -> None:
    model, writes = regard.load(folder), regard.load(write_checkpoint(network("gpt2"), tmp_path / "gpt2"))
    (folder / "tokenizer.json").unlink()
    for call, message in (
        (lambda: model.fill("<mask> bank"), r"a mask, which this model spells \[MASK\]; got '<mask>"),
        (lambda: model.fill(TEXT, top=0), "top must be a whole number, at least 1; got 0"),
        (lambda: model.fill("a " * 50 + "[MASK]"), "at most 31 tokens, the model's limit; got 53"),
        (lambda: model.generate("a river"), "this bert has no decoder: it fills gaps, which `regard fill`"),
        (lambda: regard.load().fill(TEXT), "to fill gaps; this bert has none"),
        (lambda: writes.fill(TEXT), "this gpt2 writes on, which `regard generate` and"),
        (lambda: regard.load(folder).fill(TEXT), "has no tokenizer, which text needs"),
    ):
        with pytest.raises((InputError, CheckpointError), match=message):
            call()
