"""The words of LLVM's intermediate representation that the kernels are written in."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]

I16, I32, I64, F32 = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
PTR, VOID = ir.PointerType(), ir.VoidType()
LANES = 8
"""The numbers of 32 bits in a register of AVX2."""
CODES = ir.VectorType(I16, 2 * LANES)
SUMS = ir.VectorType(I32, LANES)
FLOATS = ir.VectorType(F32, LANES)

_WIDTH = {I16: 2, I32: 4, F32: 4}


def whole(number: int) -> Any:
    """A constant of 64 bits."""
    return ir.Constant(I64, number)


def zeros(kind: Any) -> Any:
    """A register full of them."""
    return ir.Constant(kind, [0] * kind.count)


def place(b: Any, start: Any, index: Any, element: Any) -> Any:
    """The address of start[index]."""
    return b.gep(start, [index], source_etype=element)


def load(b: Any, start: Any, index: Any, kind: Any) -> Any:
    """A number of the type, or a register full of them, from start[index] on; at any address."""
    element = getattr(kind, "element", kind)
    return b.load(place(b, start, index, element), typ=kind, align=_WIDTH[element])


def store(b: Any, value: Any, start: Any, index: Any) -> None:
    """The reverse of `load`."""
    element = getattr(value.type, "element", value.type)
    b.store(value, place(b, start, index, element), align=_WIDTH[element])


def spread(b: Any, number: Any, kind: Any) -> Any:
    """A register with the number in every lane."""
    nothing = ir.Constant(kind, ir.Undefined)
    first = b.insert_element(nothing, number, ir.Constant(I32, 0))
    return b.shuffle_vector(first, nothing, zeros(ir.VectorType(I32, kind.count)))


def intrinsic(module: Any, name: str, result: Any, *arguments: Any) -> Any:
    """A function that LLVM knows by name."""
    return ir.Function(module, ir.FunctionType(result, arguments), name)


@contextmanager
def loop(b: Any, start: Any, stop: Any, step: Any) -> Iterator[Any]:
    """What is written inside runs for each index from start to before stop."""
    before, head, body, after = b.block, *(b.append_basic_block() for _ in range(3))
    b.branch(head)
    b.position_at_end(head)
    index = b.phi(I64)
    index.add_incoming(start, before)
    b.cbranch(b.icmp_signed("<", index, stop), body, after)
    b.position_at_end(body)
    yield index
    index.add_incoming(b.add(index, step), b.block)
    b.branch(head)
    b.position_at_end(after)


@contextmanager
def summing(b: Any, stop: Any, step: int, starts: list[Any]) -> Iterator[tuple[Any, list[Any], list[Any]]]:
    """A loop over at least one index that carries values on.

    Yields the index, the values as they come in, and a list that is to be filled with those that go out;
    after it, the list holds the last.
    """
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
