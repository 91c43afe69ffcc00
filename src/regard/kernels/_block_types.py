"""The numbers that blocks of a few bits an entry stand for, in registers; in LLVM's representation.

Each type is a function that writes how a block's bytes become floats, in the order of its entries. The floats
are exactly those that the `gguf` package gives: every product of scales and codes is exact, and what is
added to it is rounded once.

Source: the formats are those of ggml, https://github.com/ggml-org/ggml/blob/master/src/ggml-quants.c.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]

from regard.kernels._ir import (
    F32,
    I8,
    I32,
    filled,
    fma,
    intrinsic,
    load,
    picked,
    place,
    spread,
    vector,
    whole,
)

# A float of 16 bits, as blocks store their scales.
_HALF: Final = ir.HalfType()
# Sixteen codes of a byte each: the unit in which all formats here are read.
_CODES: Final = vector(I8, 16)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of bytes, and what writes the reading of them.

    Args:
        lanes: of a register of floats.
        at: the block's first byte.
    """

    module: Any
    b: Any
    lanes: int
    at: Any

    def half(self, offset: int) -> Any:
        """A float that is stored in 16 bits."""
        stored = self.b.load(place(self.b, self.at, whole(offset), I8), typ=_HALF, align=1)
        return self.b.fpext(stored, F32)

    def byte(self, offset: int) -> Any:
        """One byte as a number of 32 bits."""
        return self.b.zext(load(self.b, self.at, whole(offset), I8), I32)

    def codes(self, offset: int) -> Any:
        """Sixteen bytes."""
        return load(self.b, self.at, whole(offset), _CODES)

    def low(self, codes: Any, bits: int = 4, shift: int = 0) -> Any:
        """So many bits of each byte, from a shift on."""
        moved = self.b.lshr(codes, filled(_CODES, shift)) if shift else codes
        # The highest bits need no mask: a shift fills up with zeros.
        return moved if bits + shift == 8 else self.b.and_(moved, filled(_CODES, (1 << bits) - 1))

    def joined(self, codes: Any, high: Any, shift: int) -> Any:
        """Codes with more bits above theirs."""
        return self.b.or_(codes, self.b.shl(high, filled(_CODES, shift)))

    def floats(self, codes: Any, *, signed: bool = False) -> list[Any]:
        """Sixteen bytes as floats."""
        # A register holds 8 or 16 floats: sixteen bytes become two or one of them.
        parts = [
            picked(self.b, codes, codes, range(first, first + self.lanes))
            for first in range(0, 16, self.lanes)
        ]
        wide = vector(I32, self.lanes)
        # With a sign or without, before they become floats.
        widen = self.b.sext if signed else self.b.zext
        return [self.b.sitofp(widen(each, wide), vector(F32, self.lanes)) for each in parts]

    def real(self, number: Any) -> Any:
        """A number of 32 bits as a float."""
        return self.b.sitofp(number, F32)

    def scaled(self, codes: Any, scale: Any, *, signed: bool = False) -> list[Any]:
        """scale * codes."""
        scales = spread(self.b, scale, vector(F32, self.lanes))
        return [self.b.fmul(each, scales) for each in self.floats(codes, signed=signed)]

    def shifted(self, codes: Any, scale: Any, added: Any) -> list[Any]:
        """scale * codes + added."""
        kind = vector(F32, self.lanes)
        scales, sums = spread(self.b, scale, kind), spread(self.b, added, kind)
        return [fma(self.module, self.b, each, scales, sums) for each in self.floats(codes)]

    def times(self, one: Any, other: Any) -> Any:
        """The product of two floats, or of a float and a constant."""
        return self.b.fmul(one, ir.Constant(F32, other) if isinstance(other, float) else other)


# 32 entries, 18 bytes: scale d (half), 32 codes of 4 bits. w = d (code - 8)
def _q4_0(block: Block) -> list[Any]:
    d, codes = block.half(0), block.codes(2)
    added = block.times(d, -8.0)
    # The low halves of the bytes are the first 16 entries, the high halves the last 16.
    return [
        number
        for half in (block.low(codes), block.low(codes, shift=4))
        for number in block.shifted(half, d, added)
    ]


# 32 entries, 20 bytes: d and the least, then codes. w = d code + least
def _q4_1(block: Block) -> list[Any]:
    d, least, codes = block.half(0), block.half(2), block.codes(4)
    return [
        number
        for half in (block.low(codes), block.low(codes, shift=4))
        for number in block.shifted(half, d, least)
    ]


def _fifth_bits(block: Block, offset: int) -> list[Any]:
    """The fifth bits of 32 codes, stored one after the other, as two registers of sixteen bytes 0 or 1."""
    halves = []
    # Two bytes for each sixteen codes, which go to the lanes 0 to 7 and 8 to 15.
    for first in (0, 2):
        low, high = (
            spread(block.b, load(block.b, block.at, whole(offset + first + byte), I8), _CODES)
            for byte in range(2)
        )
        both = picked(block.b, low, high, [*range(8), *range(24, 32)])
        # Each lane shifts its own bit to the lowest place.
        bits = ir.Constant(_CODES, [lane % 8 for lane in range(16)])
        halves.append(block.b.and_(block.b.lshr(both, bits), filled(_CODES, 1)))
    return halves


# 32 entries, 22 bytes: d, the 32 fifth bits, the 32 low fours. w = d (code - 16)
def _q5_0(block: Block) -> list[Any]:
    d, codes, high = block.half(0), block.codes(6), _fifth_bits(block, 2)
    added, parts = block.times(d, -16.0), (block.low(codes), block.low(codes, shift=4))
    return [
        number
        for low, bit in zip(parts, high, strict=True)
        for number in block.shifted(block.joined(low, bit, 4), d, added)
    ]


# 32 entries, 24 bytes: d, the least, the fifth bits, the low fours. w = d code + least
def _q5_1(block: Block) -> list[Any]:
    d, least, codes, high = block.half(0), block.half(2), block.codes(8), _fifth_bits(block, 4)
    parts = (block.low(codes), block.low(codes, shift=4))
    return [
        number
        for low, bit in zip(parts, high, strict=True)
        for number in block.shifted(block.joined(low, bit, 4), d, least)
    ]


# 32 entries, 34 bytes: d, then a byte each with its sign. w = d code
def _q8_0(block: Block) -> list[Any]:
    d = block.half(0)
    return [number for at in (2, 18) for number in block.scaled(block.codes(at), d, signed=True)]


# 256 entries, 84 bytes: 16 bytes of scales, 64 of codes with 2 bits, d, the least.
def _q2_k(block: Block) -> list[Any]:
    d, least, entries = block.half(80), block.half(82), []
    for part in range(16):  # of sixteen entries each
        # A byte has the scale of its part in the low 4 bits, and its offset in the high 4.
        byte = block.byte(part)
        scale = block.times(d, block.real(block.b.and_(byte, ir.Constant(I32, 15))))
        added = block.times(least, block.real(block.b.lshr(byte, ir.Constant(I32, 4))))
        # Four parts lie over each other in the same bytes, 2 bits apart; two times eight parts in all.
        codes = block.codes(16 + 32 * (part // 8) + 16 * (part % 2))
        entries += block.shifted(block.low(codes, 2, part // 2 % 4 * 2), scale, block.times(added, -1.0))
    return entries


# 256 entries, 110 bytes: 32 of third bits, 64 of low twos, 12 of scales, d.
def _q3_k(block: Block) -> list[Any]:
    b, d, entries = block.b, block.half(108), []
    for part in range(16):
        # A scale of 6 bits: the low 4 in bytes 96 to 103, the high 2 in bytes 104 to 107; 32 stands for
        # 0.
        low = block.byte(96 + part % 8)
        low = b.and_(b.lshr(low, ir.Constant(I32, part // 8 * 4)), ir.Constant(I32, 15))
        high = b.lshr(block.byte(104 + part % 4), ir.Constant(I32, part // 4 * 2))
        high = b.shl(b.and_(high, ir.Constant(I32, 3)), ir.Constant(I32, 4))
        scale = block.times(d, block.real(b.sub(b.or_(low, high), ir.Constant(I32, 32))))
        codes = block.low(block.codes(32 + 32 * (part // 8) + 16 * (part % 2)), 2, part // 2 % 4 * 2)
        # The third bit of each code: bit `part // 2` of the 32 bytes at the beginning.
        mask = block.low(block.codes(16 * (part % 2)), 1, part // 2)
        # 4 is taken off where the bit is not set.
        entries += block.shifted(block.joined(codes, mask, 2), scale, block.times(scale, -4.0))
    return entries


def _scales_of_k(block: Block, part: int) -> tuple[Any, Any]:
    """Scale and offset of a part, 6 bits each, in twelve bytes from the fifth on."""
    b = block.b

    def bits(offset: int, mask: int, shift: int = 0) -> Any:
        moved = b.lshr(block.byte(4 + offset), ir.Constant(I32, shift))
        return b.and_(moved, ir.Constant(I32, mask))

    # The first four parts: 6 bits that lie together.
    if part < 4:
        return bits(part, 63), bits(part + 4, 63)
    # The last four: 4 bits in the last four bytes, the 2 above them in the high bits of the first eight.
    four = ir.Constant(I32, 4)
    scale = b.or_(bits(part + 4, 15), b.shl(bits(part - 4, 3, 6), four))
    return scale, b.or_(bits(part + 4, 15, 4), b.shl(bits(part, 3, 6), four))


# 256 entries, 144 bytes: d, the least, 12 bytes of scales, 128 of codes. w = d scale code - least offset
def _q4_k(block: Block) -> list[Any]:
    d, least, entries = block.half(0), block.half(2), []
    for part in range(8):  # of 32 entries each
        scale, added = (block.real(each) for each in _scales_of_k(block, part))
        scale, added = block.times(d, scale), block.times(block.times(least, added), -1.0)
        for at in (0, 16):
            # Two parts share 32 bytes: the low fours, and the high fours.
            codes = block.low(block.codes(16 + part // 2 * 32 + at), shift=part % 2 * 4)
            entries += block.shifted(codes, scale, added)
    return entries


# 256 entries, 176 bytes: like Q4_K, with 32 bytes of fifth bits behind the scales.
def _q5_k(block: Block) -> list[Any]:
    d, least, entries = block.half(0), block.half(2), []
    for part in range(8):
        scale, added = (block.real(each) for each in _scales_of_k(block, part))
        scale, added = block.times(d, scale), block.times(block.times(least, added), -1.0)
        for at in (0, 16):
            codes = block.low(block.codes(48 + part // 2 * 32 + at), shift=part % 2 * 4)
            # Bit `part` of those bytes is the fifth of the part's codes.
            codes = block.joined(codes, block.low(block.codes(16 + at), 1, part), 4)
            entries += block.shifted(codes, scale, added)
    return entries


# 256 entries, 210 bytes: 128 of low fours, 64 of high twos, 16 scales of a byte, d. w = d scale (code -
# 32)
def _q6_k(block: Block) -> list[Any]:
    b, d, entries = block.b, block.half(208), []
    for part in range(16):
        # Two halves of 128 entries; in each, four quarters of 32; `at` is the first or last sixteen of
        # these.
        half, quarter, at = part // 8, part % 8 // 2, part % 2 * 16
        low = block.low(block.codes(64 * half + 32 * (quarter % 2) + at), shift=quarter // 2 * 4)
        high = block.low(block.codes(128 + 32 * half + at), 2, 2 * quarter)
        codes = b.sub(block.joined(low, high, 4), filled(_CODES, 32))
        scale = block.b.sext(load(b, block.at, whole(192 + part), I8), I32)
        entries += block.scaled(codes, block.times(d, block.real(scale)), signed=True)
    return entries


# The sixteen levels of IQ4: denser around 0, where most weights are. They are ggml's `kvalues_iq4nl`.
_IQ4: Final = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
# The sixteen numbers of the type E2M1 (4 bits: sign, two of exponent, one of mantissa), doubled so that
# they are whole.
_MXFP4: Final = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""What codes of 4 bits stand for; of MXFP4 twice that."""


def _looked_up(block: Block, table: tuple[int, ...], offset: int, scale: Any) -> list[Any]:
    """The numbers of 32 codes in sixteen bytes, the low halves first, by a table."""
    codes = block.codes(offset)
    # A shuffle of bytes looks sixteen codes up at once; the table is a register.
    find = intrinsic(block.module, "llvm.x86.ssse3.pshuf.b.128", _CODES, _CODES, _CODES)
    halves = (block.low(codes), block.low(codes, shift=4))
    found = [block.b.call(find, [ir.Constant(_CODES, list(table)), half]) for half in halves]
    return [number for each in found for number in block.scaled(each, scale, signed=True)]


def _iq4_nl(block: Block) -> list[Any]:
    return _looked_up(block, _IQ4, 2, block.half(0))


# 256 entries, 136 bytes: d, the high twos and the low fours of eight scales, then codes.
def _iq4_xs(block: Block) -> list[Any]:
    b, d, entries = block.b, block.half(0), []
    for part in range(8):
        low = b.and_(b.lshr(block.byte(4 + part // 2), ir.Constant(I32, part % 2 * 4)), ir.Constant(I32, 15))
        high = b.and_(b.lshr(block.byte(2 + part // 4), ir.Constant(I32, part % 4 * 2)), ir.Constant(I32, 3))
        # 6 bits of which 32 stands for 0.
        scale = b.sub(b.or_(low, b.shl(high, ir.Constant(I32, 4))), ir.Constant(I32, 32))
        entries += _looked_up(block, _IQ4, 8 + 16 * part, block.times(d, block.real(scale)))
    return entries


# 32 entries, 17 bytes: an exponent, then 32 codes of 4 bits.
def _mxfp4(block: Block) -> list[Any]:
    # The byte is the exponent of a float, here of half of it; below 2 the half is denormal.
    b, exponent = block.b, block.byte(0)
    # 2^-128 or 2^-127, written by their bits: they have no exponent of their own.
    least = b.shl(ir.Constant(I32, 0x00200000), b.and_(exponent, ir.Constant(I32, 1)))
    # Exponent - 1: half of 2^(byte - 127), since the table has the numbers doubled.
    usual = b.shl(b.sub(exponent, ir.Constant(I32, 1)), ir.Constant(I32, 23))
    bits = b.select(b.icmp_unsigned("<", exponent, ir.Constant(I32, 2)), least, usual)
    return _looked_up(block, _MXFP4, 1, b.bitcast(bits, F32))


@dataclass(frozen=True, slots=True)
class BlockType:
    """A type of block: its entries and bytes, and what writes its numbers."""

    entries: int
    size: int
    numbers: Callable[[Block], list[Any]]


BLOCK_TYPES: Mapping[str, BlockType] = MappingProxyType(
    {
        "Q4_0": BlockType(32, 18, _q4_0),
        "Q4_1": BlockType(32, 20, _q4_1),
        "Q5_0": BlockType(32, 22, _q5_0),
        "Q5_1": BlockType(32, 24, _q5_1),
        "Q8_0": BlockType(32, 34, _q8_0),
        "Q2_K": BlockType(256, 84, _q2_k),
        "Q3_K": BlockType(256, 110, _q3_k),
        "Q4_K": BlockType(256, 144, _q4_k),
        "Q5_K": BlockType(256, 176, _q5_k),
        "Q6_K": BlockType(256, 210, _q6_k),
        "IQ4_NL": BlockType(32, 18, _iq4_nl),
        "IQ4_XS": BlockType(256, 136, _iq4_xs),
        "MXFP4": BlockType(32, 17, _mxfp4),
    }
)
"""By the names of ggml. The others, which few files have, are unpacked by the `gguf` package."""
