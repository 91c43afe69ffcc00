"""A lock on a folder, which dies with the process that holds it."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

from regard.core.errors import OutputError

# Windows keeps others from reading what is locked: a byte far behind what the file says.
_FAR = 1 << 30


@contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """Holds the lock: that of an open file, which says who holds it and goes at the end."""
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
    lock = _system_lock()
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            lock(file)
        except OSError as error:
            if not isinstance(error, BlockingIOError | PermissionError):
                os.close(file)
                raise
            holder = os.read(file, 200).decode("ascii", "replace").strip()
            os.close(file)
            raise OutputError(
                f"{str(path.parent)!r} is being written to by another job"
                + (f", {holder}" if holder else "")
                + ". Wait until it ends, or stop it and go on here."
            ) from None
        # Whoever held it before may have removed the file in the meantime: then this lock is of no use.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), path.stat()):
                os.ftruncate(file, 0)
                os.lseek(file, 0, os.SEEK_SET)
                os.write(file, f"process {os.getpid()} on {ascii(socket.gethostname())[1:-1]}".encode())
                return file
        os.close(file)


def _system_lock() -> Callable[[int], object]:
    """Locks an open file or raises, at once."""
    try:
        fcntl = import_module("fcntl")
    except ImportError:  # Windows
        msvcrt = import_module("msvcrt")

        def lock(file: int) -> None:
            os.lseek(file, _FAR, os.SEEK_SET)
            try:
                msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
            finally:
                os.lseek(file, 0, os.SEEK_SET)

        return lock
    return lambda file: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
