"""The words of LLVM's intermediate representation that the kernels are written in."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F32, F64, PTR, VOID = ir.FloatType(), ir.DoubleType(), ir.PointerType(), ir.VoidType()


# llvmlite has no bfloat16: it is a half that is written under another name.
class _BFloat16(ir.HalfType):  # type: ignore[misc, unused-ignore]
    def __str__(self) -> str:
        return "bfloat"


BF16: Final = _BFloat16()

ROUNDS: Final = 1.5 * 2**23
"""Added to a float32 below 2^22 in size, it leaves the nearest whole number in the lowest bits."""

_PORTION: Final = 16
"""Rows or columns that a thread takes at a time; if it is held up, others take the rest."""

WIDTH: Final = {I8: 1, I16: 2, I32: 4, I64: 8, F32: 4, BF16: 2}


def vector(element: Any, lanes: int) -> Any:
    """The type of a register with this number of lanes."""
    return ir.VectorType(element, lanes)


def whole(number: int) -> Any:
    """A constant of 64 bits."""
    return ir.Constant(I64, number)


def filled(kind: Any, number: float) -> Any:
    """A register with a constant in every lane."""
    return ir.Constant(kind, [number] * kind.count)


def zeros(kind: Any) -> Any:
    """A register full of them."""
    return filled(kind, 0)


def place(b: Any, start: Any, index: Any, element: Any) -> Any:
    """The address of start[index]."""
    return b.gep(start, [index], source_etype=element)


def load(b: Any, start: Any, index: Any, kind: Any) -> Any:
    """A number of the type, or a register full of them, from start[index] on; at any address."""
    element = getattr(kind, "element", kind)
    # The alignment is that of one number: rows of a tensor may begin anywhere.
    return b.load(place(b, start, index, element), typ=kind, align=WIDTH[element])


def store(b: Any, value: Any, start: Any, index: Any) -> None:
    """The reverse of `load`."""
    element = getattr(value.type, "element", value.type)
    b.store(value, place(b, start, index, element), align=WIDTH[element])


def spread(b: Any, number: Any, kind: Any) -> Any:
    """A register with the number in every lane."""
    # LLVM's idiom of a broadcast: it selects the one instruction for it.
    nothing = ir.Constant(kind, ir.Undefined)
    first = b.insert_element(nothing, number, ir.Constant(I32, 0))
    return b.shuffle_vector(first, nothing, zeros(vector(I32, kind.count)))


def picked(b: Any, one: Any, other: Any, lanes: Sequence[int]) -> Any:
    """A register of these lanes of two, those of the other numbered on."""
    return b.shuffle_vector(one, other, ir.Constant(vector(I32, len(lanes)), list(lanes)))


def transposed(b: Any, rows: Sequence[Any]) -> list[Any]:
    """So many rows, a power of two, of as many numbers, column by column; of longer rows each part."""
    lanes, turned, distance = rows[0].type.count, list(rows), 1
    # Like a butterfly: in each round, rows `distance` apart swap blocks of `distance` lanes.
    while distance < len(rows):
        # What the first of two rows keeps: its own lanes where the bit is 0, else the other's lane
        # below.
        low = [lane if not lane & distance else lanes + lane - distance for lane in range(lanes)]
        # What the second keeps: the first's lane above where the bit is 0, else its own lanes.
        high = [lane + distance if not lane & distance else lanes + lane for lane in range(lanes)]
        for number in range(len(rows)):
            if not number & distance:
                one, other = turned[number], turned[number + distance]
                turned[number], turned[number + distance] = (
                    picked(b, one, other, low),
                    picked(b, one, other, high),
                )
        distance *= 2
    return turned


def larger(b: Any, one: Any, other: Any) -> Any:
    """The larger of two floats, lane by lane; where `one` is not a number, it stays."""
    # An ordered comparison with a number that is none is false: then `one` is chosen.
    return b.select(b.fcmp_ordered("<", one, other), other, one)


def over_lanes(b: Any, value: Any, join: Callable[[Any, Any, Any], Any]) -> Any:
    """All lanes joined to one number, halves by halves."""
    distance = value.type.count // 2
    # log2(lanes) steps; afterwards each lane has the result, and the first is read.
    while distance:
        # Lanes whose number differs in this bit change places.
        swapped = picked(b, value, value, [lane ^ distance for lane in range(value.type.count)])
        value, distance = join(b, value, swapped), distance // 2
    return b.extract_element(value, ir.Constant(I32, 0))


def intrinsic(module: Any, name: str, result: Any, *arguments: Any) -> Any:
    """A function that LLVM knows by name."""
    known = module.globals.get(name)
    return known or ir.Function(module, ir.FunctionType(result, arguments), name)


def fetch(module: Any, b: Any, address: Any) -> None:
    """Have what stands there brought into the second cache; any address will do."""
    prefetch = intrinsic(module, "llvm.prefetch.p0", VOID, PTR, I32, I32, I32)
    # To be read (0), with little use for the nearest cache (2 of 3), data and no code (1).
    b.call(prefetch, [address, *(ir.Constant(I32, number) for number in (0, 2, 1))])


def fma(module: Any, b: Any, one: Any, other: Any, added: Any) -> Any:
    """one * other + added in registers, rounded once."""
    kind = one.type
    multiply_add = intrinsic(module, f"llvm.fma.v{kind.count}f32", kind, kind, kind, kind)
    return b.call(multiply_add, [one, other, added])


def add_bfloat16(module: Any, b: Any, one: Any, other: Any, sums: Any) -> Any:
    """sums, and in every lane the products of two pairs of bfloat16; needs AVX512-BF16."""
    kind, pairs = sums.type, one.type
    # The registers hold 32 * lanes bits, by which LLVM names its instructions: 256 or 512.
    add = intrinsic(module, f"llvm.x86.avx512bf16.dpbf16ps.{32 * kind.count}", kind, kind, pairs, pairs)
    return b.call(add, [sums, one, other])


def add_fours(module: Any, b: Any, sums: Any, one: Any, other: Any) -> Any:
    """sums, and in every lane four products of a byte without a sign and one with a sign; needs VNNI."""
    kind = sums.type
    add = intrinsic(module, f"llvm.x86.avx512.vpdpbusd.{32 * kind.count}", kind, kind, kind, kind)
    return b.call(add, [sums, one, other])


def add_pairs(module: Any, b: Any, sums: Any, one: Any, other: Any) -> Any:
    """The same with two products of numbers of 16 bits; with VNNI, LLVM makes both steps one instruction."""
    kind, pairs = sums.type, vector(I16, 2 * sums.type.count)
    # AVX-512 and AVX2 spell the name of the same operation in two ways.
    name = "llvm.x86.avx512.pmaddw.d.512" if kind.count == 16 else "llvm.x86.avx2.pmadd.wd"
    add = intrinsic(module, name, kind, pairs, pairs)
    # Both steps, the products and the addition, are exact in 32 bits.
    return b.add(sums, b.call(add, [b.bitcast(each, pairs) for each in (one, other)]))


def internal(module: Any, name: str, *arguments: Any) -> tuple[Any, Any]:
    """A function that only its module calls, and what writes its body."""
    function = ir.Function(module, ir.FunctionType(VOID, arguments), name)
    function.linkage = "internal"
    function.attributes.add("noinline")  # inlined, what it sums would leave its registers
    return function, ir.IRBuilder(function.append_basic_block())


def exported(module: Any, name: str, *arguments: Any) -> tuple[Any, Any]:
    """A function that Python calls, and what writes its body."""
    function = ir.Function(module, ir.FunctionType(VOID, arguments), name)
    return function, ir.IRBuilder(function.append_basic_block())


@contextmanager
def loop(b: Any, start: Any, stop: Any, step: Any) -> Iterator[Any]:
    """What is written inside runs for each index from start to before stop."""
    with carrying(b, start, stop, step, []) as (index, _, _):
        yield index


@contextmanager
def portions(b: Any, job: Any, count: Any) -> Iterator[tuple[Any, Any]]:
    """What is written inside runs for portions of `count` things, from a start to before a stop, until none
    is left to take; several threads may take from one job, whose first number counts what was taken."""
    take, work, done = (b.append_basic_block() for _ in range(3))
    b.branch(take)
    b.position_at_end(take)
    # An atomic addition hands each portion to one thread; the order between threads does not matter.
    start = b.mul(b.atomic_rmw("add", job, whole(1), "monotonic"), whole(_PORTION))
    b.cbranch(b.icmp_signed("<", start, count), work, done)
    b.position_at_end(work)
    # The last portion may be shorter.
    end = b.add(start, whole(_PORTION))
    yield start, b.select(b.icmp_signed("<", end, count), end, count)
    b.branch(take)
    b.position_at_end(done)


@contextmanager
def carrying(
    b: Any, start: Any, stop: Any, step: Any, starts: Sequence[Any]
) -> Iterator[tuple[Any, list[Any], list[Any]]]:
    """A loop, of no index where start is stop, that carries values on; yields what `summing` does."""
    # Four blocks: before, where the index is compared, what is inside, and after.
    before, head, body, after = b.block, *(b.append_basic_block() for _ in range(3))
    b.branch(head)
    b.position_at_end(head)
    # A phi is a value that depends on the block that one comes from: at first `start`, then the next
    # index.
    index = b.phi(I64)
    index.add_incoming(start, before)
    carried = [b.phi(each.type) for each in starts]
    b.cbranch(b.icmp_signed("<", index, stop), body, after)
    b.position_at_end(body)
    out: list[Any] = []
    # Here the caller writes the body of the loop.
    yield index, carried, out
    # The body may have ended in another block than it began: `b.block` is the last one.
    index.add_incoming(b.add(index, step), b.block)
    for value, each, last in zip(carried, starts, out, strict=True):
        value.add_incoming(each, before)
        value.add_incoming(last, b.block)
    b.branch(head)
    b.position_at_end(after)
    # After the loop the carried values are those of the comparison that ended it.
    out[:] = carried


@contextmanager
def summing(
    b: Any, stop: Any, step: int, starts: Sequence[Any]
) -> Iterator[tuple[Any, list[Any], list[Any]]]:
    """A loop over at least one index that carries values on.

    Yields the index, the values as they come in, and a list that is to be filled with those that go out;
    after it, the list holds the last.
    """
    # The comparison stands at the end: one jump a round, which needs at least one index.
    before, body, after = b.block, b.append_basic_block(), b.append_basic_block()
    b.branch(body)
    b.position_at_end(body)
    index = b.phi(I64)
    index.add_incoming(whole(0), before)
    carried = [b.phi(start.type) for start in starts]
    out: list[Any] = []
    yield index, carried, out
    following = b.add(index, whole(step))
    index.add_incoming(following, b.block)
    for value, start, last in zip(carried, starts, out, strict=True):
        value.add_incoming(start, before)
        value.add_incoming(last, b.block)
    b.cbranch(b.icmp_signed("<", following, stop), body, after)
    b.position_at_end(after)


def tiles(b: Any, count: Any, most: int, tile: Callable[[int, Any], None]) -> None:
    """Have tile(rows, first row) written for `count` rows: `most` at a time, and then what is left."""
    # The remainder is known only when the kernel runs: so a tile is written for each remainder, and
    # chosen by a switch.
    over = b.srem(count, whole(most))
    full = b.sub(count, over)
    with loop(b, whole(0), full, whole(most)) as row:
        tile(most, row)
    after = b.append_basic_block()
    choice = b.switch(over, after)
    for left in range(1, most):
        case = b.append_basic_block()
        choice.add_case(whole(left), case)
        b.position_at_end(case)
        tile(left, full)
        b.branch(after)
    b.position_at_end(after)


# 2^r = 1 + r (p_1 + r (p_2 + ...)) for |r| <= 1/2, within 1.6e-7: the polynomial of degree 5 whose largest
# relative error is the smallest, by the algorithm of Remez.
_POWERS: Final = (
    1.327647199e-3,
    9.675541334e-3,
    5.550713273e-2,
    2.402211972e-1,
    6.931469671e-1,
    1.0,
)
_LOWEST: Final = -126.0  # below it 2^x is 0 to a sum that 1 belongs to
_BIAS: Final = 127  # of the exponent of a float


def exp2(module: Any, b: Any, x: Any) -> Any:
    """2^x for x <= 0, and 2^-126 for what is below; what is not a number stays so.

    2^x = 2^n 2^r, where n is the whole number nearest to x, and r what is left.
    """
    kind = x.type
    lowest, rounds = filled(kind, _LOWEST), filled(kind, ROUNDS + _BIAS)
    # Below -126 2^n is no normal float, and its bits could not be put together by a shift.
    x = b.select(b.fcmp_ordered("<", x, lowest), lowest, x)
    # Adding 1.5 x 2^23 + 127 rounds x to a whole number n, and leaves n + 127 in the lowest bits.
    shifted = b.fadd(x, rounds)
    # What rounding took off, |r| <= 1/2; exact, since both floats are close to each other.
    r = b.fsub(x, b.fsub(shifted, rounds))
    # Horner's scheme, from the highest power down.
    p = filled(kind, _POWERS[0])
    for power in _POWERS[1:]:
        p = fma(module, b, p, r, filled(kind, power))
    # The lowest bits of the shifted number are n + 127; moved up, they are the float 2^n.
    bits = vector(I32, kind.count)
    return b.fmul(p, b.bitcast(b.shl(b.bitcast(shifted, bits), filled(bits, 23)), kind))
