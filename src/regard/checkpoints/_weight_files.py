"""One file of weights: of safetensors, or of `torch.save` as older checkpoints are."""

import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.core.errors import CheckpointError
from regard.core.json import json_kind, parse_object
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
        self._handle = _open(file)

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
        self.dtype(name)
        tensor: Tensor = self._handle.get_tensor(name)
        return tensor


def _open(file: Path) -> Any:
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
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > size - 8:
            raise CheckpointError(
                f"{file}: damaged safetensors file ({size} bytes, which end in the header); {DOWNLOAD_AGAIN}"
            )
        if length > _HEADER_AT_MOST:
            raise CheckpointError(
                f"{file}: damaged safetensors file (a header of {length} bytes, over {_HEADER_AT_MOST})"
            )
        # safetensors takes two entries of one name, and readers disagree about which of them counts.
        parse_object(stream.read(length), f"{file}: header of the safetensors file")


_ZIP = b"PK\x03\x04"
_BEFORE_ZIP = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""How the files of torch before 1.6 begin: the pickled number 0x1950a86a20f9469cfc6c."""

_CONVERT = (
    "a pickle can run any code: convert the model where that does no harm, with `from_pretrained` and "
    "`save_pretrained` of transformers, which writes safetensors, and load that folder"
)


class PickleFile:
    """The tensors of one file, mapped into memory where its format allows that (torch 1.6 and later).

    Nothing of the file is run: `torch.load(weights_only=True)` builds tensors and plain containers, and
    whatever asks for more is refused.
    """

    __slots__ = ("_tensors",)

    def __init__(self, file: Path) -> None:
        try:
            with file.open("rb") as stream:
                start = stream.read(len(_BEFORE_ZIP))
            if start.startswith(_ZIP):
                _check_archive(file)
            elif start != _BEFORE_ZIP:
                raise CheckpointError(
                    f"{file}: not a file that `torch.save` writes, or one cut short; {DOWNLOAD_AGAIN}, or if "
                    f"it is whole: {_CONVERT}"
                )
            stored = _load(file, is_mapped=start.startswith(_ZIP))
        except OSError as error:
            raise CheckpointError(f"{file}: cannot be read ({reason(error)})") from error
        self._tensors = _checked(file, stored)

    def names(self) -> list[str]:
        """The names of its tensors."""
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return tuple(self._tensors[name].shape)

    def dtype(self, name: str) -> torch.dtype:
        """The type of a tensor."""
        return self._tensors[name].dtype

    def read(self, name: str) -> Tensor:
        """A tensor, as a view of the mapped file."""
        return self._tensors[name]


def _check_archive(file: Path) -> None:
    """Refuse what torch would run, and what it would read wrongly: it maps packed records as they stand."""
    try:
        with zipfile.ZipFile(file) as archive:
            records = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{file}: damaged weights file ({reason(error)}); {DOWNLOAD_AGAIN}") from error
    if any(record.filename.endswith("/constants.pkl") for record in records):
        raise CheckpointError(f"{file}: unsafe pickle (a TorchScript program, not weights); {_CONVERT}")
    if packed := [record.filename for record in records if record.compress_type != zipfile.ZIP_STORED]:
        raise CheckpointError(
            f"{file}: damaged weights file (compressed records: {joined(packed)}); {DOWNLOAD_AGAIN}"
        )


def _load(file: Path, *, is_mapped: bool) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's about old protocols; what it refuses, it raises
            return torch.load(file, map_location="cpu", weights_only=True, mmap=is_mapped)
    except pickle.UnpicklingError as error:
        raise CheckpointError(f"{file}: unsafe pickle ({_why(error)}); {_CONVERT}") from error
    except Exception as error:  # a damaged pickle fails as its bytes happen to: IndexError, KeyError, ...
        raise CheckpointError(f"{file}: damaged weights file ({_why(error)}); {DOWNLOAD_AGAIN}") from error


def _why(error: BaseException) -> str:
    """The one sentence of torch's page of advice that says what it met."""
    text = reason(error)
    found = re.search(r"(?:Trying to load unsupported|Unsupported) (?:global: )?(GLOBAL \S+)", text)
    if found:
        return f"it asks for {found[1].removeprefix('GLOBAL ')}, which is no tensor"
    found = re.search(r"WeightsUnpickler error: ([^.]+)", text)
    return found[1].strip() if found else text[:200]


def _checked(file: Path, stored: object) -> dict[str, Tensor]:
    """The tensors by their names: dense, of types that models are stored in, inside their memory."""
    if not isinstance(stored, dict):
        kind = type(stored).__name__
        raise CheckpointError(f"{file}: what it holds must be tensors by their names; got {kind}; {_CONVERT}")
    tensors: dict[str, Tensor] = {}
    for name, value in stored.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            kind = "a tensor" if isinstance(value, Tensor) else json_kind(value)
            raise CheckpointError(
                f"{file}: what it holds must be tensors by their names; got {kind} under {name!r}; "
                "save the model's own `state_dict`"
            )
        tensors[name] = value.detach()
    unfit = [name for name, tensor in tensors.items() if not _is_plain(tensor)]
    if unfit:
        raise CheckpointError(
            f"{file}: these are no dense tensors of the types {joined(DTYPES)}: {joined(unfit)}; {_CONVERT}"
        )
    return tensors


def _is_plain(tensor: Tensor) -> bool:
    if tensor.layout != torch.strided or tensor.is_meta or tensor.dtype not in DTYPES.values():
        return False
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()
