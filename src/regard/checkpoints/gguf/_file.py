"""The tensors of GGUF files: mapped, and read one at a time, or left in their blocks."""

import math
import mmap
import re
from collections.abc import Mapping
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.checkpoints.gguf._blocks import Packed
from regard.checkpoints.gguf._header import MAGIC, Entry, Header, read_header
from regard.core.errors import CheckpointError
from regard.core.files import plain_file
from regard.core.wording import reason

_SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
"""The names of the files that one model was split into."""


def is_gguf(path: str | PathLike[str]) -> bool:
    """Whether a path is that of a file in the format, whatever it is called."""
    try:
        with plain_file(Path(path), math.inf).open("rb") as file:
            return file.read(4) == MAGIC
    except OSError:
        return False


def open_gguf(file: str | PathLike[str]) -> "GGUFFile":
    """A file, opened once a process as long as it stays as it is: its header may take half a second.

    Raises:
        CheckpointError: as `GGUFFile`.
    """
    try:
        status = plain_file(Path(file), math.inf).stat()
    except OSError as error:
        # The size and the time are part of the key: a file that was replaced is opened anew.
        raise CheckpointError(f"{file}: cannot be read ({reason(error)})") from error
    return _kept(Path(file), status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4)
def _kept(file: Path, size: int, mtime_ns: int) -> "GGUFFile":
    del size, mtime_ns  # the key
    return GGUFFile(file)


class GGUFFile:
    """What one file says, and its tensors; of a split model, of all of its files.

    Args:
        file: the file, or the first of several, such as `model-00001-of-00003.gguf`.

    Attributes:
        fields: what the first file says, by the format's names.

    Raises:
        CheckpointError: a file is missing, damaged or hostile, or they do not belong together.
    """

    def __init__(self, file: str | PathLike[str]) -> None:
        file = Path(file)
        first, data = _opened(file)
        self.file, self.fields = file, first.fields
        self._place: dict[str, tuple[Entry, memoryview]] = {
            name: (entry, data) for name, entry in first.tensors.items()
        }
        for part in _others(file, first.fields):
            header, data = _opened(part)
            # A name in two parts would be ambiguous.
            if doubled := self._place.keys() & header.tensors.keys():
                raise CheckpointError(f"{part}: the tensor {min(doubled)!r} is in another part as well")
            self._place |= {name: (entry, data) for name, entry in header.tensors.items()}
        # The first file says how many tensors all parts have together.
        total = first.fields.get("split.tensors.count", len(self._place))
        if total != len(self._place):
            raise CheckpointError(
                f"{file}: its parts hold {len(self._place)} tensors, but should hold {total}"
            )

    def names(self) -> list[str]:
        """The names of the tensors."""
        return list(self._place)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, as torch has it."""
        return self._place[name][0].shape

    def dtype(self, name: str) -> torch.dtype:
        """The type in which a tensor is read: float32 for all that is stored in fewer bits."""
        plain = self._place[name][0].kind.plain
        # Half precision is read as float32: the network computes in that.
        return torch.float32 if plain is None or (plain.is_floating_point and plain.itemsize < 4) else plain

    def read(self, name: str) -> Tensor:
        """A tensor: a view of the mapped file, or its numbers in memory of their own."""
        entry, _ = self._place[name]
        numbers = self._bytes(name)
        # Stored as it is read: a view, no copy.
        if entry.kind.plain is not None and entry.kind.plain == self.dtype(name):
            return numbers.view(entry.kind.plain).view(entry.shape)
        # Rows of bytes, each of whole blocks.
        rows = numbers.view(-1, entry.shape[-1] // entry.kind.entries * entry.kind.size)
        return Packed(rows, entry.kind).unpacked().view(entry.shape)

    def packed(self, name: str) -> Packed | None:
        """A matrix as it is stored; None for a tensor that is `read` as it is stored, or is no matrix."""
        entry, _ = self._place[name]
        if len(entry.shape) != 2 or entry.kind.plain == self.dtype(name):
            return None
        return Packed(self._bytes(name).view(entry.shape[0], -1), entry.kind)

    def _bytes(self, name: str) -> Tensor:
        entry, data = self._place[name]
        # At any offset: the bytes are viewed as numbers by who reads them.
        return torch.frombuffer(data, dtype=torch.uint8, count=entry.size, offset=entry.start)


def _opened(file: Path) -> tuple[Header, memoryview]:
    try:
        with file.open("rb") as stream:
            # Private: whoever changes a tensor changes memory, and never the file.
            data = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY))
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise CheckpointError(f"{file}: cannot be read ({reason(error)})") from error
    return read_header(data, file), data


def _others(file: Path, fields: Mapping[str, Any]) -> list[Path]:
    """The files that follow the first of a split model, by their names."""
    count = fields.get("split.count", 1)
    # 0 and 1 both mean a single file.
    if count in (0, 1):
        return []
    name = _SPLIT.fullmatch(file.name)
    if name is None or int(name[3]) != count:
        raise CheckpointError(
            f"{file}: one of {count} files that belong together, which must be called as they were: "
            f"NAME-00001-of-{count:05}.gguf and on"
        )
    if fields.get("split.no", 0) != 0 or int(name[2]) != 1:
        raise CheckpointError(
            f"{file}: the part {int(name[2])} of {count}; give the first, {name[1]}-00001-of-{name[3]}.gguf"
        )
    parts = [file.with_name(f"{name[1]}-{number:05}-of-{name[3]}.gguf") for number in range(2, count + 1)]
    if absent := [part.name for part in parts if not part.is_file()]:
        raise CheckpointError(f"{file}: {len(absent)} of its {count} parts are missing, such as {absent[0]}")
    return parts
