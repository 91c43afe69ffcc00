"""The tensors of a checkpoint: read one at a time out of mapped files, written whole or not at all."""

import pickle
import re
import warnings
import zipfile
from collections.abc import Collection, Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard.checkpoints._hub import INDEX, PICKLES, WEIGHTS, Layout, layout_of, read_index
from regard.core.errors import CheckpointError, InputError
from regard.core.files import json_kind, parse_object, write_whole
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


_METADATA = "__metadata__"
"""The one key of a header that is not a tensor."""


class WeightsFile(Protocol):
    """One file with tensors, opened."""

    def names(self) -> list[str]: ...
    def shape(self, name: str) -> tuple[int, ...]: ...
    def dtype(self, name: str) -> torch.dtype: ...
    def read(self, name: str) -> Tensor: ...


class TensorReader:
    """The tensors of a checkpoint, by their names on disk.

    The files are mapped into memory: shapes and types cost nothing, and `read` gives a view of the mapped
    file, whose pages are fetched when they are used. Changing such a tensor never changes the file, but two
    reads of one name from one reader share their memory.
    """

    __slots__ = ("_file_of", "folder")

    def __init__(self, folder: Path, file_of: Mapping[str, tuple[WeightsFile, str]]) -> None:
        """Made by `read_tensors`: by its name here, a tensor's file and its name there."""
        self.folder = folder
        self._file_of = file_of

    def __repr__(self) -> str:
        return f"TensorReader({str(self.folder)!r}, {len(self._file_of)} tensors)"

    def names(self) -> tuple[str, ...]:
        """The names of all tensors, sorted."""
        return tuple(sorted(self._file_of))

    def under(self, names: Mapping[str, str]) -> "TensorReader":
        """Some of the tensors under new names: the name that each has here, by its new one."""
        return TensorReader(self.folder, {new: self._file_of[name] for new, name in names.items()})

    def without(self, names: Collection[str]) -> "TensorReader":
        """The others."""
        return self.under({name: name for name in self._file_of if name not in names})

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor.

        Raises:
            CheckpointError: there is no tensor of that name.
        """
        file, stored = self._file(name)
        return file.shape(stored)

    def dtype(self, name: str) -> torch.dtype:
        """The type in which a tensor is stored.

        Raises:
            CheckpointError: there is no tensor of that name, or torch has no such type.
        """
        file, stored = self._file(name)
        return file.dtype(stored)

    def read(self, name: str) -> Tensor:
        """A tensor as it is stored, on the CPU.

        Raises:
            CheckpointError: there is no tensor of that name, or torch has no such type.
        """
        file, stored = self._file(name)
        return file.read(stored)

    def _file(self, name: str) -> tuple[WeightsFile, str]:
        if name not in self._file_of:
            raise CheckpointError(f"{self.folder}: the checkpoint has no tensor {name!r}")
        return self._file_of[name]


def read_tensors(folder: str | PathLike[str]) -> TensorReader:
    """Open the weights of a model: `model.safetensors`, else `pytorch_model.bin`, or the shards of either.

    Every header is checked before a tensor is read, and an index must list exactly the tensors of its shards.
    A pickle is opened only by `torch.load(weights_only=True)`, which runs nothing of it.

    Raises:
        CheckpointError: the files are missing, damaged, hostile, or contradict each other.

    >>> from regard.checkpoints import find
    >>> reader = read_tensors(find("all-MiniLM-L6-v2").folder)
    >>> reader.shape("embeddings.word_embeddings.weight"), reader.dtype("embeddings.word_embeddings.weight")
    ((30522, 384), torch.float32)
    """
    folder = Path(folder)
    layout = layout_of(folder)
    if layout is not None and (folder / layout.whole).exists():
        whole = _open(folder / layout.whole, layout)
        return TensorReader(folder, {name: (whole, name) for name in whole.names()})
    if layout is not None:
        return _open_shards(folder, layout)
    others = sorted(
        file.name for end in ("bin", "pt", "pth", "safetensors") for file in folder.glob(f"*.{end}")
    )
    raise CheckpointError(
        f"{folder}: no weights; wanted {WEIGHTS} or {PICKLES.whole}, or {INDEX} or {PICKLES.index} and its "
        f"shards{f'; {joined(others)} go by other names' if others else ''}"
    )


def write_tensors(
    tensors: Mapping[str, Tensor], file: str | PathLike[str], *, metadata: Mapping[str, str] | None = None
) -> Path:
    """Write tensors to a safetensors file, which appears under its name only when it is whole.

    Args:
        tensors: what to write, bit by bit. Tensors that share memory are each written in full.
        file: the file; its folder must exist. An older file of that name is replaced.
        metadata: more entries for the header, beside the `format` that other libraries ask for.

    Returns:
        The file.

    Raises:
        InputError: a tensor is sparse or on the meta device, or of a type or name that the format lacks.
        OutputError: the file cannot be written; nothing is left behind.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_tensors({"table": torch.eye(2)}, Path(folder) / "model.safetensors")
    ...     read_tensors(folder).read("table")
    tensor([[1., 0.],
            [0., 1.]])
    """
    file = Path(file)
    whole = _storable(tensors)

    def save(temporary: Path) -> None:
        try:
            save_file(whole, temporary, metadata={"format": "pt", **(metadata or {})})
        except SafetensorError as error:
            raise OSError(None, reason(error)) from error

    write_whole(file, save)
    return file


def _storable(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, contiguous, and no two in one piece of memory: what the format can hold."""
    unfit = sorted(name for name, tensor in tensors.items() if not _fits_the_format(name, tensor))
    if unfit:
        raise InputError(
            f"these tensors cannot be written: {joined(unfit)}; wanted dense tensors on a real device, "
            f"of the types {joined(DTYPES)}, and not named {_METADATA!r}"
        )
    storable: dict[str, Tensor] = {}
    written: set[int] = set()
    for name, tensor in tensors.items():
        dense = tensor.detach().cpu().contiguous()
        # The library refuses tensors that share memory, as tied ones do.
        if dense.untyped_storage().data_ptr() in written:
            dense = dense.clone()
        written.add(dense.untyped_storage().data_ptr())
        storable[name] = dense
    return storable


def _fits_the_format(name: str, tensor: Tensor) -> bool:
    is_dense = tensor.layout == torch.strided and not tensor.is_meta
    return is_dense and tensor.dtype in DTYPES.values() and name != _METADATA


def _open_shards(folder: Path, layout: Layout) -> TensorReader:
    shard_of = read_index(folder, layout)
    file_of: dict[str, tuple[WeightsFile, str]] = {}
    found: dict[str, str] = {}
    for shard in sorted(set(shard_of.values())):
        file = _open(folder / shard, layout)
        for name in file.names():
            if name in found:
                raise CheckpointError(
                    f"{folder}: the tensor {name!r} is in two shards, {found[name]} and {shard}; "
                    f"{DOWNLOAD_AGAIN}"
                )
            found[name], file_of[name] = shard, (file, name)
    problems = []
    if missing := sorted(name for name, shard in shard_of.items() if found.get(name) != shard):
        problems.append(f"not in the shard that the index names: {joined(missing)}")
    if unlisted := sorted(found.keys() - shard_of.keys()):
        problems.append(f"in a shard, but not in the index: {joined(unlisted)}")
    if problems:
        raise CheckpointError(
            f"{folder / layout.index}: index and shards disagree; {'; '.join(problems)}; {DOWNLOAD_AGAIN}"
        )
    return TensorReader(folder, file_of)


def _open(file: Path, layout: Layout) -> WeightsFile:
    try:
        with file.open("rb") as stream:
            if stream.read(8) == b"version ":
                raise CheckpointError(
                    f"{file}: a Git LFS pointer, not the weights; fetch them with `git lfs pull`"
                )
    except FileNotFoundError:
        raise CheckpointError(
            f"{file}: no such file; the checkpoint is not complete: {DOWNLOAD_AGAIN}"
        ) from None
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read ({reason(error)})") from error
    return PickleFile(file) if layout.is_pickle else SafetensorsFile(file)
