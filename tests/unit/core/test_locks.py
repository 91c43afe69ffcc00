"""The lock on a folder, on this system and on one like Windows."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import regard
from regard.core.errors import OutputError
from regard.core.locks import locked
from regard.embedding.job import Columns, Inputs, run
from unit.embedding.job.works import Hashed


def like_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """No fcntl, no positioned reading and writing, and a file that is open cannot be removed."""
    held: dict[int, int] = {}

    def locking(file: int, mode: int, count: int) -> None:
        assert (mode, count) == (2, 1)
        at = os.lseek(file, 0, os.SEEK_CUR)
        assert at > 1000  # what is locked cannot be read by others
        inode = os.fstat(file).st_ino
        if inode in held:
            raise OSError(errno.EACCES, "Permission denied")
        held[inode] = file

    def close(file: int) -> None:
        inode = os.fstat(file).st_ino
        if held.get(inode) == file:
            del held[inode]
        really_close(file)

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path.stat().st_ino in held:
            raise PermissionError(errno.EACCES, "being used by another process")
        os.remove(path)

    really_close = os.close
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(LK_NBLCK=2, locking=locking))  # type: ignore[arg-type]
    for name in ("pread", "pwrite", "O_CLOEXEC"):
        monkeypatch.delattr(os, name)
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
        assert (tmp_path / ".lock").read_text().startswith(f"process {os.getpid()} on ")


def test_a_job_on_a_system_like_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("one\n\nthree\n")
    inputs = Inputs([tmp_path / "a.txt"], Columns())
    run(inputs, tmp_path / "here", Hashed)
    like_windows(monkeypatch)
    (tmp_path / "there").mkdir()
    (tmp_path / "there/.lock").write_text("process 1 on a machine that went down")
    run(inputs, tmp_path / "there", Hashed)
    names = ["_manifest.json", "_quarantine.jsonl", "part-00000.parquet"]
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == names
    for name in names:
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


def test_a_lock_that_the_system_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="No locks available"), locked(tmp_path, ".lock"):
        raise AssertionError("there is no lock")


def test_nothing_imports_fcntl_when_it_is_imported() -> None:
    for path in Path(regard.__file__).parent.rglob("*.py"):
        assert b"\nimport fcntl" not in path.read_bytes(), path
