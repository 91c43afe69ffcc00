"""The folder that a job writes to: its files, its lock, and what is done.

    part-00000.parquet      a shard; there are as many as there are ranges of rows
    _manifest.json          what all bytes depend on, and at the end every shard's SHA-256
    _quarantine.jsonl       the rows that could not be embedded, at the end, if there are any
    .progress/              until the end: a record of each shard that is done, and unfinished files
    .lock                   held while a job runs

What begins with _ or . is passed over by what reads a folder of Parquet files (pyarrow, pandas, Spark).
"""

import fcntl
import json
import os
import re
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from regard.core.errors import InputError, OutputError
from regard.core.files import write_whole

MANIFEST, QUARANTINE = "_manifest.json", "_quarantine.jsonl"
_PROGRESS, _LOCK = ".progress", ".lock"
_PART = re.compile(r"part-(\d{5,})\.parquet")
_UNFINISHED = re.compile(r"\.regard-[0-9a-f]{16}\.tmp")


class Folder:
    """The output folder of a job, which holds its lock.

    Made by `Folder.locked`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._progress = path / _PROGRESS

    @staticmethod
    @contextmanager
    def locked(path: Path) -> Iterator["Folder"]:
        """Makes the folder where there is none, and locks it. The lock dies with the process.

        Raises:
            InputError: it is no folder, or holds what is not of a job.
            OutputError: it cannot be made, or another job holds it.
        """
        made = not path.exists()
        _check_names(path)
        try:
            path.mkdir(exist_ok=True)
            lock = _lock(path)
        except OSError as error:
            if isinstance(error, OutputError):
                raise
            raise OutputError(f"{str(path)!r} cannot be written to ({error.strerror or error}).") from error
        try:
            folder = Folder(path)
            folder._begin()
            yield folder
        finally:
            with suppress(OSError):
                (path / _LOCK).unlink()
            os.close(lock)
            for left in (path / _PROGRESS, *([path] if made else [])):
                with suppress(OSError):
                    left.rmdir()  # if nothing was written

    def _begin(self) -> None:
        with _written(self.path):
            for file in [*self.path.iterdir(), *self._progress.glob("*")]:
                if _UNFINISHED.fullmatch(file.name):
                    file.unlink()

    def go_on(self) -> None:
        """Makes ready for shards to be written."""
        with _written(self._progress):
            self._progress.mkdir(exist_ok=True)

    def manifest(self) -> dict[str, Any] | None:
        """The manifest; None where there is none yet.

        Raises:
            InputError: it is damaged, or shards are there without one.
        """
        path = self.path / MANIFEST
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            parts = [each.name for each in self.path.iterdir() if _PART.fullmatch(each.name)]
            if parts:
                raise InputError(
                    f"{str(self.path)!r} holds {min(parts)} and no {MANIFEST}; choose a new folder."
                ) from None
            return None
        except (OSError, ValueError) as error:
            raise InputError(f"{str(path)!r} cannot be read ({error}); choose a new folder.") from error
        if not isinstance(found, dict) or not isinstance(found.get("shards", []), list):
            raise InputError(f"{str(path)!r} is no manifest of a job; choose a new folder.")
        return found

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Writes the manifest, whole or not at all."""
        # ASCII, and a line a value: it is read by people and by programs of any age.
        write_whole(self.path / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())

    def part(self, shard: int) -> Path:
        """Where a shard goes."""
        return self.path / f"part-{shard:05d}.parquet"

    def unfinished(self, shard: int) -> Path:
        """Where a shard is written to until it is whole."""
        return self._progress / f"part-{shard:05d}.parquet"

    def record(self, shard: int, record: Mapping[str, Any]) -> None:
        """States that a shard is done, after it is in its place."""
        write_whole(self._record(shard), json.dumps(record).encode())

    def records(self) -> dict[int, dict[str, Any]]:
        """What was recorded of each shard, without the rows that were rejected, in order."""
        found = {}
        for path in sorted(self._progress.glob("part-*.json")):
            try:
                record = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise InputError(f"{str(path)!r} cannot be read ({error}); choose a new folder.") from error
            record["rejected"] = len(record["rejected"])
            found[int(record["shard"])] = record
        return dict(sorted(found.items()))

    def is_there(self, shard: int, size: int) -> bool:
        """Whether a shard is in its place, as long as it should be."""
        try:
            return self.part(shard).stat().st_size == size
        except OSError:
            return False

    def rejected(self, shards: int) -> Iterator[dict[str, Any]]:
        """The rejected rows of all shards, in order."""
        for shard in range(shards):
            yield from json.loads(self._record(shard).read_text(encoding="utf-8"))["rejected"]

    def write_quarantine(self, shards: int) -> int:
        """Writes the rejected rows of all shards into one file, and says how many; no rows, no file."""
        count = 0

        def write(path: Path) -> None:
            nonlocal count
            with path.open("w", encoding="ascii") as file:
                for row in self.rejected(shards):
                    file.write(json.dumps(row) + "\n")
                    count += 1

        if next(self.rejected(shards), None) is not None:
            write_whole(self.path / QUARANTINE, write)
        return count

    def quarantined(self) -> Iterator[dict[str, Any]]:
        """The rows of the quarantine file, if there is one."""
        with suppress(FileNotFoundError), (self.path / QUARANTINE).open(encoding="ascii") as file:
            for line in file:
                yield json.loads(line)

    def finish(self, shards: int) -> None:
        """Leaves nothing but the result: drops the records, and shards beyond the last."""
        with _written(self.path):
            for path in self.path.iterdir():
                found = _PART.fullmatch(path.name)
                if found and int(found[1]) >= shards:
                    path.unlink()
            if self._progress.exists():
                shutil.rmtree(self._progress)

    def remove(self) -> None:
        """Removes all of it, but the lock."""
        with _written(self.path):
            shutil.rmtree(self._progress, ignore_errors=True)
            for path in self.path.iterdir():
                if path.name != _LOCK:
                    path.unlink()

    def _record(self, shard: int) -> Path:
        return self._progress / f"part-{shard:05d}.json"


@contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{str(path)!r} cannot be written to ({error.strerror or error}).") from error


def _check_names(path: Path) -> None:
    try:
        names = sorted(each.name for each in path.iterdir())
    except FileNotFoundError:
        return
    except (NotADirectoryError, ValueError) as error:
        raise InputError(f"{str(path)!r} must be a folder; it is a file. Choose a new folder.") from error
    except OSError as error:
        raise OutputError(f"{str(path)!r} cannot be read ({error.strerror or error}).") from error
    ours = (MANIFEST, QUARANTINE, _PROGRESS, _LOCK)
    foreign = [
        name
        for name in names
        if name not in ours and not _PART.fullmatch(name) and not _UNFINISHED.fullmatch(name)
    ]
    if foreign:
        raise InputError(
            f"{str(path)!r} holds {foreign[0]!r}, which is not of a job; choose a new folder, or one that a "
            "job was begun in."
        )


def _lock(path: Path) -> int:
    """A lock on the folder's lock file; it dies with the process."""
    name = path / _LOCK
    while True:
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 200, 0).decode("ascii", "replace").strip()
            os.close(file)
            raise OutputError(
                f"{str(path)!r} is being written to by another job"
                + (f", {holder}" if holder else "")
                + ". Wait until it ends, or stop it and go on here."
            ) from None
        except OSError:
            os.close(file)
            raise
        # Whoever held it before may have removed the file in the meantime: then this lock is of no use.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), name.stat()):
                os.ftruncate(file, 0)
                os.pwrite(file, f"process {os.getpid()} on {ascii(socket.gethostname())[1:-1]}".encode(), 0)
                return file
        os.close(file)
