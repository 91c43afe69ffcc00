"""Jobs that are killed at any instant, and go on: real processes, with a work that needs no model."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from integration.forked import wait_for
from unit.embedding.job.processes import command, content, end_of, kill, run, start


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("in") / "texts.txt"
    path.write_text("".join(f"text {n} of the river\n" if n % 13 else "\n" for n in range(380)))
    return path


@pytest.fixture
def err(tmp_path: Path) -> Path:
    return tmp_path / "err"


@pytest.fixture(scope="module")
def whole(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What one run gives."""
    folder = tmp_path_factory.mktemp("whole")
    assert run(texts, folder / "out", folder / "err") == 0
    found = content(folder / "out")
    assert len(found) == 6 + 2
    return found


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_any_instant(
    texts: Path, whole: dict[str, bytes], tmp_path: Path, err: Path, seed: int
) -> None:
    draw = random.Random(seed)
    out = tmp_path / "out"
    for _ in range(8):
        process = start(texts, out, err, slow=0.01)
        time.sleep(draw.uniform(0.0, 0.3))
        assert kill(process) in (-signal.SIGKILL, 0)
    assert run(texts, out, err) == 0
    assert content(out) == whole


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "name",
    [
        "_manifest.json",
        "part-00003.parquet",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("part-00003.json", "_quarantine.jsonl")),
    ],
)
def test_killed_at_every_rename(
    texts: Path, whole: dict[str, bytes], tmp_path: Path, err: Path, name: str, moment: str
) -> None:
    out = tmp_path / "out"
    process = start(texts, out, err, hang=[name, moment])
    wait_for(err.exists)
    assert kill(process) == -signal.SIGKILL
    assert run(texts, out, err) == 0
    assert content(out) == whole


def test_killed_when_all_is_done_but_the_tidying(
    texts: Path, whole: dict[str, bytes], tmp_path: Path, err: Path
) -> None:
    out = tmp_path / "out"
    assert run(texts, out, err) == 0
    (out / ".progress").mkdir()
    rejected = [json.loads(line) for line in (out / "_quarantine.jsonl").read_text().splitlines()]
    first = json.loads((out / "_manifest.json").read_text())["shards"][0]
    record = {**first, "rejected": [row for row in rejected if row["row"] < 64]}
    (out / ".progress/part-00000.json").write_text(json.dumps(record))
    (out / f".regard-{'0' * 16}.tmp").write_text("x")
    assert run(texts, out, err) == 0
    assert content(out) == whole


def test_two_jobs_on_one_folder(texts: Path, whole: dict[str, bytes], tmp_path: Path, err: Path) -> None:
    out = tmp_path / "out"
    first = start(texts, out, err, slow=0.5)
    wait_for(lambda: list(out.glob("_manifest.json")))
    assert run(texts, out, err) == 1
    told = err.read_text()
    assert f"is being written to by another job, process {first.pid} on " in told
    assert "Wait until it ends, or stop it and go on here." in told
    assert kill(first) == -signal.SIGKILL
    assert (out / ".lock").exists()  # but nobody holds it any more
    assert run(texts, out, err) == 0
    assert content(out) == whole


def test_a_file_that_may_not_grow(texts: Path, whole: dict[str, bytes], tmp_path: Path, err: Path) -> None:
    out = tmp_path / "out"
    assert run(texts, out, err, limit=1500) == 1
    assert "cannot be written (File too large)" in err.read_text()
    assert run(texts, out, err) == 0
    assert content(out) == whole


def test_stopped_and_continued(texts: Path, whole: dict[str, bytes], tmp_path: Path, err: Path) -> None:
    out, printed = tmp_path / "out", tmp_path / "printed"
    words = ["embed", str(texts), "--rows-per-shard", "64", "-o", str(out)]
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        shards = len(list(out.glob("part-*")))
        process = command(printed, err, *words)
        wait_for(lambda before=shards: len(list(out.glob("part-*"))) > before)
        assert process.pid is not None
        os.kill(process.pid, number)
        assert (end_of(process), printed.read_text()) == (code, "")
        assert err.read_text().splitlines()[-1] == "regard: stopped; the same command goes on where it was"
        assert not (out / ".lock").exists()
        assert not list(out.rglob("*.tmp")) + list((out / ".progress").glob("*.parquet"))
    assert end_of(command(printed, err, *words)) == 0
    assert content(out) == whole


def test_a_reader_that_goes_away(texts: Path, err: Path) -> None:
    assert end_of(command(None, err, "embed", str(texts), "-o", "-")) in (0, 1)
    assert "Traceback" not in err.read_text()


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, err: Path, ending: str) -> None:
    peaks = []
    for rows in (20_000, 120_000):
        path = tmp_path / f"{rows}.{ending}"
        texts = [f"text {n} of the river and of its bank" for n in range(rows)]
        if ending == "parquet":
            pq.write_table(pa.table({"text": texts}), path, row_group_size=rows)
        else:
            path.write_text("".join(f'{{"text": "{text}"}}\n' for text in texts))
        assert run(path, tmp_path / f"out-{rows}", err, peak=True) == 0
        peaks.append(int(err.read_text()) / 1024)
    assert peaks[1] < peaks[0] + 10, peaks  # MB; all texts and vectors would be 45 more, Arrow's allocator 13


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 36 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=36k", "none", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root can mount a small disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk(texts: Path, whole: dict[str, bytes], small_disk: Path, err: Path) -> None:
    out = small_disk / "out"
    assert run(texts, out, err) == 1
    told = err.read_text()
    assert "cannot be written (No space left on device)" in told
    assert "What is done stays: " in told
    assert told.endswith(" The same command goes on.")
    done = list(out.glob("*.parquet"))
    assert done
    for path in done:
        assert path.read_bytes() == whole[path.name]
    assert not [path for path in out.rglob("*") if path.suffix == ".tmp"]
    subprocess.run(["mount", "-o", "remount,size=1m", str(small_disk)], check=True)
    assert run(texts, out, err) == 0
    assert content(out) == whole
