"""NumPy files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from regard.core.errors import InputError, OutputError
from regard.embedding.job import Columns, Inputs, Piece, Progress, run_to_array
from unit.embedding.job.works import WIDTH, Hashed, Worded, vector


class Whole(Hashed):
    """Two layers of whole numbers, with their scales."""

    def __init__(self, settled: Mapping[str, Any] | None = None):
        super().__init__(settled)
        for layer in (2, 3):
            self.fields += [pa.field(f"scale_{layer}", pa.float32())]
            self.fields += [pa.field(f"vector_{layer}", pa.list_(pa.int8(), WIDTH))]
        del self.fields[0]

    def embed(self, texts: Sequence[str]) -> Piece:
        codes = np.arange(len(texts) * WIDTH, dtype=np.int8)
        array = pa.FixedSizeListArray.from_arrays(pa.array(codes), WIDTH)
        scales = pa.array(np.full(len(texts), 0.5, np.float32))
        return Piece(rows=np.arange(len(texts)), columns=[scales, array, scales, array])


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
    before = out.read_bytes()
    run_to_array(Inputs([texts], Columns()), out, Hashed, shard_rows=4)
    assert out.read_bytes() == before


@pytest.mark.parametrize("numbers", [False, True])
def test_npz(texts: Path, tmp_path: Path, numbers: bool) -> None:
    if numbers:
        texts.write_text(texts.read_text().replace('"d', "").replace('"}', "}"))
    out = tmp_path / "v.npz"
    run_to_array(Inputs([texts], Columns(id="id")), out, Whole, shard_rows=4)
    good = [n for n in range(23) if n != 5]
    with np.load(out) as found:
        assert sorted(found) == ["id", "row", "scale_2", "scale_3", "vectors"]
        assert (found["vectors"].shape, found["vectors"].dtype) == ((22, 2, WIDTH), np.int8)
        assert found["row"].tolist() == good
        assert found["id"].tolist() == [n if numbers else f"d{n}" for n in good]
        assert found["scale_2"].tolist() == [0.5] * 22
    before = out.read_bytes()
    run_to_array(Inputs([texts], Columns(id="id")), out, Whole, shard_rows=4)
    assert out.read_bytes() == before


def test_going_on(texts: Path, tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
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
    ("name", "columns", "work", "told"),
    [
        ("v.npy", Columns(id="id"), Hashed, "vectors of floats and no ids"),
        ("v.npy", Columns(), Whole, "vectors of floats and no ids"),
        ("v.npz", Columns(keep=("id",)), Hashed, "--keep goes with a folder"),
        ("v.npz", Columns(), lambda earlier: Worded(), "holds one vector a text"),
    ],
)
def test_what_a_file_does_not_hold(
    texts: Path, tmp_path: Path, name: str, columns: Columns, work: Any, told: str
) -> None:
    with pytest.raises(InputError, match=told):
        run_to_array(Inputs([texts], columns), tmp_path / name, work)
    assert [path.name for path in tmp_path.iterdir()] == ["texts.jsonl"]


def test_a_place_that_cannot_be_written(texts: Path, tmp_path: Path) -> None:
    (tmp_path / "v.npy").mkdir()
    with pytest.raises(OutputError, match="not a plain file"):
        run_to_array(Inputs([texts], Columns()), tmp_path / "v.npy", Hashed)
    assert (tmp_path / "v.npy.parts/_manifest.json").exists()  # the work of hours stays
