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

import pytest

from unit.embedding.job.processes import Nursery, wait_for


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("in") / "texts.txt"
    path.write_text("".join(f"text {n} of the river\n" if n % 13 else "\n" for n in range(700)))
    return path


@pytest.fixture(scope="module")
def jobs() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def err(tmp_path: Path) -> Path:
    return tmp_path / "err"


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def whole(jobs: Nursery, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What one run gives."""
    folder = tmp_path_factory.mktemp("whole")
    assert jobs.run(texts, folder / "out", folder / "err") == 0
    found = content(folder / "out")
    assert len(found) == 11 + 2
    return found


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_instant(
    jobs: Nursery, texts: Path, whole: dict[str, bytes], tmp_path: Path, err: Path, seed: int
) -> None:
    draw = random.Random(seed)
    out = tmp_path / "out"
    for _ in range(8):
        process = jobs.start(texts, out, err, slow=0.002)
        time.sleep(draw.uniform(0.0, 0.3))
        assert jobs.kill(process) in (-signal.SIGKILL, 0)
    assert jobs.run(texts, out, err) == 0
    assert content(out) == whole


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "name", ["_manifest.json", "part-00003.parquet", "part-00003.json", "_quarantine.jsonl"]
)
def test_killed_at_every_rename(
    jobs: Nursery, texts: Path, whole: dict[str, bytes], tmp_path: Path, err: Path, name: str, moment: str
) -> None:
    out = tmp_path / "out"
    process = jobs.start(texts, out, err, hang=[name, moment])
    wait_for(err.exists)
    assert jobs.kill(process) == -signal.SIGKILL
    assert jobs.run(texts, out, err) == 0
    assert content(out) == whole


def test_killed_when_all_is_done_but_the_tidying(
    jobs: Nursery, texts: Path, whole: dict[str, bytes], tmp_path: Path, err: Path
) -> None:
    out = tmp_path / "out"
    assert jobs.run(texts, out, err) == 0
    (out / ".progress").mkdir()
    rejected = [json.loads(line) for line in (out / "_quarantine.jsonl").read_text().splitlines()]
    first = json.loads((out / "_manifest.json").read_text())["shards"][0]
    record = {**first, "rejected": [row for row in rejected if row["row"] < 64]}
    (out / ".progress/part-00000.json").write_text(json.dumps(record))
    (out / f".regard-{'0' * 16}.tmp").write_text("x")
    assert jobs.run(texts, out, err) == 0
    assert content(out) == whole


def test_two_jobs_on_one_folder(
    jobs: Nursery, texts: Path, whole: dict[str, bytes], tmp_path: Path, err: Path
) -> None:
    out = tmp_path / "out"
    first = jobs.start(texts, out, err, slow=0.5)
    wait_for(lambda: list(out.glob("_manifest.json")))
    assert jobs.run(texts, out, err) == 1
    told = err.read_text()
    assert f"is being written to by another job, process {first} on " in told
    assert "Wait until it ends, or stop it and go on here." in told
    assert jobs.kill(first) == -signal.SIGKILL
    assert (out / ".lock").exists()  # but nobody holds it any more
    assert jobs.run(texts, out, err) == 0
    assert content(out) == whole


def test_a_file_that_may_not_grow(
    jobs: Nursery, texts: Path, whole: dict[str, bytes], tmp_path: Path, err: Path
) -> None:
    out = tmp_path / "out"
    assert jobs.run(texts, out, err, limit=1500) == 1
    assert "cannot be written (File too large)" in err.read_text()
    assert jobs.run(texts, out, err) == 0
    assert content(out) == whole


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root can mount a small disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk(
    jobs: Nursery, texts: Path, whole: dict[str, bytes], small_disk: Path, err: Path
) -> None:
    out = small_disk / "out"
    assert jobs.run(texts, out, err) == 1
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
    assert jobs.run(texts, out, err) == 0
    assert content(out) == whole
