"""What the C library holds free goes back while a trace grows."""

import pytest
import torch

from regard.tracing.record._heap import Heap

MIB = 2**20


@pytest.fixture
def trims(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    monkeypatch.setattr("regard.tracing.record._heap.give_back", lambda: calls.append(0))
    return calls


def test_a_short_text_gives_nothing_back(trims: list[int]) -> None:
    heap = Heap()
    heap.grows(torch.empty(3 * MIB, dtype=torch.int8))
    for _ in range(20):
        heap.grows(torch.empty(MIB - 1, dtype=torch.int8))
    assert not trims


def test_each_eighth_of_a_long_one(trims: list[int]) -> None:
    heap, four = Heap(), torch.empty(2 * MIB, dtype=torch.bfloat16)
    for _ in range(8):  # 32 MiB, of which each 4
        heap.grows(four)
    assert len(trims) == 8
    for _ in range(8):  # from here an eighth is more: 40, 48, 56 and 64 MiB
        heap.grows(four)
    assert len(trims) == 12
    for _ in range(7):  # and then 76 and 88
        heap.grows(four)
    assert trims == [0] * 14


def test_of_another_device_nothing_is_on_the_heap(trims: list[int]) -> None:
    heap = Heap()
    heap.grows(torch.empty(256 * MIB, device="meta"))
    heap.grows(torch.empty(3 * MIB, dtype=torch.int8))
    assert not trims
