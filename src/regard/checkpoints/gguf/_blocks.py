"""Weights in blocks of a few bits an entry, as GGUF files store them, and their numbers."""

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor

from regard.core.extras import missing

_PLAIN: Mapping[str, torch.dtype] = MappingProxyType(
    {
        "F32": torch.float32,
        "F16": torch.float16,
        "BF16": torch.bfloat16,
        "F64": torch.float64,
        "I8": torch.int8,
        "I16": torch.int16,
        "I32": torch.int32,
        "I64": torch.int64,
    }
)
"""The types of single numbers, by the format's names."""


@dataclass(frozen=True, slots=True)
class BlockType:
    """How entries are stored: so many of a row in a block of so many bytes, with scales of their own."""

    name: str
    entries: int
    size: int

    @property
    def plain(self) -> torch.dtype | None:
        """The type of single numbers; None for blocks."""
        return _PLAIN.get(self.name)


TYPES: Mapping[int, BlockType] = MappingProxyType(
    {
        number: BlockType(name, entries, size)
        for number, name, entries, size in (
            (0, "F32", 1, 4),
            (1, "F16", 1, 2),
            (2, "Q4_0", 32, 18),
            (3, "Q4_1", 32, 20),
            (6, "Q5_0", 32, 22),
            (7, "Q5_1", 32, 24),
            (8, "Q8_0", 32, 34),
            (10, "Q2_K", 256, 84),
            (11, "Q3_K", 256, 110),
            (12, "Q4_K", 256, 144),
            (13, "Q5_K", 256, 176),
            (14, "Q6_K", 256, 210),
            (16, "IQ2_XXS", 256, 66),
            (17, "IQ2_XS", 256, 74),
            (18, "IQ3_XXS", 256, 98),
            (19, "IQ1_S", 256, 50),
            (20, "IQ4_NL", 32, 18),
            (21, "IQ3_S", 256, 110),
            (22, "IQ2_S", 256, 82),
            (23, "IQ4_XS", 256, 136),
            (24, "I8", 1, 1),
            (25, "I16", 1, 2),
            (26, "I32", 1, 4),
            (27, "I64", 1, 8),
            (28, "F64", 1, 8),
            (29, "IQ1_M", 256, 56),
            (30, "BF16", 1, 2),
            (34, "TQ1_0", 256, 54),
            (35, "TQ2_0", 256, 66),
            (39, "MXFP4", 32, 17),
            (40, "NVFP4", 64, 36),
        )
    }
)
"""By the number in the file: every type that the `gguf` package gives the values of."""

_ENTRIES: Final = 2**21
"""So many are unpacked at a time where not all are wanted at once: 8 MB in float32. Larger pieces go through
the system every time."""


@dataclass(frozen=True, eq=False)
class Packed:
    """A matrix as it is stored: (rows, columns), each row in blocks.

    Args:
        blocks: uint8 (rows, bytes of a row), as a rule a view of the mapped file.
        kind: what the bytes mean.
    """

    blocks: Tensor
    kind: BlockType

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        rows, size = self.blocks.shape
        # Whole blocks: a row is a whole number of them.
        return rows, size // self.kind.size * self.kind.entries

    @property
    def step(self) -> int:
        """So many rows are unpacked at a time where not all are wanted at once."""
        return max(1, _ENTRIES // self.shape[1])

    def rows(self, which: slice | Tensor) -> "Packed":
        """Some of the rows: a view for a slice, a copy for int64 numbers of rows."""
        return Packed(self.blocks[which], self.kind)

    def unpacked(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The numbers, (rows, columns): in float32 exactly what the format says, in other types rounded."""
        if self.kind.plain is not None:
            # A plain type: the bytes are the numbers; a copy, so that nobody changes the file's memory.
            numbers = self.blocks.contiguous().view(-1).view(self.kind.plain)
            return numbers.view(self.shape).to(dtype, copy=True)
        # Into the wanted type directly where the kernel can, else by float32.
        numbers = torch.empty(self.shape, dtype=dtype if dtype in _MADE else torch.float32)
        _unpacker(self.kind)(self.blocks.contiguous(), numbers)
        return numbers.to(dtype)

    def multiplier(self, bias: Tensor | None) -> tuple[Callable[[Tensor], Tensor] | None, int]:
        """What multiplies a few rows of x with the blocks where they lie, x W^T + bias in float32, and how
        many rows at most; None and 0 where there is no kernel.

        bias: (rows,), or None.
        """
        if not _has_kernels():
            return None, 0
        from regard.kernels import MOST_ROWS, multiplying  # only here: llvmlite takes its time

        multiply = multiplying(self.kind.name, self.blocks, bias)
        return multiply, 0 if multiply is None else MOST_ROWS


@cache
def _has_kernels() -> bool:
    # The kernels are written for AVX2 and AVX-512; other processors have the `gguf` package.
    has_registers = torch.backends.cpu.get_cpu_capability().startswith("AVX")
    return has_registers and importlib.util.find_spec("llvmlite") is not None


_MADE = (torch.float32, torch.bfloat16)
"""The types that numbers are unpacked to without a step between."""


@cache
def _unpacker(kind: BlockType) -> Callable[[Tensor, Tensor], None]:
    """unpack(blocks, numbers) for blocks of a kind: by a kernel, or by the `gguf` package."""
    if _has_kernels():
        from regard.kernels import unpacking  # only here: llvmlite takes its time

        if (kernel := unpacking(kind.name)) is not None:
            return kernel
    try:
        from gguf import GGMLQuantizationType, dequantize  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        raise missing(f"weights in blocks of {kind.name} need", error, "gguf") from error
    number = GGMLQuantizationType[kind.name]

    def by_package(blocks: Tensor, numbers: Tensor) -> None:
        # In pieces: the package makes several copies of what it unpacks.
        for first in range(0, len(blocks), step := max(1, _ENTRIES // numbers.shape[1])):
            part = slice(first, first + step)
            numbers[part] = torch.from_numpy(dequantize(blocks[part].numpy(), number))

    return by_package
