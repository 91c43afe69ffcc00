"""The story's end: the next words of a decoder, or a word beside itself in another sentence."""

from pathlib import Path

import pytest
import torch

import regard
from regard.tracing.pages._ending import ending_of
from unit.models.folders import write, write_tokenizer


def test_a_decoder_ends_with_its_next_words(tmp_path: Path) -> None:
    write_tokenizer(write(tmp_path, "gpt2"), 31)
    model = regard.load(tmp_path)
    trace = model.trace("w1 w2 w3")
    ending = ending_of(trace, "decoder")
    assert ending is not None
    with torch.no_grad():
        logits = model(torch.tensor([model.tokenizer.encode("w1 w2 w3").token_ids])).logits
    best = logits[0, -1].double().softmax(dim=0).topk(10).values.tolist()
    assert [each["probability"] for each in ending["next"]] == pytest.approx(best, rel=1e-3)


def test_an_encoder_ends_with_a_word_where_it_means_something_else() -> None:
    model = regard.load()
    ending = ending_of(model.trace("Write a poem about a man fishing on a river bank."), "encoder")
    assert ending is not None
    movement = ending["movement"]
    assert movement["words"][0] == "bank"
    assert movement["texts"][1] == "She keeps her savings in a bank."
    assert ending_of(model.trace("time goes by"), "encoder") is None
