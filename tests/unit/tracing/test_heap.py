"""What the C library holds free goes back while a trace grows."""

import ctypes

import pytest
import torch

from regard.tracing import _heap
from regard.tracing._heap import Heap

MIB = 2**20


@pytest.fixture
def trims(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    monkeypatch.setattr(_heap, "_trim", lambda: calls.append)
    return calls


def test_a_short_trace_gives_nothing_back(trims: list[int]) -> None:
    heap = Heap()
    for _ in range(127):
        heap.grows(torch.empty(MIB, dtype=torch.int8))
    assert not trims


def test_each_eighth_of_a_long_one(trims: list[int]) -> None:
    heap, four = Heap(), torch.empty(2 * MIB, dtype=torch.bfloat16)
    for _ in range(32):
        heap.grows(four)
    assert len(trims) == 1  # 128 MiB
    for _ in range(9):  # an eighth of 148 MiB is less than 20, and of 144 more than 16
        heap.grows(four)
    assert trims == [0] * 2


def test_of_another_device_nothing_is_on_the_heap(trims: list[int]) -> None:
    heap = Heap()
    heap.grows(torch.empty(256 * MIB, device="meta"))
    heap.grows(torch.empty(127 * MIB, dtype=torch.int8))
    assert not trims


def test_a_library_without_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    _heap._trim.cache_clear()
    try:
        assert _heap._trim() is None
        Heap().grows(torch.empty(129 * MIB, dtype=torch.int8))
    finally:
        _heap._trim.cache_clear()
