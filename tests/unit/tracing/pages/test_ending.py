"""The story's end: the next words of a decoder, or a word beside itself in another sentence."""

from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.tracing import movement
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


def test_an_encoder_ends_with_its_words_where_they_mean_something_else() -> None:
    model = regard.load()
    trace = model.trace("Write a poem about a man fishing on a river bank.")
    ending = ending_of(trace, "encoder", first=4)
    assert ending is not None
    beside = ending["beside"]
    assert [*beside["of"]] == [4, 7, 1, 10, 3, 11, 6, 8]  # the word that it opens on, and the longest others
    assert beside["of"][11]["text"] == "She keeps her savings in a bank."
    assert beside["of"][3]["text"] == "What does the word poem mean?"
    two = movement([trace, model.trace("What does the word poem mean?")], "poem").project(directions=True)
    np.testing.assert_allclose(beside["of"][3]["points"], two.points, rtol=1e-3, atol=1e-3)
    assert ending_of(trace, "encoder", with_words=False) is None
