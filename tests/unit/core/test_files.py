"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.core.errors import InputError, OutputError
from regard.core.files import locked, write_whole
from regard.embedding.job import Columns, Inputs, run
from unit.embedding.job.works import Hashed


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_permissions_are_the_users(tmp_path: Path) -> None:
    def private(path: Path) -> None:
        path.unlink()
        path.touch(mode=0o600)

    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "bytes", b"")
        write_whole(tmp_path / "by a library", private)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o640}


def test_what_is_no_path() -> None:
    with pytest.raises(InputError, match=r"path must be a string or a path; got NoneType\."):
        write_whole(None, b"")  # type: ignore[arg-type]


def test_a_read_only_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kept"
    file.write_bytes(b"old")
    # root may all
    monkeypatch.setattr(os, "access", lambda path, mode: not (path == file and mode == os.W_OK))
    with pytest.raises(OutputError, match=r"kept' cannot be written \(it is read-only\)"):
        write_whole(file, b"new")
    assert file.read_bytes() == b"old"


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "file", fail)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"new", lambda path: path.write_bytes(b"new")], ids=["bytes", "writer"])
def test_it_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | Callable[[Path], None]
) -> None:
    synced = []

    def fsync(file: int) -> None:
        """As on Windows, where a file that is open for reading cannot be flushed, nor a folder."""
        if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        synced.append(os.fstat(file).st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    write_whole(tmp_path / "file", content)
    assert (tmp_path / "file").read_bytes() == b"new"
    assert synced == [3]


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
    waits = "import sys; from pathlib import Path; from regard.core.files import locked\n"
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
