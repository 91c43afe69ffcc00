"""Jobs that are killed at any instant, and go on: with real processes, and a work that needs no model."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SECONDS = 120
TESTS = Path(__file__).parents[1]

PROGRAM = """
import sys
from pathlib import Path
from regard.core.errors import RegardError
from regard.embedding.job import Columns, Inputs, run
from unit.embedding.job.works import Hashed
texts, out, slow = sys.argv[1:]
print("ready", flush=True)
try:
    run(Inputs([Path(texts)], Columns()), Path(out), lambda earlier: Hashed(earlier, slow=float(slow)),
        shard_rows=64)
except RegardError as error:
    sys.exit(str(error))
"""


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("in") / "texts.txt"
    path.write_text("".join(f"text {n} of the river\n" if n % 13 else "\n" for n in range(1500)))
    return path


def start(texts: Path, out: Path, *, slow: float = 0.005, **options: object) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(texts), str(out), str(slow)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=SECONDS)
    return process.returncode, err


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def whole(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("whole") / "out"
    assert finish(start(texts, out)) == (0, "")
    found = content(out)
    assert len(found) == 24 + 2
    return found


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_instant(texts: Path, whole: dict[str, bytes], tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    out = tmp_path / "out"
    kills = 0
    for _ in range(40):
        process = start(texts, out)
        try:
            assert process.wait(timeout=draw.uniform(0.0, 0.25)) == 0
            finish(process)
            break
        except subprocess.TimeoutExpired:
            process.kill()
            assert finish(process)[0] == -signal.SIGKILL
            kills += 1
    assert kills >= 2
    assert finish(start(texts, out)) == (0, "")
    assert content(out) == whole


@pytest.mark.parametrize(
    "name", ["_manifest.json", "part-00003.parquet", "part-00003.json", "_quarantine.jsonl"]
)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_every_rename(
    texts: Path, whole: dict[str, bytes], tmp_path: Path, name: str, moment: str
) -> None:
    out = tmp_path / "out"
    rename = """
import os, pathlib, time
for owner, name in ((os, "replace"), (pathlib.Path, "replace")):
    def hang(source, target, real=getattr(owner, name)):
        there = str(target).endswith(NAME)
        if there and MOMENT == "before":
            print("there", flush=True), time.sleep(600)
        real(source, target)
        if there and MOMENT == "after":
            print("there", flush=True), time.sleep(600)
    setattr(owner, name, hang)
""".replace("NAME", repr(name)).replace("MOMENT", repr(moment))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-c", rename + PROGRAM, str(texts), str(out), "0"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "there\n"]
    process.kill()
    process.communicate(timeout=SECONDS)
    assert finish(start(texts, out, slow=0)) == (0, "")
    assert content(out) == whole


def test_two_jobs_on_one_folder(texts: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = start(texts, out, slow=0.1)
    wait_for(lambda: list(out.glob("part-*")))
    code, err = finish(start(texts, out))
    assert code == 1
    assert f"is being written to by another job, process {first.pid} on " in err
    assert "Wait until it ends, or stop it and go on here." in err
    first.kill()
    finish(first)
    assert (out / ".lock").exists()  # but nobody holds it any more
    assert finish(start(texts, out)) == (0, "")
    assert content(out) == whole


def test_a_file_that_may_not_grow(texts: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
    out = tmp_path / "out"

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))

    code, err = finish(start(texts, out, preexec_fn=limited))
    assert code == 1
    assert "cannot be written (File too large)" in err
    assert "Traceback" not in err
    assert finish(start(texts, out)) == (0, "")
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


def test_a_full_disk(texts: Path, whole: dict[str, bytes], small_disk: Path) -> None:
    out = small_disk / "out"
    code, err = finish(start(texts, out))
    assert code == 1
    assert "cannot be written (No space left on device)" in err
    assert "What is done stays: " in err
    assert "Traceback" not in err
    done = list(out.glob("*.parquet"))
    assert done
    for path in done:
        assert path.read_bytes() == whole[path.name]
    assert not list(out.rglob("*.tmp"))
    subprocess.run(["mount", "-o", "remount,size=1m", str(small_disk)], check=True)
    assert finish(start(texts, out)) == (0, "")
    assert content(out) == whole


def wait_for(found: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not found():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_was_done_before_is_counted(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = start(texts, out, slow=0.05)
    wait_for(lambda: (out / ".progress/part-00002.json").exists())
    process.kill()
    finish(process)
    records = sorted((out / ".progress").glob("*.json"))
    assert [json.loads(path.read_text())["rows"] for path in records] == [64] * len(records)
