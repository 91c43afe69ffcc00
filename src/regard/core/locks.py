"""A lock on a folder, which dies with the process that holds it."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.core.errors import OutputError

# Windows keeps others from reading the byte that is locked, the first: who holds it stands behind that byte.
_HOLDER = 1


@contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """Holds a lock on an open file. The file says who holds it, and is removed at the end."""
    path = folder / name
    file = _taken(path)
    try:
        yield
    finally:
        try:
            path.unlink()  # before the lock is given back: nobody is to lock a file that is about to go
            os.close(file)
        except OSError:  # Windows removes no open file
            os.close(file)
            with suppress(OSError):
                path.unlink()


def _taken(path: Path) -> int:
    from filelock import lock_descriptor  # 40 ms, which commands that only read need not wait for

    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not lock_descriptor(file, blocking=False):
                os.lseek(file, _HOLDER, os.SEEK_SET)
                raise _refusal(path, os.read(file, 200).decode("ascii", "replace"))
            # Whoever held it before may have removed the file in the meantime: then this lock is of no use.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), path.stat()):
                    os.ftruncate(file, 0)
                    os.write(file, f" process {os.getpid()} on {ascii(socket.gethostname())[1:-1]}".encode())
                    return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _refusal(path: Path, holder: str) -> OutputError:
    return OutputError(
        f"{str(path.parent)!r} is being written to by another job"
        + (f", {holder}" if holder else "")
        + ". Wait until it ends, or stop it and go on here."
    )
