"""Free memory goes back to the system, where the C library can."""

import ctypes
from pathlib import Path

import pytest

from regard.core import heap


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(heap._trim() is None, reason="the C library has no malloc_trim")
def test_free_pages_between_those_in_use_go_back() -> None:
    pieces = [bytearray(65_536) for _ in range(1024)]  # 64 MiB of small pieces, from the heap
    kept = pieces[::2]
    del pieces
    before = _resident()
    heap.trim_malloc()
    assert before - _resident() > 16 * 2**20
    assert len(kept) == 512


def test_a_library_without_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    heap._trim.cache_clear()
    try:
        assert heap._trim() is None
        heap.trim_malloc()
    finally:
        heap._trim.cache_clear()
