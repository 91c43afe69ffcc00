"""A word beside one of another text: which one, and the same picture of both in Python and in the page."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.core.errors import InputError
from regard.tracing.comparison import Movement
from regard.tracing.pages._beside import beside, word_at
from tolerances import FP64

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
