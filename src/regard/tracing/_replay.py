"""What a heap grows to under a pass's allocations: the C library is asked, and nothing is written to them."""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Literal

from regard.core.heap import give_back
from regard.tracing._heap import Heap


@dataclass(frozen=True)
class Step:
    """One thing that a pass does with its memory.

    Args:
        what: memory is taken, or freed; or a trace tells its `Heap` of tensors that it holds from now on.
        sizes: which of the pass's sizes: of what is taken or freed one, of what is held one for each tensor.
    """

    what: Literal["takes", "frees", "holds"]
    sizes: tuple[int, ...]


def grown(steps: Sequence[Step], sizes: Sequence[int]) -> int | None:
    """The most bytes that a pass's memory would lie in, the holes counted that the C library cannot fill.

    Every block is asked of the C library as torch asks for it, and given back when the pass gives it back, so
    that holes are left where its own rules leave them. Nothing is written into the blocks, and memory that
    nobody writes to takes none. What they would take is the pages of all blocks since pages were last given
    back, those of freed ones with them.

    The state of the heap at this moment has a part in it, as it has in a pass.

    Args:
        steps: in their order.
        sizes: in bytes.

    Returns:
        Bytes; None where there is no such function (Windows), or where the library has no room for so much.

    Example:
        >>> taken, freed, other = Step("takes", (0,)), Step("frees", (0,)), Step("takes", (1,))
        >>> grown([taken, freed, other], [2**26, 2**27])
        134217728
    """
    with _blocks() as blocks:
        if blocks is None:
            return None
        heap, most = Heap(), 0
        for step in steps:
            if step.what == "holds":
                if heap.is_due([sizes[each] for each in step.sizes]):
                    give_back()
                    blocks.only_living()
                continue
            (number,) = step.sizes
            if step.what == "frees":
                blocks.free(number)
            elif not blocks.take(number, sizes[number]):
                return None
            most = max(most, blocks.written)
        return most


# glibc maps what is larger by itself and unmaps it when it is freed (DEFAULT_MMAP_THRESHOLD_MAX).
_MAPPED = 2**25
_ALIGNED = 64  # as torch's allocator asks


class _Blocks:
    """Blocks of the C library, and the bytes that have been part of one since pages were last given back."""

    def __init__(self, take: Callable[[int], int | None], free: Callable[[int], None]) -> None:
        self._take, self._free = take, free
        self._living: dict[int, tuple[int, int]] = {}
        self._mapped: dict[int, int] = {}
        self._ranges: list[tuple[int, int]] = []

    @property
    def written(self) -> int:
        return sum(self._mapped.values()) + sum(end - start for start, end in self._ranges)

    def take(self, number: int, size: int) -> bool:
        if size >= _MAPPED:
            self._mapped[number] = size
            return True
        start = self._take(max(size, 1))
        if start is None:
            return False
        self._living[number] = start, start + size
        self._add(start, start + size)
        return True

    def free(self, number: int) -> None:
        if self._mapped.pop(number, None) is None:
            start, _ = self._living.pop(number)
            self._free(start)

    def free_all(self) -> None:
        for number in [*self._living, *self._mapped]:
            self.free(number)

    def only_living(self) -> None:
        self._ranges = []
        for start, end in self._living.values():
            self._add(start, end)

    def _add(self, start: int, end: int) -> None:
        apart = []
        for each in self._ranges:
            if each[1] < start or end < each[0]:
                apart.append(each)
            else:
                start, end = min(start, each[0]), max(end, each[1])
        self._ranges = [*apart, (start, end)]


@contextmanager
def _blocks() -> Iterator[_Blocks | None]:
    library = _library()
    if library is None:
        yield None
        return

    def take(size: int) -> int | None:
        place = ctypes.c_void_p()
        return None if library.posix_memalign(ctypes.byref(place), _ALIGNED, size) else place.value

    blocks = _Blocks(take, library.free)
    try:
        yield blocks
    finally:
        blocks.free_all()


@cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(None)
        library.posix_memalign.argtypes = (
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.c_size_t,
            ctypes.c_size_t,
        )
    except (AttributeError, OSError, TypeError):  # Windows has no library without a name
        return None
    library.free.argtypes, library.free.restype = (ctypes.c_void_p,), None
    return library
