"""The tensors of safetensors files: mapped, and every header checked before a tensor is read."""

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.core.errors import CheckpointError
from regard.core.files import parse_object, plain_file
from regard.core.wording import DOWNLOAD_AGAIN, joined, reason

_HEADER_AT_MOST = 100_000_000
"""The longest header in bytes that the format allows."""

DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {
        "BF16": torch.bfloat16,
        "BOOL": torch.bool,
        "C64": torch.complex64,
        "F16": torch.float16,
        "F32": torch.float32,
        "F64": torch.float64,
        "F8_E4M3": torch.float8_e4m3fn,
        "F8_E5M2": torch.float8_e5m2,
        "I16": torch.int16,
        "I32": torch.int32,
        "I64": torch.int64,
        "I8": torch.int8,
        "U16": torch.uint16,
        "U32": torch.uint32,
        "U64": torch.uint64,
        "U8": torch.uint8,
    }
)
"""What the format can hold, by its own names."""


class SafetensorsFile:
    """The tensors of one file.

    Raises:
        CheckpointError: the file is missing, damaged or hostile.
    """

    __slots__ = ("_file", "_handle")

    def __init__(self, file: Path) -> None:
        self._file = file
        self._handle = _opened(file)

    def names(self) -> list[str]:
        """The names of its tensors."""
        return list(self._handle.keys())

    def metadata(self) -> dict[str, str]:
        """What the header says beside the tensors."""
        return dict(self._handle.metadata() or {})

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return tuple(self._handle.get_slice(name).get_shape())

    def dtype(self, name: str) -> torch.dtype:
        """The type of a tensor."""
        stored = self._handle.get_slice(name).get_dtype()
        if stored not in DTYPES:
            raise CheckpointError(
                f"{self._file}: the tensor {name!r} is stored as {stored}; regard reads {joined(DTYPES)}"
            )
        return DTYPES[stored]

    def read(self, name: str) -> Tensor:
        """A tensor, as a view of the mapped file."""
        # For its error alone: a type that torch does not have.
        self.dtype(name)
        tensor: Tensor = self._handle.get_tensor(name)
        return tensor


def _opened(file: Path) -> Any:
    """Map a file. The library checks sizes, offsets and types; what it lets pass is checked before."""
    try:
        _check_header(file)
        return safe_open(file, framework="pt", device="cpu")
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read ({reason(error)})") from error
    except SafetensorError as error:
        raise CheckpointError(
            f"{file}: damaged safetensors file ({reason(error)}); {DOWNLOAD_AGAIN}"
        ) from error


def _check_header(file: Path) -> None:
    """Refuse a file that is something else, is cut short, or whose header names a tensor twice."""
    # Before opening: an endless device or a pipe is refused, not read.
    size = plain_file(file, math.inf).stat().st_size
    with file.open("rb") as stream:
        # The format: 8 bytes with the length of the header, little-endian, then JSON.
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > size - 8:
            raise CheckpointError(
                f"{file}: damaged safetensors file ({size} bytes, which end in the header); {DOWNLOAD_AGAIN}"
            )
        # The library would read such a header; the format does not allow it.
        if length > _HEADER_AT_MOST:
            raise CheckpointError(
                f"{file}: damaged safetensors file (a header of {length} bytes, over {_HEADER_AT_MOST})"
            )
        # safetensors takes two entries of one name, and readers disagree about which of them counts.
        parse_object(stream.read(length), f"{file}: header of the safetensors file")
