"""Tensors in safetensors files: read one at a time out of the mapped file, written whole or not at all."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard.checkpoints._json import parse_object
from regard.checkpoints._layout import INDEX, WEIGHTS, read_index
from regard.checkpoints._wording import joined, reason
from regard.core.errors import CheckpointError, InputError
from regard.core.files import write_whole

_HEADER_AT_MOST = 100_000_000
"""The longest header in bytes that the format allows."""

_METADATA = "__metadata__"
"""The one key of a header that is not a tensor."""

_DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
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


class TensorReader:
    """The tensors of a checkpoint, by their names on disk.

    The files are mapped into memory: shapes and types cost nothing, and `read` gives a view of the mapped
    file, whose pages are fetched when they are used. Changing such a tensor never changes the file, but two
    reads of one name from one reader share their memory.
    """

    __slots__ = ("_file_of", "_handle_of", "folder")

    def __init__(self, folder: Path, file_of: Mapping[str, Path], handle_of: Mapping[Path, Any]) -> None:
        """Made by `read_tensors`."""
        self.folder = folder
        self._file_of = file_of
        self._handle_of = handle_of

    def __repr__(self) -> str:
        return f"TensorReader({str(self.folder)!r}, {len(self._file_of)} tensors)"

    def names(self) -> tuple[str, ...]:
        """The names of all tensors, sorted."""
        return tuple(sorted(self._file_of))

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor.

        Raises:
            CheckpointError: there is no tensor of that name.
        """
        return tuple(self._handle(name).get_slice(name).get_shape())

    def dtype(self, name: str) -> torch.dtype:
        """The type in which a tensor is stored.

        Raises:
            CheckpointError: there is no tensor of that name, or torch has no such type.
        """
        stored = self._handle(name).get_slice(name).get_dtype()
        if stored not in _DTYPES:
            raise CheckpointError(
                f"{self._file_of[name]}: the tensor {name!r} is stored as {stored}; "
                f"regard reads {joined(_DTYPES)}"
            )
        return _DTYPES[stored]

    def read(self, name: str) -> Tensor:
        """A tensor as it is stored, on the CPU.

        Raises:
            CheckpointError: there is no tensor of that name, or torch has no such type.
        """
        self.dtype(name)
        tensor: Tensor = self._handle(name).get_tensor(name)
        return tensor

    def _handle(self, name: str) -> Any:
        if name not in self._file_of:
            raise CheckpointError(f"{self.folder}: the checkpoint has no tensor {name!r}")
        return self._handle_of[self._file_of[name]]


def read_tensors(folder: str | PathLike[str]) -> TensorReader:
    """Open the weights of a model: `model.safetensors`, or the shards that an index lists.

    Every header is checked before a tensor is read, and an index must list exactly the tensors of its shards.

    Raises:
        CheckpointError: the files are missing, damaged, hostile, or contradict each other.

    >>> from regard.checkpoints import find
    >>> reader = read_tensors(find("all-MiniLM-L6-v2").folder)
    >>> reader.shape("embeddings.word_embeddings.weight"), reader.dtype("embeddings.word_embeddings.weight")
    ((30522, 384), torch.float32)
    """
    folder = Path(folder)
    if (folder / WEIGHTS).exists():
        handle = _open(folder / WEIGHTS)
        return TensorReader(
            folder, dict.fromkeys(handle.keys(), folder / WEIGHTS), {folder / WEIGHTS: handle}
        )
    if (folder / INDEX).exists():
        return _open_shards(folder)
    pickles = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in folder.glob(pattern))
    if pickles:
        raise CheckpointError(
            f"{folder}: no {WEIGHTS}, only {joined(pickles)}; regard reads no pickles, which can run code: "
            "convert with `save_pretrained` of transformers, which writes safetensors"
        )
    raise CheckpointError(f"{folder}: no weights; wanted {WEIGHTS}, or {INDEX} and its shards")


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
            f"of the types {joined(_DTYPES)}, and not named {_METADATA!r}"
        )
    storable: dict[str, Tensor] = {}
    written: set[int] = set()
    for name, tensor in tensors.items():
        dense = tensor.detach().cpu().contiguous()
        if dense.untyped_storage().data_ptr() in written:
            dense = dense.clone()
        written.add(dense.untyped_storage().data_ptr())
        storable[name] = dense
    return storable


def _fits_the_format(name: str, tensor: Tensor) -> bool:
    is_dense = tensor.layout == torch.strided and not tensor.is_meta
    return is_dense and tensor.dtype in _DTYPES.values() and name != _METADATA


def _open_shards(folder: Path) -> TensorReader:
    shard_of = read_index(folder)
    handle_of: dict[Path, Any] = {}
    found: dict[str, str] = {}
    for shard in sorted(set(shard_of.values())):
        handle = handle_of[folder / shard] = _open(folder / shard)
        for name in handle.keys():  # noqa: SIM118 - not a dict: it cannot be iterated
            if name in found:
                raise CheckpointError(
                    f"{folder}: the tensor {name!r} is in two shards, {found[name]} and {shard}"
                )
            found[name] = shard
    problems = []
    if missing := sorted(name for name, shard in shard_of.items() if found.get(name) != shard):
        problems.append(f"not in the shard that the index names: {joined(missing)}")
    if unlisted := sorted(found.keys() - shard_of.keys()):
        problems.append(f"in a shard, but not in the index: {joined(unlisted)}")
    if problems:
        raise CheckpointError(f"{folder / INDEX}: index and shards disagree; {'; '.join(problems)}")
    return TensorReader(folder, {name: folder / shard for name, shard in found.items()}, handle_of)


def _open(file: Path) -> Any:
    """Map a file. The library checks sizes, offsets and types; what it lets pass is checked before."""
    try:
        _check_header(file)
        return safe_open(file, framework="pt", device="cpu")
    except FileNotFoundError:
        raise CheckpointError(
            f"{file}: no such file; the checkpoint is not complete: download it again"
        ) from None
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read ({reason(error)})") from error
    except SafetensorError as error:
        raise CheckpointError(
            f"{file}: damaged safetensors file ({reason(error)}); download it again"
        ) from error


def _check_header(file: Path) -> None:
    """Refuse a file that is something else, is cut short, or whose header names a tensor twice."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        start = stream.read(8)
        if start == b"version ":
            raise CheckpointError(
                f"{file}: a Git LFS pointer, not the weights; fetch them with `git lfs pull`"
            )
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > size - 8:
            raise CheckpointError(
                f"{file}: damaged safetensors file ({size} bytes, which end in the header); download it again"
            )
        if length > _HEADER_AT_MOST:
            raise CheckpointError(
                f"{file}: damaged safetensors file (a header of {length} bytes, over {_HEADER_AT_MOST})"
            )
        parse_object(stream.read(length), f"{file}: header of the safetensors file")
