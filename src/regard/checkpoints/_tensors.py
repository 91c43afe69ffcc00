"""The tensors of a checkpoint: read one at a time out of mapped files, written whole or not at all."""

import json
import math
from collections.abc import Collection, Mapping
from os import PathLike
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from regard.checkpoints._hub import INDEX, PICKLES, WEIGHTS, Layout, layout_of, read_index
from regard.checkpoints._pickles import PickleFile
from regard.checkpoints._safetensors import DTYPES, SafetensorsFile
from regard.checkpoints.gguf import Packed
from regard.core.errors import CheckpointError, InputError
from regard.core.files import plain_file, write_whole
from regard.core.wording import DOWNLOAD_AGAIN, joined, reason

_METADATA = "__metadata__"
"""The one key of a header that is not a tensor."""


class WeightsFile(Protocol):
    """One file with tensors, opened."""

    def names(self) -> list[str]: ...
    def shape(self, name: str) -> tuple[int, ...]: ...
    def dtype(self, name: str) -> torch.dtype: ...
    def read(self, name: str) -> Tensor: ...


@runtime_checkable
class PackedFile(WeightsFile, Protocol):
    """One that stores matrices in blocks, which can stay so."""

    def packed(self, name: str) -> Packed | None: ...


class TensorReader:
    """The tensors of a checkpoint, by their names on disk.

    The files are mapped into memory: shapes and types cost nothing, and `read` gives a view of the mapped
    file, whose pages are fetched when they are used. Changing such a tensor never changes the file, but two
    reads of one name from one reader share their memory.
    """

    __slots__ = ("_file_of", "_names", "folder")

    # Name here -> (file, name there): renaming and leaving out copy no tensor.
    def __init__(self, folder: Path, file_of: Mapping[str, tuple[WeightsFile, str]]) -> None:
        """By its name here, a tensor's file and its name there; `folder` is what errors name."""
        self.folder = folder
        self._file_of = file_of
        self._names = tuple(sorted(file_of))

    def __repr__(self) -> str:
        return f"TensorReader({str(self.folder)!r}, {len(self._file_of)} tensors)"

    def names(self) -> tuple[str, ...]:
        """The names of all tensors, sorted."""
        return self._names

    def under(self, names: Mapping[str, str]) -> "TensorReader":
        """Some of the tensors under new names: the name that each has here, by its new one."""
        return TensorReader(self.folder, {new: self._file_of[name] for new, name in names.items()})

    def without(self, names: Collection[str]) -> "TensorReader":
        """The others."""
        return self.under({name: name for name in self._file_of if name not in names}) if names else self

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

    def packed(self, name: str) -> Packed | None:
        """A matrix in the blocks that it is stored in; None where it is stored otherwise.

        Raises:
            CheckpointError: there is no tensor of that name.
        """
        file, stored = self._file(name)
        return file.packed(stored) if isinstance(file, PackedFile) else None

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
    # A whole file counts before shards.
    if layout is not None and (folder / layout.whole).exists():
        whole = _open(folder / layout.whole, layout)
        return TensorReader(folder, {name: (whole, name) for name in whole.names()})
    if layout is not None:
        return _open_shards(folder, layout)
    # Weights under unusual names are told, since renaming may be all that is needed.
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
    # Checked in full before a file is begun.
    whole = _storable(tensors)

    def save(temporary: Path) -> None:
        # `write_whole` knows errors of the system only.
        try:
            save_file(whole, temporary, metadata={"format": "pt", **(metadata or {})})
        except SafetensorError as error:
            raise OSError(None, reason(error)) from error
        if metadata:
            _sort_metadata(temporary)

    write_whole(file, save)
    return file


def _sort_metadata(file: Path) -> None:
    """Give the entries an order: the library writes them by chance, and equal files would differ."""
    with file.open("r+b") as stream:
        header = stream.read(int.from_bytes(stream.read(8), "little"))
        entries = json.loads(header)
        entries[_METADATA] = dict(sorted(entries[_METADATA].items()))
        # As compact as the library writes it: the tensors behind it stay where they are.
        again = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode().ljust(len(header))
        if len(again) == len(header):
            stream.seek(8)
            stream.write(again)


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
        # A GPU's tensors come to the CPU; a view that does not lie in one piece is copied.
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
    shard_with: dict[str, str] = {}
    # Sorted: of two faults the same is reported each time.
    for shard in sorted(set(shard_of.values())):
        file = _open(folder / shard, layout)
        for name in file.names():
            if name in shard_with:
                raise CheckpointError(
                    f"{folder}: the tensor {name!r} is in two shards, {shard_with[name]} and {shard}; "
                    f"{DOWNLOAD_AGAIN}"
                )
            shard_with[name], file_of[name] = shard, (file, name)
    # Both directions: what the index promises, and what it does not know.
    problems = []
    # Also a tensor that lies in another shard than the index says.
    if missing := sorted(name for name, shard in shard_of.items() if shard_with.get(name) != shard):
        problems.append(f"not in the shard that the index names: {joined(missing)}")
    if unlisted := sorted(shard_with.keys() - shard_of.keys()):
        problems.append(f"in a shard, but not in the index: {joined(unlisted)}")
    if problems:
        raise CheckpointError(
            f"{folder / layout.index}: index and shards disagree; {'; '.join(problems)}; {DOWNLOAD_AGAIN}"
        )
    return TensorReader(folder, file_of)


def _open(file: Path, layout: Layout) -> WeightsFile:
    try:
        with plain_file(file, math.inf).open("rb") as stream:
            # A pointer of Git LFS begins "version https://git-lfs...".
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
