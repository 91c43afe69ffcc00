"""Files that are written whole or not at all."""

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.core.errors import InputError, OutputError
from regard.core.files import write_whole


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
    with pytest.raises(InputError, match=r"path must be the path of a file; got NoneType\."):
        write_whole(None, b"")  # type: ignore[arg-type]


def test_a_read_only_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kept"
    file.write_bytes(b"old")
    monkeypatch.setattr(
        os, "access", lambda path, mode: not (path == file and mode == os.W_OK)
    )  # root may all
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
