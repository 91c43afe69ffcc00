"""The tensors of pickles, which nothing of the file is run to read."""

import pickle
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.checkpoints._safetensors import DTYPES
from regard.core.errors import CheckpointError
from regard.core.files import json_kind
from regard.core.wording import DOWNLOAD_AGAIN, joined, reason

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
                # The first bytes decide; the name of a file says nothing.
                start = stream.read(len(_BEFORE_ZIP))
            if start.startswith(_ZIP):
                _check_archive(file)
            # Neither zip nor the older form: torch.load might run it as another kind of pickle.
            elif start != _BEFORE_ZIP:
                raise CheckpointError(
                    f"{file}: not a file that `torch.save` writes, or one cut short; {DOWNLOAD_AGAIN}, or if "
                    f"it is whole: {_CONVERT}"
                )
            stored = _load(file, is_mapped=start.startswith(_ZIP))
        except OSError as error:
            raise CheckpointError(f"{file}: cannot be read ({reason(error)})") from error
        # What torch has built is held to be tensors by their names.
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
    # A TorchScript archive has this record; torch.load would hand it to another loader.
    if any(record.filename.endswith("/constants.pkl") for record in records):
        raise CheckpointError(f"{file}: unsafe pickle (a TorchScript program, not weights); {_CONVERT}")
    # torch maps records as they lie: packed ones would be read as numbers.
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
    # torch's message is a page; its one fact is the name that the pickle asks for.
    match = re.search(r"(?:Trying to load unsupported|Unsupported) (?:global: )?(GLOBAL \S+)", text)
    if match:
        return f"it asks for {match[1].removeprefix('GLOBAL ')}, which is no tensor"
    match = re.search(r"WeightsUnpickler error: ([^.]+)", text)
    return match[1].strip() if match else text[:200]


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
        # Without gradient history, whatever was saved.
        tensors[name] = value.detach()
    unfit = [name for name, tensor in tensors.items() if not _is_plain(tensor)]
    if unfit:
        raise CheckpointError(
            f"{file}: these are no dense tensors of the types {joined(DTYPES)}: {joined(unfit)}; {_CONVERT}"
        )
    return tensors


def _is_plain(tensor: Tensor) -> bool:
    # Sparse and quantized tensors and those without memory.
    if tensor.layout != torch.strided or tensor.is_meta or tensor.dtype not in DTYPES.values():
        return False
    # A view that reaches beyond its memory is the mark of a forged file.
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()
