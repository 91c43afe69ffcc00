"""`embed_all` under SIGKILL: nothing that was committed is lost or torn, and the next call ends the work."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from regard.concordance import Concordance, build_index
from regard.concordance._uses import select

pytest.importorskip("lancedb")

CHILD = """
import sys
from regard.concordance import Concordance
from regard.concordance import _anyword, _vectors
_vectors._USES_AT_ONCE = 200
if sys.argv[2] == "index":  # stops where the table is written and its index is not
    optimize = _anyword._batches
    def batches(*of):
        yield from optimize(*of)
        print("index", flush=True)
        sys.stdin.read()
    _anyword._batches = batches
Concordance(sys.argv[1]).embed_all(lambda done, of: print(done, flush=True))
print("end", flush=True)
"""


def make(folder: Path) -> Path:
    folder.mkdir()
    lines = [f"The bank of river {number} lies by the town of number {number % 7}." for number in range(90)]
    (folder / "a.txt").write_text("\n".join(lines) + "\n")
    build_index([folder / "a.txt"], folder / "index")
    return folder / "index"


def run(index: Path, until: str) -> list[str]:
    """The child's lines up to one that is `until`, when it is killed; all of them where none is."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(index), until],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = []
    assert child.stdout is not None
    with child:
        for line in child.stdout:
            lines.append(line.strip())
            if (len(lines) == 2 and until == "second") or lines[-1] == until:
                child.send_signal(signal.SIGKILL)
                break
        child.stdout.read()
    return lines


def test_a_killed_job_loses_nothing_that_it_told_and_goes_on(tmp_path: Path) -> None:
    index, other = make(tmp_path / "killed"), make(tmp_path / "whole")
    told = int(run(index, "second")[-1])
    with sqlite3.connect(index / "index.sqlite") as db:
        (words,) = db.execute(
            "SELECT count(*) FROM use u JOIN form f ON f.id = u.form WHERE is_word AND u.id <= ?", [told]
        ).fetchone()
        (kept,) = db.execute("SELECT count(*) FROM vector WHERE use <= ?", [told]).fetchone()
        assert kept == words
    went_on = run(index, "index")
    assert int(went_on[0]) > told
    assert not (index / "any").exists()
    assert run(index, "")[-1] == "end"
    assert not (index / "any.new").exists()
    killed, whole = Concordance(index), Concordance(other)
    whole.embed_all()
    for word in ("bank", "river", "town"):
        uses = select(whole._store, word)
        assert np.abs(killed.vectors.of(uses) - whole.vectors.of(uses)).max() < 1e-3  # float16
    asked = {"sentence": "the *bank* of a river", "any_word": True, "k": 3}
    assert [line.place.use for line in killed.find("bank", **asked)] == [
        line.place.use for line in whole.find("bank", **asked)
    ]
