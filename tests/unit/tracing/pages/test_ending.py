"""The story's end: a decoder's next words, or a word beside one of another text, in page and Python alike."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.core.errors import InputError
from regard.tracing import movement
from regard.tracing.comparison import Movement
from regard.tracing.pages._ending import beside, ending_of, word_at
from tolerances import FP64
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


NODE = shutil.which("node", path=Path(sys.executable).parent)
STATIC = Path(regard.__file__).parent / "views" / "static"


def test_the_page_projects_as_python_does(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    apart = rng.standard_normal((2, 8, 30)) * np.linspace(3, 0.1, 30)
    together = apart.copy()
    together[:, 0] = apart[0, 0]  # one row of the table
    alike = np.stack([apart[0], apart[0]])
    line = np.zeros((2, 4, 3))
    line[0, :, 1] = [0, 1, 2, 3]
    cases = [apart, together, alike, line, np.zeros((2, 3, 2))]
    (tmp_path / "pairs.json").write_text(json.dumps([case.tolist() for case in cases]), encoding="utf-8")
    script = Path(__file__).with_name("beside_run.mjs")
    done = subprocess.run(
        [str(NODE), str(script), str(STATIC), str(tmp_path / "pairs.json")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for vectors, found in zip(cases, json.loads(done.stdout), strict=True):
        steps = tuple(map(str, range(vectors.shape[1])))
        names = {"model": "m", "words": ("bank", "coast"), "texts": ("x", "y"), "steps": steps}
        wanted = Movement(vectors=vectors, **names).project()
        assert not wanted.ends  # of two words there is a way in common
        size = max(1.0, float(np.abs(vectors).max()))
        np.testing.assert_allclose(found["points"], wanted.points, rtol=0, atol=FP64 * size * 10)
        np.testing.assert_allclose(found["far"], wanted.true[:, 0, 1], rtol=0, atol=FP64 * size * 10)
        np.testing.assert_allclose(found["share"], wanted.share, rtol=0, atol=FP64 * 10)
        part = None if wanted.apart is None else pytest.approx(wanted.apart, abs=FP64 * 10)
        assert found["apart"] == part


def test_the_word_is_the_same_or_the_one_most_like_it() -> None:
    model = regard.load()
    trace = model.trace("The trophy does not fit into the suitcase.")
    other = model.trace("The prize would not go in my bag.")
    words = {token: beside(trace, other, word_at(trace, token))["words"] for token in (2, 4, 8)}
    assert words == {2: ["trophy", "prize"], 4: ["not", "not"], 8: ["suitcase", "bag"]}
    assert beside(trace, other)["words"] == ["trophy", "prize"]  # of those with four letters and more
    twice = model.trace("A bank by a bank.")
    assert beside(twice, trace, word_at(twice, 5))["words"][0] == "bank#2"
    with pytest.raises(InputError, match="part of a word of the text; got 0"):
        word_at(trace, 0)
    with pytest.raises(InputError, match="second must have a word"):
        beside(trace, model.trace("..."))
