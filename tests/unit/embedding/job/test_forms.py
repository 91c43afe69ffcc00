"""Other forms of a result: NumPy files, and JSON lines for stdout."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regard.core.errors import InputError
from regard.embedding.job import Columns, Inputs, JobState, Piece, estimate, json_lines, run, run_to_array
from unit.embedding.job.works import WIDTH, Hashed, Worded, vector


class Layers(Hashed):
    """Two layers, of floats or of whole numbers."""

    def __init__(self, settled: Mapping[str, Any] | None = None, *, type: Any = np.float16):
        super().__init__(settled)
        self.sample = {f"vector_{layer}": np.zeros((1, WIDTH), type) for layer in (2, 3)}

    def embed(self, texts: Sequence[str]) -> Piece:
        found = np.array([vector(text) for text in texts], np.float16)
        return Piece(rows=np.arange(len(texts)), columns={"vector_2": found, "vector_3": -found})


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    rows = [{"text": f"text {n}" if n != 5 else None, "id": f"d{n}"} for n in range(23)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_npy(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "v.npy"
    summary = run_to_array(Inputs([texts], Columns()), out, Hashed, shard_rows=4)
    found = np.load(out)
    assert (found.shape, found.dtype) == ((23, WIDTH), np.float32)
    assert np.isnan(found[5]).all()  # row n is of row n
    for n in set(range(23)) - {5}:
        assert (found[n, 1:] == vector(f"text {n}")[1:]).all()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "texts.jsonl",
        "v.npy",
        "v.npy.quarantine.jsonl",
    ]
    assert (summary.rejected, summary.bytes) == (1, out.stat().st_size)
    with pytest.raises(InputError, match=r"v\.npy' is there already; remove it, or choose another name"):
        run_to_array(Inputs([texts], Columns()), out, Hashed, shard_rows=4)
    assert np.isnan(np.load(out)[5]).all()


def test_layers(texts: Path, tmp_path: Path) -> None:
    run_to_array(Inputs([texts], Columns()), tmp_path / "v.npy", Layers, shard_rows=4)
    found = np.load(tmp_path / "v.npy")
    assert (found.shape, found.dtype) == ((23, 2, WIDTH), np.float16)
    wanted = vector("text 22").astype(np.float16)
    assert (found[22] == [wanted, -wanted]).all()


def test_no_vector_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n")
    assert run_to_array(Inputs([tmp_path / "a.txt"], Columns()), tmp_path / "v.npy", Hashed).vectors == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "v.npy.quarantine.jsonl"]


def test_going_on(texts: Path, tmp_path: Path) -> None:
    def stop(progress: JobState) -> None:
        if progress.here >= 12:
            raise KeyboardInterrupt

    whole, out = tmp_path / "whole.npy", tmp_path / "v.npy"
    run_to_array(Inputs([texts], Columns()), whole, Hashed, shard_rows=4)
    with pytest.raises(KeyboardInterrupt):
        run_to_array(Inputs([texts], Columns()), out, Hashed, shard_rows=4, on_progress=stop)
    assert not out.exists()
    assert (tmp_path / "v.npy.parts").is_dir()
    assert run_to_array(Inputs([texts], Columns()), out, Hashed, shard_rows=4).before
    assert out.read_bytes() == whole.read_bytes()
    assert not (tmp_path / "v.npy.parts").exists()


@pytest.mark.parametrize(
    ("columns", "work", "told"),
    [
        (Columns(id="id"), Hashed, "for --id-column and --keep give -o a folder"),
        (Columns(), lambda earlier: Layers(type=np.int8), "holds vectors of floats"),
        (Columns(), lambda earlier: Worded(), "holds one vector a text"),
    ],
)
def test_what_a_file_does_not_hold(
    texts: Path, tmp_path: Path, columns: Columns, work: Any, told: str
) -> None:
    with pytest.raises(InputError, match=told):
        run_to_array(Inputs([texts], columns), tmp_path / "v.npy", work)
    assert [path.name for path in tmp_path.iterdir()] == ["texts.jsonl"]


def test_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    when = pa.array([1, 2, 3, 4, 5], pa.timestamp("ns"))
    table = pa.table({"text": ["one", None, "refuse", "four", " "], "id": [7, 8, 9, 10, 11], "when": when})
    pq.write_table(table, path)
    rejected: list[dict[str, Any]] = []
    inputs = Inputs([path], Columns(id="id", keep=("when",)))
    found = list(json_lines(inputs, Hashed(), on_rejected=rejected.append))
    lines = json.loads(json.dumps(found))
    assert [(line["row"], line["id"]) for line in lines] == [(0, 7), (3, 10)]
    assert lines[0]["when"] == "1970-01-01 00:00:00.000000001"
    assert (np.array(lines[0]["vector"], np.float32) == vector("one")).all()
    assert [(row["id"], row["reason"]) for row in rejected] == [
        (8, "the text is null"),
        (9, "no token is left"),
        (11, "the text is empty"),
    ]


def test_few_texts_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n\nrefuse\nfour\n")
    found = estimate(Inputs([path], Columns()), Hashed())
    assert (found.rows, found.texts, found.rejected) == (4, 2, 2)
    assert (found.sample, found.exact, found.tokens, found.vectors) == (3, True, 13, 2)


def test_many_texts_are_estimated_from_a_sample(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    lines = [f"text {n} {'x' * (n % 50)}" for n in range(10000)]
    path.write_text("\n".join([*lines, "", "last"]))
    tokens = sum(map(len, lines)) + 4
    found = estimate(Inputs([path], Columns()), Hashed())
    assert (found.rows, found.texts, found.rejected, found.vectors) == (10002, 10001, 1, 10001)
    assert not found.exact
    assert found.sample == 256
    assert abs(found.tokens - tokens) <= 0.001 * tokens  # a token is a character here
    assert estimate(Inputs([path], Columns()), Hashed()).bytes == found.bytes
    summary = run(Inputs([path], Columns()), tmp_path / "out", lambda earlier: Hashed(characters=10**6))
    assert abs(found.bytes - summary.bytes) < 0.25 * summary.bytes  # so few bytes a row that headers count
    words = estimate(Inputs([path], Columns()), Worded())
    assert abs(words.vectors - 30000) < 0.05 * 30000


def test_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n\n")
    found = estimate(Inputs([path], Columns()), Hashed())
    assert (found.rows, found.texts, found.rejected, found.bytes) == (2, 0, 2, 0)
