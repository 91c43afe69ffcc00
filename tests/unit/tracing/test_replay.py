"""A pass's allocations asked of the C library, and what they would lie in."""

import ctypes
from typing import Any

import pytest

from regard.tracing import _replay
from regard.tracing._replay import Step, grown

MIB = 2**20


def taken(count: int, first: int = 0) -> list[Step]:
    return [Step("takes", (each,)) for each in range(first, first + count)]


# A hundred blocks, of which every other one is freed.
SIZES = [MIB] * 100 + [3 * MIB // 2] * 60
HOLES = taken(100) + [Step("frees", (each,)) for each in range(0, 100, 2)]


def test_what_no_hole_is_large_enough_for() -> None:
    """Fifty MiB are free, in holes of one; thirty more lie behind them. A neighbour may have been free."""
    most = grown(HOLES + taken(20, 100), SIZES)
    assert most is not None
    assert 127 * MIB < most <= 130 * MIB
    assert grown(HOLES, SIZES) == 100 * MIB


def test_holes_are_filled_by_what_fits() -> None:
    half = grown([*HOLES, *taken(40, 100)], SIZES[:100] + [MIB // 2] * 60)
    assert half is not None
    assert half < 105 * MIB


def test_pages_that_went_back_do_not_count() -> None:
    """The trace holds 32 MiB more: of the fifty blocks that live there are fifty MiB, and ninety come."""
    held = Step("holds", (160, 161))
    sizes = [*SIZES, 16 * MIB, 16 * MIB]
    most = grown([*HOLES, held, *taken(60, 100)], sizes)
    less = grown([*HOLES, *taken(60, 100)], sizes)
    assert most is not None
    assert less is not None
    assert 137 * MIB < most <= 140 * MIB
    assert 187 * MIB < less <= 190 * MIB


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
