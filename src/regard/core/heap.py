"""The heap of the C library: what it holds free goes back to the system."""

import ctypes
from collections.abc import Callable
from functools import cache


def trim_malloc() -> None:
    """Let the C library give its free pages back to the system, where it can."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # Windows has no library without a name
        return None
    trim.argtypes, trim.restype = (ctypes.c_size_t,), ctypes.c_int
    found: Callable[[int], int] = trim
    return found
