"""A trace in a file: safetensors, mapped into memory when it is opened."""

import json
import os
import struct
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.checkpoints import SAFETENSORS_DTYPES, SafetensorsFile
from regard.core.errors import CheckpointError, InputError, RegardError
from regard.core.files import write_whole
from regard.core.wording import DOWNLOAD_AGAIN
from regard.models import Change, Loaded
from regard.tracing.record._codec import Reader, Writer
from regard.tracing.record._origin import Origin, origin_of
from regard.tracing.record._stacks import Stacks, TracedStack

VERSION = 1
"""Of the format: a file says which it is, and another one is refused."""

_ABOUT = "trace"
"""The name of the tensor that holds everything else as JSON."""

_NAMES = {dtype: name for name, dtype in SAFETENSORS_DTYPES.items()}


class HasLoaded(Protocol):
    """What has a model in it, as `regard.Model` does."""

    @property
    def loaded(self) -> Loaded:
        """The model."""
        ...


class _NotThereError(CheckpointError, FileNotFoundError):
    """No such file."""


def write_trace(trace: Stacks, path: str | os.PathLike[str]) -> Path:
    """See `Trace.save`."""
    writer = Writer()
    origin = trace.origin if trace.loaded is None else origin_of(trace.loaded)
    about = {
        "model": trace.model,
        "origin": None if origin is None else vars(origin),
        "encoder": writer.write(trace.encoder, "encoder"),
        "decoder": writer.write(trace.decoder, "decoder"),
        "edits": [(each.edit, each.tap, each.changed, each.moved) for each in trace.edits],
    }
    written = json.dumps(about | {"objects": writer.objects}).encode()
    tensors = writer.tensors | {_ABOUT: torch.frombuffer(bytearray(written), dtype=torch.uint8)}
    write_whole(path, lambda temporary: _write(temporary, tensors))
    return Path(path)


def _write(file: Path, tensors: dict[str, Tensor]) -> None:
    """Tensor by tensor: the format's own writer wants all of them packed at the same time."""
    # The widest types first, so that every number begins at a multiple of its size.
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())
    header: dict[str, Any] = {"__metadata__": {"format": "regard-trace", "version": str(VERSION)}}
    end = 0
    for name, tensor in ordered:
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    told = json.dumps(header).encode()
    told += b" " * (-len(told) % 64)
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(told)))
        stream.write(told)
        for _, tensor in ordered:
            packed = tensor.cpu().contiguous().flatten()
            stream.write(packed.view(torch.uint8).numpy().data)


def read_trace(path: str | os.PathLike[str], model: HasLoaded | Loaded | None) -> dict[str, Any]:
    """The fields of a trace in a file: see `Trace.open`."""
    loaded = None if model is None else model if isinstance(model, Loaded) else getattr(model, "loaded", None)
    if model is not None and not isinstance(loaded, Loaded):
        raise InputError(f"model must be a regard.Model, or None; got {type(model).__name__}.")
    file = Path(path)
    try:
        stored = SafetensorsFile(file)
    except CheckpointError as error:
        if not file.exists():
            raise _NotThereError(f"{file} cannot be opened as a trace: there is no such file.") from error
        reason = str(error).removeprefix(f"{file}: ").removesuffix(f"; {DOWNLOAD_AGAIN}")
        reason = reason.replace("damaged safetensors file", "it is none, or damaged", 1)
        raise CheckpointError(
            f"{file} cannot be opened as a trace: {reason}; trace.save writes one."
        ) from error
    metadata = stored.metadata()
    if metadata.get("format") != "regard-trace" or _ABOUT not in stored.names():
        raise CheckpointError(
            f"{file} is not a trace: trace.save did not write it. A model's folder is opened by regard.load."
        )
    if metadata.get("version") != str(VERSION):
        raise CheckpointError(
            f"{file} is a trace of format {metadata.get('version')}, and this regard reads format {VERSION}; "
            "open it with the regard that wrote it, or trace the text again."
        )
    try:
        found = _read(stored)  # before the model is compared: a damaged file is no file of another model
    # Whatever a record that is not what it should be runs into.
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError, RegardError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(
            f"{file} is a damaged trace ({type(error).__name__}: {reason[:200]}); trace the text again."
        ) from error
    origin: Origin | None = found["origin"]
    if loaded is not None:
        if origin is None:
            raise InputError(f"model must be None: the trace in {file} does not say which model it is of.")
        origin.check(loaded, str(file))
    return found | {"loaded": loaded}


def _read(stored: SafetensorsFile) -> dict[str, Any]:
    about = json.loads(stored.read(_ABOUT).numpy().tobytes())
    names = frozenset(stored.names())

    def tensor(name: str) -> Tensor:
        if name not in names:
            raise KeyError(f"there is no tensor {name!r}")
        return stored.read(name)

    reader = Reader(tensor, about["objects"])
    stacks = {name: reader.read(about[name]) for name in ("encoder", "decoder")}
    if not any(stacks.values()) or not all(isinstance(each, TracedStack | None) for each in stacks.values()):
        raise ValueError("it holds no stack")
    origin = None if about["origin"] is None else Origin(**about["origin"])
    edits = tuple(
        Change(edit=edit, tap=tap, found=torch.tensor([changed, moved], dtype=torch.float64))
        for edit, tap, changed, moved in about["edits"]
    )
    return {"model": about["model"], "origin": origin, "edits": edits, **stacks}
