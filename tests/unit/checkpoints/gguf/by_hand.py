"""GGUF files byte by byte, so that each byte can be wrong."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

STRING, UINT32, BOOL, ARRAY = 8, 4, 7, 9


def text(value: str | bytes) -> bytes:
    """A string as the format has it."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def pair(name: str, kind: int, value: bytes) -> bytes:
    """A field."""
    return text(name) + struct.pack("<I", kind) + value


def word(name: str, value: str) -> bytes:
    """A field that is a text."""
    return pair(name, STRING, text(value))


def number(name: str, value: int) -> bytes:
    """A field that is a number of 32 bits."""
    return pair(name, UINT32, struct.pack("<I", value))


def listed(name: str, kind: int, count: int, values: bytes) -> bytes:
    """A field that is a list."""
    return pair(name, ARRAY, struct.pack("<IQ", kind, count) + values)


@dataclass
class Tensor:
    """A tensor's entry and its bytes."""

    name: str = "a"
    sizes: tuple[int, ...] = (2,)
    kind: int = 0
    offset: int = 0
    data: bytes = struct.pack("<2f", 1.0, 2.0)

    def entry(self) -> bytes:
        axes = struct.pack(f"<I{len(self.sizes)}Q", len(self.sizes), *self.sizes)
        return text(self.name) + axes + struct.pack("<IQ", self.kind, self.offset)


@dataclass
class File:
    """What a file has; `counts` are what it says of the numbers of tensors and fields."""

    fields: Iterable[bytes] = (word("general.architecture", "llama"),)
    tensors: Iterable[Tensor] = field(default_factory=lambda: [Tensor()])
    version: int = 3
    counts: tuple[int, int] | None = None
    magic: bytes = b"GGUF"
    alignment: int = 32

    def __bytes__(self) -> bytes:
        fields, tensors = list(self.fields), list(self.tensors)
        counts = self.counts or (len(tensors), len(fields))
        head = self.magic + struct.pack("<IQQ", self.version, *counts)
        head += b"".join(fields) + b"".join(each.entry() for each in tensors)
        head += bytes(-len(head) % self.alignment)
        data = bytearray()
        for each in tensors:
            data += bytes(max(0, each.offset - len(data))) + each.data
        return head + bytes(data)

    def save(self, folder: Path, name: str = "model.gguf") -> Path:
        (folder / name).write_bytes(bytes(self))
        return folder / name


def floats(*values: float) -> bytes:
    """Numbers of 32 bits."""
    return np.array(values, dtype="<f4").tobytes()
