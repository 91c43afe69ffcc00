"""`embed_all` under SIGKILL: nothing that was committed is lost or torn, and the next call ends the work."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from integration.forked import Forked
from regard.concordance import Concordance, build_index
from regard.concordance._uses import select
from regard.core.errors import InputError

pytestmark = pytest.mark.skipif(find_spec("lancedb") is None, reason="LanceDB is not installed")

CHILD = """
import time
from regard.concordance import Concordance
from regard.concordance import _anyword, _vectors
_vectors._USES_AT_ONCE = 200
if sys.argv[2] == "index":  # stops where the table is written and its index is not
    optimize = _anyword._batches
    def batches(*of):
        yield from optimize(*of)
        print("index", flush=True)
        time.sleep(600)
    _anyword._batches = batches
Concordance(sys.argv[1]).embed_all(lambda done, of: print(done, flush=True))
print("end", flush=True)
"""


WHOLE = """
import sys, time
from regard.concordance import Concordance, _building, _vectors, build_index
import lancedb, regard
regard.load()
_building._TEXTS_AT_ONCE, _vectors._USES_AT_ONCE = 10, 100
print("begin", flush=True)
build_index([sys.argv[1]], sys.argv[2], progress=lambda texts, file: print(f"text {texts}", flush=True))
Concordance(sys.argv[2]).embed_all(lambda done, of: print(done, flush=True))
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
    child, lines = Forked(str(index), until, program=CHILD), []
    for line in child.stdout:
        lines.append(line.strip())
        if (len(lines) == 2 and until == "second") or lines[-1] == until:
            child.send_signal(signal.SIGKILL)
            break
    code, _, err = child.end()
    assert (code, err) == (0 if lines[-1] == "end" else -signal.SIGKILL, "")
    return lines


def test_a_killed_job_loses_nothing_that_it_told_and_goes_on(tmp_path: Path) -> None:
    index, other = make(tmp_path / "killed"), make(tmp_path / "whole")
    told = int(run(index, "second")[-1])
    with sqlite3.connect(index / "index.sqlite") as db:
        (kept,) = db.execute("SELECT count(*) FROM vector WHERE use <= ?", [told]).fetchone()
        assert kept == np.count_nonzero(Concordance(other)._store.tokens.words <= told)
    went_on = run(index, "index")
    assert int(went_on[0]) > told
    killed, whole = Concordance(index), Concordance(other)
    asked: dict[str, Any] = {"sentence": "the *bank* of a river", "any_word": True, "k": 3}
    with pytest.raises(InputError, match="run `regard index --all`"):  # the table is there in part
        killed.find("bank", **asked)
    assert run(index, "")[-1] == "end"
    whole.embed_all()
    for word in ("bank", "river", "town"):
        uses = select(whole._store, word)
        assert (
            np.abs(killed.vectors.vectors_of(uses) - whole.vectors.vectors_of(uses)).max() < 1e-3
        )  # float16
    assert [line.place.use for line in killed.find("bank", **asked)] == [
        line.place.use for line in whole.find("bank", **asked)
    ]


@pytest.mark.slow
def test_killed_at_twenty_instants(tmp_path: Path) -> None:
    """What `regard index --all` does, from the first text to the last file: killed, and gone on with."""
    whole = make(tmp_path / "whole")
    embed = Concordance(whole).vectors.embed
    Concordance(whole, embed.loaded).embed_all()
    corpus, vectors = tmp_path / "whole" / "a.txt", "SELECT use, v FROM vector ORDER BY use"
    asked = {"sentence": "the *bank* of a river", "any_word": True, "k": 3}
    wanted = [line.place.use for line in Concordance(whole, embed.loaded).find("bank", **asked)]
    with closing(sqlite3.connect(whole / "index.sqlite")) as db:
        exact = db.execute(vectors).fetchall()
    ends, seconds = set[str](), 60.0
    for instant in range(21):  # the first is not killed: it is timed
        index = tmp_path / "index"
        shutil.rmtree(index, ignore_errors=True)
        command = [sys.executable, "-c", WHOLE, str(corpus), str(index)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            child.stdout.readline()
            begun = time.monotonic()
            if instant:
                time.sleep(seconds * instant / 21)
                child.send_signal(signal.SIGKILL)
            told = child.stdout.read().splitlines()
        seconds = seconds if instant else time.monotonic() - begun
        ends.add(told[-1] if told else "")
        last = max((int(line) for line in told if line.isdecimal()), default=0)
        if (index / "index.sqlite").exists():
            with closing(sqlite3.connect(index / "index.sqlite")) as db:
                assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
                kept = db.execute(vectors).fetchall()
                assert [use for use, _ in kept if use <= last] == [use for use, _ in exact if use <= last]
        build_index([corpus], index)
        again = Concordance(index, embed.loaded)
        again.embed_all()
        assert sorted(each.name for each in index.iterdir() if each.is_dir()) == ["any"]
        kept = again._store.rows(vectors)
        assert [use for use, _ in kept] == [use for use, _ in exact]
        both = (np.frombuffer(b"".join(v for _, v in each), np.float16) for each in (kept, exact))
        assert np.abs(np.subtract(*both)).max() < 2e-3  # float16
        assert [line.place.use for line in again.find("bank", **asked)] == wanted
        again._store.db.close()
    assert len(ends) >= 5  # at different places
