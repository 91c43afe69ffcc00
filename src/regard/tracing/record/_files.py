"""A trace in a file: its records as JSON and named tensors, in safetensors, mapped into memory when opened.

What a record is called in a file, and its fields, stand in `SCHEMA`. Masks and biases that layers share are
written once, tensors that share memory too, and a tensor comes back with its axes in the same order in
memory: what is computed from it then is the same to the last bit.
"""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.blocks.attentions import LinearAttention, Linformer, Performer
from regard.checkpoints import SAFETENSORS_DTYPES, SafetensorsFile
from regard.core import (
    Additive,
    AttentionInputs,
    BiasOfHeads,
    Bilinear,
    Causal,
    Conjunction,
    Cosine,
    DenseBias,
    DilatedWindow,
    Dot,
    Padding,
    Ramp,
    ScaledDot,
    Segments,
    TensorMask,
    Unexpired,
    Window,
)
from regard.core.arguments import path_of
from regard.core.errors import CheckpointError, InputError, RegardError
from regard.core.files import write_whole
from regard.core.wording import DOWNLOAD_AGAIN
from regard.models import Change, Loaded
from regard.models.families.deberta import DisentangledBias, DistanceTerm
from regard.positions import Alibi, BucketBias
from regard.text import Encoding, Token, Word
from regard.tracing.record._keep import KeepPolicy, Partial, ScoreInputs
from regard.tracing.record._stacks import AttentionTrace, Origin, ScoreTrace, Stacks, TracedStack, origin_of

SCHEMA: dict[str, tuple[Any, str]] = {
    "Passage": (
        TracedStack,
        "encoding attention cross_attention cross_layers hidden learned scaled positions token_types keeping",
    ),
    "AttentionTrace": (AttentionTrace, "inputs context output written_heads output_written"),
    "AttentionInputs": (
        AttentionInputs,
        "q k v mask bias scorer scale softcap dropout sinks weights written kernel",
    ),
    "ScoreTrace": (ScoreTrace, "inputs"),
    "ScoreInputs": (ScoreInputs, "q k mask bias scorer scale softcap dropout sinks weights written kernel"),
    "Keeping": (KeepPolicy, "keep layers dtype"),
    "Causal": (Causal, "offset"),
    "Conjunction": (Conjunction, "masks"),
    "DilatedWindow": (DilatedWindow, "left right dilation offset"),
    "Linformer": (Linformer, "keys values"),
    "LinearAttention": (LinearAttention, ""),
    "Padding": (Padding, "real"),
    "Performer": (Performer, "features seed"),
    "Segments": (Segments, "queries keys"),
    "TensorMask": (TensorMask, "values"),
    "Window": (Window, "left right offset"),
    "Alibi": (Alibi, "num_heads steepest"),
    "BiasOfHeads": (BiasOfHeads, "bias heads"),
    "BucketBias": (BucketBias, "weight buckets query_offset"),
    "DenseBias": (DenseBias, "values"),
    "DisentangledBias": (DisentangledBias, "c2p p2c"),
    "DistanceTerm": (DistanceTerm, "vectors table index batch"),
    "Ramp": (Ramp, "spans ramp first positions"),
    "Unexpired": (Unexpired, "spans ramp first positions"),
    "Additive": (Additive, "v"),
    "Bilinear": (Bilinear, "weight"),
    "Cosine": (Cosine, "temperature"),
    "Dot": (Dot, ""),
    "ScaledDot": (ScaledDot, ""),
}
"""The records of format 1: the name in the file, the class, and its fields. A change is another format, but
for a field that is not written where it has its default."""

_YOUNGER: dict[str, Any] = {"scorer": ScaledDot(), "kernel": None}
"""Fields that came later, with these defaults."""

_NAMES = {kind: name for name, (kind, _) in SCHEMA.items()}

_TOKEN = ("id", "text", "span", "sequence", "word", "type_id", "special", "surface", "shown")
_WORD = ("text", "span", "sequence", "tokens")


class Writer:
    """Takes records apart: into `tensors` by name, densely packed, and `objects`, the masks and biases."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.objects: list[Any] = []
        self._names: dict[tuple[object, ...], str] = {}
        self._places: dict[int, int] = {}
        self._alive: list[object] = []  # an id means something for as long as its object lives

    def write(self, value: Any, at: str) -> Any:
        """A value as JSON; its place in the trace, `at`, names its tensors.

        An InputError refuses what no file can hold, such as an arbitrary predicate.
        """
        # Plain values first: most of a record is numbers, texts and None.
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, Tensor):
            return self._tensor(value, at)
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, tuple | list):
            return [self.write(each, f"{at}.{place}") for place, each in enumerate(value)]
        if isinstance(value, Encoding):
            return _encoding(value)
        # A part of a sequence: what is there, by place, and why the rest is missing.
        if isinstance(value, Partial):
            kept = {str(place): self.write(each, f"{at}.{place}") for place, each in value.kept.items()}
            about = {"what": value.what, "why": value.why, "length": len(value), "numbers": value.numbers}
            return {"partial": about, "kept": kept}
        # A class that SCHEMA lacks: a mask or bias of the user's own, which is code.
        if type(value) not in _NAMES:
            kind = type(value).__name__
            raise InputError(
                f"{at} of this trace is a {kind}, which a file cannot hold: it is a rule that only code "
                "can tell. Ask it what you need now, or save its weights as tensors of your own."
            )
        return (
            # Masks, biases and scorers are shared by layers: written once, and named by number.
            self._shared(value, at) if at.endswith((".mask", ".bias", ".scorer")) else self._record(value, at)
        )

    def _record(self, value: Any, at: str) -> Any:
        name = _NAMES[type(value)]
        found = {each: getattr(value, each) for each in SCHEMA[name][1].split()}
        # Younger fields with their default are left out: then older versions can read the file.
        for each in [each for each in found if each in _YOUNGER and found[each] == _YOUNGER[each]]:
            del found[each]
        return {"is": name} | {each: self.write(held, f"{at}.{each}") for each, held in found.items()}

    def _shared(self, own: Any, at: str) -> Any:
        if id(own) not in self._places:
            # The id must not be given to another object while writing goes on.
            self._alive.append(own)
            written = self._record(own, at)
            self._places[id(own)] = len(self.objects)
            self.objects.append(written)
        return {"object": self._places[id(own)]}

    def _tensor(self, tensor: Tensor, at: str) -> Any:
        # As it lies in memory: a product with a tensor laid out otherwise may differ in the last bit.
        # The axes from the outermost in memory to the innermost; one of size 1 is nowhere in memory.
        order = sorted(
            (axis for axis in range(tensor.ndim) if tensor.shape[axis] != 1),
            key=lambda axis: (-tensor.stride()[axis], axis),
        )
        sizes = tuple(tensor.shape[axis] for axis in order)
        strides = tuple(tensor.stride()[axis] for axis in order)
        storage = tensor.untyped_storage()
        # The same numbers in memory, seen in the same way: one tensor in the file.
        key = (storage._cdata, tensor.storage_offset(), sizes, strides, tensor.dtype)
        if key not in self._names:
            self._alive.append(tensor)
            # Axes of size 1 last: reshaping drops them.
            packed = tensor.detach().permute(
                *order, *(each for each in range(tensor.ndim) if each not in order)
            )
            self._names[key] = at
            self.tensors[at] = packed.reshape(sizes)
        return {"tensor": self._names[key], "shape": tuple(tensor.shape), "order": order}


class Reader:
    """Puts records together again, of tensors by their names and of what `Writer.objects` was."""

    def __init__(self, tensors: Callable[[str], Tensor], objects: list[Any]) -> None:
        self._tensors = tensors
        self._written = objects
        self._objects: dict[int, Any] = {}

    def read(self, value: Any) -> Any:
        """What was written; a KeyError, TypeError, ValueError, IndexError or RegardError where it is
        damaged.
        """
        if isinstance(value, list):
            return tuple(self.read(each) for each in value)
        if not isinstance(value, dict):
            return value
        if "is" in value:
            others = {name: self.read(each) for name, each in value.items() if name != "is"}
            # Fields that the class lacks raise here, and count as damage.
            return SCHEMA[value["is"]][0](**others)
        if "tensor" in value:
            return self._tensor(**value)
        if "dtype" in value:
            # A name from a file: only a dtype is taken.
            dtype = getattr(torch, value["dtype"])
            if not isinstance(dtype, torch.dtype):
                raise TypeError(f"{value['dtype']} is no dtype")
            return dtype
        if "tokens" in value:
            return _encoding_of(value)
        if "partial" in value:
            kept = {int(place): self.read(each) for place, each in value["kept"].items()}
            return Partial(kept, **value["partial"])
        if "object" in value:
            place = value["object"]
            # Each object once, so that layers share it as they did before.
            if place not in self._objects:
                self._objects[place] = self.read(self._written[place])
            return self._objects[place]
        raise ValueError(f"a record with {', '.join(value)} is unknown")

    def _tensor(self, tensor: str, shape: list[int], order: list[int]) -> Tensor:
        packed = self._tensors(tensor)
        # Back into the order of the axes; those of size 1 come by reshaping.
        wide = packed.permute(tuple(order.index(axis) for axis in sorted(order)))
        return wide.reshape(shape)


def _encoding(encoding: Encoding) -> Any:
    return {
        "texts": encoding.texts,
        # Without `shown` where it is the piece, as files of before were.
        "tokens": [
            [getattr(token, name) for name in (_TOKEN[:-1] if token.shown == token.text else _TOKEN)]
            for token in encoding.tokens
        ],
        "words": [[getattr(word, name) for name in _WORD] for word in encoding.words],
    }


def _encoding_of(written: Any) -> Encoding:
    return Encoding(
        texts=tuple(written["texts"]),
        tokens=tuple(
            # A token without `shown` has it from its piece, row[1].
            Token(index=index, **_fields(_TOKEN, [*row, row[1]][: len(_TOKEN)]))
            for index, row in enumerate(written["tokens"])
        ),
        words=tuple(Word(index=index, **_fields(_WORD, row)) for index, row in enumerate(written["words"])),
    )


def _fields(names: tuple[str, ...], row: list[Any]) -> dict[str, Any]:
    return {
        name: tuple(each) if isinstance(each, list) else each for name, each in zip(names, row, strict=True)
    }


VERSION = 1
"""The version of the format, which a file states; another one is refused."""

_ABOUT = "trace"
"""The name of the tensor that holds everything else as JSON."""

_DTYPES = {dtype: name for name, dtype in SAFETENSORS_DTYPES.items()}


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
    # A trace from a file keeps the origin that it came with.
    origin = trace.origin if trace.loaded is None else origin_of(trace.loaded)
    about = {
        "model": trace.model,
        "origin": None if origin is None else vars(origin),
        "encoder": writer.write(trace.encoder, "encoder"),
        "decoder": writer.write(trace.decoder, "decoder"),
        "edits": [(each.edit, each.tap, each.changed, each.moved) for each in trace.edits],
    }
    # Everything but tensors is JSON, kept as a tensor of bytes.
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
        # Offsets in bytes from the end of the header, as the format has them.
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    header_bytes = json.dumps(header).encode()
    # Blanks at the end of the header, so that tensors that are mapped begin at round addresses.
    header_bytes += b" " * (-len(header_bytes) % 64)
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(header_bytes)))
        stream.write(header_bytes)
        for _, tensor in ordered:
            packed = tensor.cpu().contiguous().flatten()
            stream.write(packed.view(torch.uint8).numpy().data)


def read_trace(path: str | os.PathLike[str], model: HasLoaded | Loaded | None) -> dict[str, Any]:
    """The fields of a trace in a file: see `Trace.open`."""
    # A regard.Model, or the Loaded in it.
    loaded = None if model is None else model if isinstance(model, Loaded) else getattr(model, "loaded", None)
    if model is not None and not isinstance(loaded, Loaded):
        raise InputError(f"model must be a regard.Model, or None; got {type(model).__name__}.")
    file = path_of("path", path)
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
        # Before the model is compared: a damaged file is no file of another model.
        stored_fields = _read(stored)
    # Whatever a record that is not what it should be runs into.
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError, RegardError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(
            f"{file} is a damaged trace ({type(error).__name__}: {reason[:200]}); trace the text again."
        ) from error
    origin: Origin | None = stored_fields["origin"]
    if loaded is not None:
        if origin is None:
            raise InputError(f"model must be None: the trace in {file} does not say which model it is of.")
        origin.check(loaded, str(file))
    return stored_fields | {"loaded": loaded}


def _read(stored: SafetensorsFile) -> dict[str, Any]:
    about = json.loads(stored.read(_ABOUT).numpy().tobytes())
    # For its error alone: half of a surrogate pair is in no page.
    json.dumps(
        about, ensure_ascii=False
    ).encode()  # half of a surrogate pair, which no page holds, is an error
    names = frozenset(stored.names())

    def tensor(name: str) -> Tensor:
        if name not in names:
            raise KeyError(f"there is no tensor {name!r}")
        return stored.read(name)

    reader = Reader(tensor, about["objects"])
    stacks = {name: reader.read(about[name]) for name in ("encoder", "decoder")}
    # One stack at least, and nothing else in its place.
    if not any(stacks.values()) or not all(isinstance(each, TracedStack | None) for each in stacks.values()):
        raise ValueError("it holds no stack")
    origin = None if about["origin"] is None else Origin(**about["origin"])
    edits = tuple(
        Change(edit=edit, tap=tap, found=torch.tensor([changed, moved], dtype=torch.float64))
        for edit, tap, changed, moved in about["edits"]
    )
    return {"model": about["model"], "origin": origin, "edits": edits, **stacks}
