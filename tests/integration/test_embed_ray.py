"""A job on a Ray of this machine, whose worker is killed, and whose leader is: the bytes of one process."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")

SECONDS = 240
WORDS = ["the", "river", "bank", "was", "open", "and", "a", "man", "fished", "near", "time", "flies"]
OPTIONS = ("--threads", "1", "--rows-per-shard", "16", "--level", "word")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some of them cannot be embedded."""
    draw = random.Random(0)
    path = tmp_path_factory.mktemp("in") / "texts.txt"
    lines = (" ".join(draw.choices(WORDS, k=draw.randint(3, 40))) if n % 29 else "" for n in range(800))
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def start(texts: Path, out: Path, *options: str, **others: Any) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment["HOME"] = str(out.parent)  # Ray puts a token there
    command = [sys.executable, "-m", "regard", "embed", *options, str(texts), "-o", str(out), *OPTIONS]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **others
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Waits for its end, which is to be a good one, and gives what it said on stderr."""
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    return err


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def whole(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What one process gives."""
    out = tmp_path_factory.mktemp("whole") / "out"
    finish(start(texts, out))
    found = content(out)
    assert len(found) == 50 + 2
    return found


def wait_for(found: Callable[[], Any], process: subprocess.Popen[str] | None = None) -> Any:
    end = time.monotonic() + SECONDS
    while not (result := found()):
        assert time.monotonic() < end
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.01)
    return result


def below(process: int) -> dict[int, str]:
    """The processes that one has started, and those that these have, with their names."""
    parents, names = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                status = (entry / "stat").read_text()
                names[int(entry.name)] = (entry / "cmdline").read_bytes().decode("utf-8", "replace")
            except OSError:
                continue  # it has ended
            parents[int(entry.name)] = int(status.rpartition(")")[2].split()[1])
    found = {process}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {child: names[child] for child in found - {process}}


def embedding(process: subprocess.Popen[str]) -> int | None:
    """One of the workers that are at it: Ray names a process after what it does."""
    names = below(process.pid)
    return next((child for child, name in names.items() if name.startswith("ray::Worker.embed")), None)


def is_there(process: int) -> bool:
    try:
        return (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_worker_is_killed(texts: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    out = tmp_path / "out"
    process = start(texts, out, "--ray", "--workers", "2")
    wait_for(lambda: list(out.glob("part-*")), process)
    worker = wait_for(lambda: embedding(process), process)
    started = below(process.pid)
    os.kill(worker, signal.SIGKILL)
    err = finish(process)
    assert err.startswith("regard: 2 workers on Ray, with 1 core each\n")
    assert "Traceback" not in err
    assert content(out) == whole
    wait_for(lambda: not [child for child in started if is_there(child)])


def test_the_leader_is_killed(texts: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    out = tmp_path / "out"
    process = start(texts, out, "--ray", "--workers", "2")
    wait_for(lambda: list(out.glob("part-*")), process)
    started = below(process.pid)
    process.kill()
    process.communicate(timeout=SECONDS)
    assert len(list(out.glob("part-*"))) < 50
    # Without Ray: a job can go on elsewhere than it was begun.
    assert "Traceback" not in finish(start(texts, out))
    assert content(out) == whole
    wait_for(lambda: not [child for child in started if is_there(child)])
