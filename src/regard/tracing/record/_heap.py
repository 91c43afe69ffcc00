"""The heap of the C library while a trace grows."""

from collections.abc import Iterable

from torch import Tensor

from regard.core.heap import give_back

# Smaller tensors are those of short texts, of whose time it would take a part that counts to get memory back.
_LARGE = 2**20
# So much has come before anything is given back, and then again for each further eighth of what is kept.
_FIRST = 2**22
_SHARE = 8


class Heap:
    """Gives free pages back to the system, each time that a trace of a longer text has grown by an eighth.

    glibc takes tensors below its mmap threshold, which rises to 32 MB, from one heap. Between those that a
    trace keeps lie those that a layer frees, and an aligned block that was freed is too small for the next
    of its size, which needs room to be aligned in: so with GPT-2 small at 4,096 tokens the process held a
    fifth to a half more than was alive. `malloc_trim` gives back the pages between; its settings stay.

    Where the C library has no such function (macOS, Windows, musl), nothing is done.
    """

    def __init__(self) -> None:
        self._held = self._since = 0

    def grows(self, *tensors: Tensor) -> None:
        """Tell of tensors that the trace holds from now on; those on another device are not on the heap."""
        if self.is_due([tensor.numel() * tensor.element_size() for tensor in tensors if tensor.is_cpu]):
            give_back()

    def is_due(self, sizes: Iterable[int]) -> bool:
        """Whether free pages are to go back, now that so many bytes each have come to what is held."""
        count = sum(size for size in sizes if size >= _LARGE)
        self._held += count
        self._since += count
        due = count > 0 and self._since >= max(_FIRST, self._held // _SHARE)
        if due:
            self._since = 0
        return due
