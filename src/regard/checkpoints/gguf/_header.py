"""The header of a GGUF file: its fields and the list of its tensors, every number held to what can be.

The file may come from a stranger, so nothing is believed: a count, a length or an offset that leads out of
the file is an error before anything of that size is made.

Source: the format's own description, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from regard.checkpoints.gguf._blocks import TYPES, BlockType
from regard.core.errors import CheckpointError
from regard.core.wording import DOWNLOAD_AGAIN

MAGIC: Final = b"GGUF"

_VERSIONS: Final = (2, 3)
"""Versions whose little-endian files are laid out alike. The first version had counts of 32 bits."""

_ALIGNMENT: Final = 32
"""What offsets are multiples of, in bytes, where `general.alignment` does not say."""

_STRING, _ARRAY, _BOOL = 8, 9, 7
_NUMBERS: Final = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    _BOOL: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
"""The types of fields that are numbers, as numpy has them."""

_LEAST_FIELD, _LEAST_TENSOR = 8 + 4 + 1, 8 + 4 + 8 + 4 + 8
"""The bytes that an entry takes at least: a number beyond what the file can hold is damage."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor in the file.

    Args:
        shape: as torch has it, the axis along which entries follow each other last.
        kind: how its entries are stored.
        start: its first byte.
    """

    shape: tuple[int, ...]
    kind: BlockType
    start: int

    @property
    def size(self) -> int:
        """Its bytes."""
        return math.prod(self.shape) // self.kind.entries * self.kind.size


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before the tensors: fields as Python has them (lists of numbers as arrays), and entries."""

    fields: Mapping[str, Any]
    tensors: Mapping[str, Entry]


def read_header(data: memoryview, file: Path) -> Header:
    """The header of a mapped file.

    Raises:
        CheckpointError: it is something else, of another version, cut short, damaged or hostile.
    """
    cursor = _Cursor(data, file)
    # Magic, version, counts of tensors and fields; then fields, then tensors.
    if bytes(data[:4]) != MAGIC:
        raise CheckpointError(f"{file}: not a GGUF file, which begins with the letters GGUF")
    cursor.at = 4
    version = cursor.number("<I")
    if version not in _VERSIONS:
        # Read the wrong way round, version 3 has its bits in the upper half.
        swapped = version and not version & 0xFFFF
        got = "a file for processors that store the highest byte first" if swapped else f"version {version}"
        raise CheckpointError(f"{file}: regard reads GGUF of versions 2 and 3; got {got}; convert it anew")
    num_tensors, num_fields = cursor.number("<Q"), cursor.number("<Q")
    # A count that the file is too small for is refused before a loop of that length.
    cursor.check(num_tensors * _LEAST_TENSOR + num_fields * _LEAST_FIELD, "so many fields and tensors")
    fields: dict[str, Any] = {}
    for _ in range(num_fields):
        name = cursor.text("the name of a field")
        # Twice: readers would disagree about which counts.
        if name in fields:
            raise cursor.damaged(f"the field {name!r} occurs twice")
        fields[name] = cursor.value(cursor.number("<I"), name)
    places = {}
    for _ in range(num_tensors):
        name = cursor.text("the name of a tensor")
        if name in places:
            raise cursor.damaged(f"the tensor {name!r} occurs twice")
        places[name] = _entry(cursor, name)
    return Header(fields, _checked(cursor, places, fields))


def _entry(cursor: "_Cursor", name: str) -> Entry:
    axes = cursor.number("<I")
    if not 1 <= axes <= 4:
        raise cursor.damaged(f"the tensor {name!r} has {axes} axes")
    sizes = [cursor.number("<Q") for _ in range(axes)]
    number, start = cursor.number("<I"), cursor.number("<Q")
    kind = TYPES.get(number)
    if kind is None:
        raise CheckpointError(
            f"{cursor.file}: the tensor {name!r} is stored in blocks of type {number}, which regard does not "
            f"read; it reads {', '.join(each.name for each in TYPES.values())}"
        )
    # The format lists sizes from the innermost axis on, the one that blocks run along.
    if 0 in sizes or sizes[0] % kind.entries:
        raise cursor.damaged(f"the tensor {name!r} of {kind.name} has rows of {sizes[0]} entries")
    # torch has the innermost axis last.
    return Entry(tuple(reversed(sizes)), kind, start)


def _checked(cursor: "_Cursor", places: Mapping[str, Entry], fields: Mapping[str, Any]) -> dict[str, Entry]:
    """The entries by their places in the file: inside it, aligned, and none over another."""
    step = fields.get("general.alignment", _ALIGNMENT)
    # A whole number, not a bool, as the type says.
    if type(step) is not int or step < 1 or step % 8:
        raise cursor.damaged(f"'general.alignment' is {step!r}")
    # Tensors begin at the next multiple of the alignment after the header.
    first = -(-cursor.at // step) * step
    tensors, end, before = {}, first, ""
    # By their beginnings: then only neighbours can overlap.
    for name, entry in sorted(places.items(), key=lambda item: item[1].start):
        moved = Entry(entry.shape, entry.kind, first + entry.start)
        if entry.start % step:
            raise cursor.damaged(f"the tensor {name!r} does not begin at a multiple of {step} bytes")
        if moved.start < end:
            raise cursor.damaged(f"the tensors {before!r} and {name!r} overlap")
        end, before = moved.start + moved.size, name
        if end > len(cursor.data):
            raise cursor.damaged(f"it has {len(cursor.data)} bytes, and {name!r} ends at byte {end}")
        tensors[name] = moved
    return tensors


@dataclass(slots=True)
class _Cursor:
    """Reads one thing after the other."""

    data: memoryview
    file: Path
    at: int = 0

    def damaged(self, how: str) -> CheckpointError:
        return CheckpointError(f"{self.file}: damaged GGUF file ({how}); {DOWNLOAD_AGAIN}")

    def check(self, size: int, what: str) -> None:
        if size > len(self.data) - self.at:
            raise self.damaged(f"it ends within {what}")

    def number(self, form: str) -> int:
        self.check(struct.calcsize(form), "its header")
        (number,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return int(number)

    def text(self, what: str) -> str:
        return self.texts(1, what)[0]

    def texts(self, count: int, what: str) -> list[str]:
        # A vocabulary has 250,000 of them: hence no call for each number.
        self.check(8 * count, what)
        data, at, end, texts = self.data, self.at, len(self.data), []
        try:
            for _ in range(count):
                begin = at + 8
                at = begin + int.from_bytes(data[at:begin], "little")
                if at > end:
                    raise self.damaged(f"it ends within {what}")
                texts.append(str(data[begin:at], "utf-8"))
        except UnicodeDecodeError as error:
            raise self.damaged(f"{what} is no UTF-8") from error
        self.at = at
        return texts

    def value(self, kind: int, name: str) -> Any:
        """A field's value."""
        if kind == _STRING:
            return self.text(f"the field {name!r}")
        if kind == _ARRAY:
            # An array within an array is no type of number, and so an error below.
            return self.array(name)
        (number,) = self.numbers(kind, 1, name).tolist()
        return number

    def array(self, name: str) -> Any:
        kind, count = self.number("<I"), self.number("<Q")
        if kind == _STRING:
            return self.texts(count, f"the field {name!r}")
        return self.numbers(kind, count, name)

    def numbers(self, kind: int, count: int, name: str) -> Any:
        if kind not in _NUMBERS:
            raise self.damaged(f"the field {name!r} is of type {kind}, which is none for a number")
        form = np.dtype(_NUMBERS[kind])
        self.check(count * form.itemsize, f"the field {name!r}")
        # A view of the mapped file, without a copy.
        numbers = np.frombuffer(self.data, form, count, self.at)
        # Any byte but 0 and 1 is damage: numpy would take it for True.
        if kind == _BOOL and count and bytes(self.data[self.at : self.at + count]).strip(b"\0\1"):
            raise self.damaged(f"the field {name!r} is neither true nor false")
        self.at += count * form.itemsize
        return numbers
