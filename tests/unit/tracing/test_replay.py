"""A pass's allocations asked of the C library, and what they would lie in."""

import ctypes
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from regard.tracing import _replay
from regard.tracing._replay import Step, grown

MIB = 2**20


# Each in a process of its own, whose heap has no large holes: what importing left is filled first. (A large
# block that is freed has glibc take those that follow from the heap.)
_CHILD = """
import ctypes
import json
import os
from regard.tracing._replay import Step, grown

MIB = 2**20
library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
library.free.argtypes = (ctypes.c_void_p,)
library.free(library.malloc(31 * MIB))
filling = [library.malloc(MIB // 4) for _ in range(400)]

def taken(count, first=0):
    return [Step("takes", (each,)) for each in range(first, first + count)]

# A hundred blocks, of which every other one is freed: fifty MiB in holes of one. Others come behind them.
holes = taken(100) + [Step("frees", (each,)) for each in range(0, 100, 2)]
large, small = ([MIB] * 100 + [size] * 60 + [16 * MIB] * 2 for size in (3 * MIB // 2, MIB // 2))
held = Step("holds", (160, 161))
for name, steps, sizes in (
    ("holes", holes, large),
    ("larger", [*holes, *taken(20, 100)], large),
    ("smaller", [*holes, *taken(40, 100)], small),
    ("many", [*holes, *taken(60, 100)], large),
    ("given back", [*holes, held, *taken(60, 100)], large),
):
    if not os.fork():
        print(json.dumps([name, grown(steps, sizes)]), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def mib() -> dict[str, float]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", _CHILD], env=environment, capture_output=True, text=True, check=True
    )
    return {name: size / MIB for name, size in map(json.loads, done.stdout.splitlines())}


def taken(count: int) -> list[Step]:
    return [Step("takes", (each,)) for each in range(count)]


def test_what_no_hole_is_large_enough_for(mib: dict[str, float]) -> None:
    """Twenty blocks of 1.5 MiB. A hole beside memory that was free before may have been larger."""
    assert mib["holes"] == 100
    assert mib["larger"] == pytest.approx(130, abs=3)


def test_holes_are_filled_by_what_fits(mib: dict[str, float]) -> None:
    assert mib["smaller"] == pytest.approx(100, abs=3)


def test_pages_that_went_back_do_not_count(mib: dict[str, float]) -> None:
    """The trace holds 32 MiB more: of the hundred fifty live, and ninety come."""
    assert mib["many"] == pytest.approx(190, abs=3)
    assert mib["given back"] == pytest.approx(140, abs=3)


def test_large_blocks_leave_no_holes() -> None:
    steps = [*taken(3), Step("frees", (1,)), Step("takes", (3,))]
    assert grown(steps, [2**25, 2**25, 2**25, 2**26]) == 2**27


def test_all_blocks_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the library has no room left."""
    library = _replay._library()
    assert library is not None
    living: set[int] = set()

    class Short:
        @staticmethod
        def posix_memalign(place: Any, aligned: int, size: int) -> int:
            if len(living) == 7:
                return 12  # ENOMEM
            failed: int = library.posix_memalign(place, aligned, size)
            living.add(place._obj.value)
            return failed

        @staticmethod
        def free(place: int) -> None:
            living.remove(place)
            library.free(place)

    monkeypatch.setattr(_replay, "_library", lambda: Short)
    assert grown(taken(7), [MIB] * 7) is not None
    assert not living
    assert grown(taken(8), [MIB] * 8) is None
    assert not living


def test_a_library_without_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    _replay._library.cache_clear()
    try:
        assert grown(taken(1), [MIB]) is None
    finally:
        _replay._library.cache_clear()
