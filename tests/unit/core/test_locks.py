"""The lock on a folder, on this system and on one like Windows."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.core.errors import OutputError
from regard.core.locks import locked
from regard.embedding.job import Columns, Inputs, run
from unit.embedding.job.works import Hashed


def like_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """No positioned reading and writing, and a file that is open cannot be removed."""
    held: set[int] = set()

    def close(file: int) -> None:
        held.discard(os.fstat(file).st_ino)
        really_close(file)

    def open_(path: str | Path, *how: int, **at: Any) -> int:
        file = really_open(path, *how, **at)
        if str(path).endswith(".lock"):
            held.add(os.fstat(file).st_ino)
        return file

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path.stat().st_ino in held:
            raise PermissionError(errno.EACCES, "being used by another process")
        os.remove(path)

    really_open, really_close = os.open, os.close
    for name in ("pread", "pwrite", "O_CLOEXEC"):
        monkeypatch.delattr(os, name)
    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "close", close)
    monkeypatch.setattr(Path, "unlink", unlink)


@pytest.mark.parametrize("windows", [False, True])
def test_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: bool) -> None:
    if windows:
        like_windows(monkeypatch)
    told = f"is being written to by another job, process {os.getpid()} on .*Wait until it ends"
    for _ in range(2):
        with locked(tmp_path, ".lock"):
            for _ in range(2):
                with pytest.raises(OutputError, match=told), locked(tmp_path, ".lock"):
                    raise AssertionError("it is locked")
        assert list(tmp_path.iterdir()) == []
    (tmp_path / ".lock").write_text("process 1 on a machine that went down")
    with locked(tmp_path, ".lock"):
        assert (tmp_path / ".lock").read_text().startswith(f" process {os.getpid()} on ")


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    waits = "import sys; from pathlib import Path; from regard.core.locks import locked\n"
    waits += "with locked(Path(sys.argv[1]), '.lock'): print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", waits, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(OutputError, match=f"process {other.pid} on "), locked(tmp_path, ".lock"):
            raise AssertionError("it is locked")
        other.kill()
    with locked(tmp_path, ".lock"):
        assert list(tmp_path.iterdir()) == [tmp_path / ".lock"]


def test_a_lock_that_the_system_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="No locks available"), locked(tmp_path, ".lock"):
        raise AssertionError("there is no lock")


def test_a_job_on_a_system_like_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("one\n\nthree\n")
    inputs = Inputs([tmp_path / "a.txt"], Columns())
    run(inputs, tmp_path / "here", Hashed)
    like_windows(monkeypatch)
    run(inputs, tmp_path / "there", Hashed)
    names = ["_manifest.json", "_quarantine.jsonl", "part-00000.parquet"]
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == names
    for name in names:
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


def test_nothing_imports_fcntl_when_it_is_imported() -> None:
    for path in Path(regard.__file__).parent.rglob("*.py"):
        assert b"\nimport fcntl" not in path.read_bytes(), path
