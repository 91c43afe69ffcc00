"""The folder that a job writes to: its files, its lock, and what is done.

    part-00000.parquet      a shard; there are as many as there are ranges of rows
    _manifest.json          what all bytes depend on, and at the end every shard's SHA-256
    _quarantine.jsonl       the rows that could not be embedded, at the end, if there are any
    .progress/              until the end: a record of each shard that is done, and unfinished files
    .lock                   held while a job runs

What begins with _ or . is passed over by what reads a folder of Parquet files (pyarrow, pandas, Spark).
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from regard.core.errors import InputError, OutputError
from regard.core.files import locked, write_whole

MANIFEST, QUARANTINE = "_manifest.json", "_quarantine.jsonl"
_PROGRESS, _LOCK = ".progress", ".lock"
_PART = re.compile(r"part-(\d{5,})\.(parquet|npy)")
_UNFINISHED = re.compile(r"\.regard-[0-9a-f]{16}\.tmp")


class Folder:
    """The output folder of a job, which holds its lock.

    Made by `Folder.locked`.
    """

    def __init__(self, path: Path, ending: str) -> None:
        self.path, self._ending = path, ending
        self._progress = path / _PROGRESS

    @staticmethod
    @contextmanager
    def locked(path: Path, ending: str = ".parquet") -> Iterator["Folder"]:
        """Makes the folder where there is none, and locks it: the lock dies with the process."""
        # What was made and stays empty is removed again.
        is_new = not path.exists()
        # A folder with other files is not touched.
        _check_names(path)
        try:
            with ExitStack() as held:
                with _written(path):
                    path.mkdir(exist_ok=True)
                    held.enter_context(locked(path, _LOCK))
                folder = Folder(path, ending)
                folder._begin()
                yield folder
        finally:
            for left in (path / _PROGRESS, *([path] if is_new else [])):
                with suppress(OSError):
                    left.rmdir()  # if nothing was written

    def _begin(self) -> None:
        with _written(self.path):
            # Under the lock: whoever began these is dead.
            for file in [*self.path.iterdir(), *self._progress.glob("*")]:
                if _UNFINISHED.fullmatch(file.name):
                    file.unlink()

    def go_on(self) -> None:
        """Makes ready for shards to be written."""
        with _written(self._progress):
            self._progress.mkdir(exist_ok=True)

    def manifest(self) -> dict[str, Any] | None:
        """The manifest; None where there is none yet."""
        path = self.path / MANIFEST
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            # Shards without a manifest belong to nobody.
            parts = [each.name for each in self.path.iterdir() if _PART.fullmatch(each.name)]
            if parts:
                raise InputError(
                    f"{str(self.path)!r} holds {min(parts)} and no {MANIFEST}; choose a new folder."
                ) from None
            return None
        except (OSError, ValueError) as error:
            raise InputError(f"{str(path)!r} cannot be read ({error}); choose a new folder.") from error
        if not isinstance(manifest, dict) or not isinstance(manifest.get("shards", []), list):
            raise InputError(f"{str(path)!r} is not the manifest of a job; choose a new folder.")
        return manifest

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Writes the manifest, whole or not at all."""
        # ASCII, and a line a value: it is read by people and by programs of any age.
        write_whole(self.path / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())

    def part(self, shard: int) -> Path:
        """Where a shard goes."""
        return self.path / f"part-{shard:05d}{self._ending}"

    def unfinished(self, shard: int) -> Path:
        """Where a shard is written to until it is whole."""
        return self._progress / f"part-{shard:05d}{self._ending}"

    def record(self, shard: int, record: Mapping[str, Any]) -> None:
        """Records that a shard is done, once it is in its place."""
        # From now on the shard is not made again.
        write_whole(self._record(shard), json.dumps(record).encode())

    def records(self) -> dict[int, dict[str, Any]]:
        """What was recorded of each shard, with the number of rows that were rejected, in order."""
        return {
            shard: {**record, "rejected": len(record["rejected"])} for shard, record in self._read_records()
        }

    def _read_records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        numbers = sorted(int(path.stem.removeprefix("part-")) for path in self._progress.glob("part-*.json"))
        for shard in numbers:
            path = self._record(shard)
            try:
                yield shard, json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise InputError(f"{str(path)!r} cannot be read ({error}); choose a new folder.") from error

    def is_there(self, shard: int, size: int) -> bool:
        """Whether a shard is in its place, as long as it should be."""
        try:
            # By its size alone: reading all shards would take as long as some of the work.
            return self.part(shard).stat().st_size == size
        except OSError:
            return False

    def write_quarantine(self) -> None:
        """Writes the rejected rows of all records into one file; no rows, no file."""

        def write(path: Path) -> None:
            # Its bytes are the same on every system.
            with path.open("w", encoding="ascii", newline="\n") as file:
                for _, record in self._read_records():
                    file.writelines(json.dumps(row) + "\n" for row in record["rejected"])

        # Read twice, so that no list of all rows is held.
        if any(record["rejected"] for _, record in self._read_records()):
            write_whole(self.path / QUARANTINE, write)

    def finish(self) -> None:
        """Leaves nothing but the result."""
        if self._progress.exists():
            with _written(self.path):
                shutil.rmtree(self._progress)

    def remove(self) -> None:
        """Removes all files of the job, but not the lock."""
        with _written(self.path):
            shutil.rmtree(self._progress, ignore_errors=True)
            # The manifest at last: without it, shards that are left would belong to nobody.
            for path in sorted(self.path.iterdir(), key=lambda each: each.name == MANIFEST):
                if path.name != _LOCK:
                    path.unlink()

    def _record(self, shard: int) -> Path:
        return self._progress / f"part-{shard:05d}.json"


@contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except OutputError:
        raise
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
            f"{str(path)!r} holds {foreign[0]!r}, which no job has written; choose a new folder, or one that "
            "a job was begun in."
        )


def check_same(folder: str, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuse to go on in a folder that was made with other settings; the error lists the differences."""
    # Every setting that the vectors depend on.
    different = differences(there, here)
    if different:
        listed = "; ".join(each.removeprefix("embedding.") for each in different)
        way_out = "Give the same ones to go on, or choose a new folder."
        # Nobody gave it: the message says where it comes from.
        if any(each.startswith(f"{_KERNEL} ") for each in different):
            way_out = (
                "The kernel follows from the processor: go on with one of the first kind, or begin a new "
                "folder with --precision float32, which any processor can go on with."
            )
        raise InputError(f"{folder!r} was made with other settings: {listed}. {way_out}")


_KERNEL = "embedding.kernel"


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """The settings in which two jobs differ, in words."""
    # Sections become dotted names.
    before, now = _flat(there), _flat(here)
    names = [name for name in (before | now) if before.get(name, _UNSET) != now.get(name, _UNSET)]
    return [f"{name} is {_told(before, name)} there and {_told(now, name)} here" for name in names]


def check_inputs(folder: str, there: Sequence[Mapping[str, Any]], here: Sequence[Mapping[str, Any]]) -> None:
    """Refuse to go on with inputs that are not those the folder was begun with. Names may change."""
    if len(there) != len(here):
        raise InputError(
            f"{folder!r} was begun with {len(there)} input{'s' * (len(there) != 1)}, and here "
            f"{'are' if len(here) != 1 else 'is'} {len(here)}. Give the same ones to go on, or choose a new "
            "folder."
        )
    for before, now in zip(there, here, strict=True):
        # The name may change: a file may have been moved.
        for what in ("format", "bytes", "sha256"):
            if before[what] != now[what]:
                raise InputError(
                    f"{now['name']} is not what it was when {folder!r} was begun: its {what} was "
                    f"{_told(before, what)} and is {_told(now, what)}. Give the same input to go on, or "
                    "choose a new folder."
                )


_UNSET = object()
# The first digits of a hash tell enough.
_HASH = re.compile(r"([0-9a-f]{12})[0-9a-f]{28,}")


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _told(settings: Mapping[str, Any], name: str) -> str:
    return _HASH.sub(r"\1...", repr(settings[name])) if name in settings else "not stated"
