"""What the C library holds free goes back while a trace grows."""

import pytest
import torch

from regard.tracing._heap import Heap

MIB = 2**20


@pytest.fixture
def trims(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    monkeypatch.setattr("regard.tracing._heap.give_back", lambda: calls.append(0))
    return calls


def test_a_short_text_gives_nothing_back(trims: list[int]) -> None:
    heap = Heap()
    heap.grows(torch.empty(15 * MIB, dtype=torch.int8))
    for _ in range(20):
        heap.grows(torch.empty(2 * MIB - 1, dtype=torch.int8))
    assert not trims


def test_each_eighth_of_a_long_one(trims: list[int]) -> None:
    heap, four = Heap(), torch.empty(2 * MIB, dtype=torch.bfloat16)
    for _ in range(32):  # 128 MiB, of which each 16
        heap.grows(four)
    assert len(trims) == 8
    for _ in range(8):  # from here an eighth is more: 18 of 146 MiB, and then 20 of 164
        heap.grows(four)
    assert trims == [0] * 9


def test_of_another_device_nothing_is_on_the_heap(trims: list[int]) -> None:
    heap = Heap()
    heap.grows(torch.empty(256 * MIB, device="meta"))
    heap.grows(torch.empty(15 * MIB, dtype=torch.int8))
    assert not trims
