"""How much memory is free, of files as Linux writes them, and giving it back where the C library can."""

import ctypes
from pathlib import Path

import pytest
import torch

from regard.core import memory
from regard.core.memory import CPU, free_bytes


def test_memory_that_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 900 kB\nMemAvailable:  700 kB\n")
    (tmp_path / "own").write_text("0::/job/step\n")
    step = tmp_path / "groups" / "job" / "step"
    step.mkdir(parents=True)
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_OWN_GROUP", tmp_path / "own")
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "groups")
    assert free_bytes(CPU) == 700 * 1024
    for folder, limit, used, unused in ((step, "max", 5, 0), (step.parent, "50000", 40_000, 3000)):
        (folder / "memory.max").write_text(limit)
        (folder / "memory.current").write_text(str(used))
        (folder / "memory.stat").write_text(f"anon 1\ninactive_file {unused}\n")
    assert free_bytes(CPU) == 13_000
    # Version 1 of the groups, and a path that is the host's.
    (tmp_path / "own").write_text("4:memory:/host/path\n3:cpu:/host\n")
    top = tmp_path / "groups" / "memory"
    top.mkdir()
    (top / "memory.limit_in_bytes").write_text("30000")
    (top / "memory.usage_in_bytes").write_text("29000")
    (top / "memory.stat").write_text("total_inactive_file 500\n")
    assert free_bytes(CPU) == 1500
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "nothing")
    monkeypatch.setattr(memory, "_OWN_GROUP", tmp_path / "nothing")
    assert free_bytes(CPU) is None
    assert free_bytes(torch.device("meta")) is None


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(memory._trim() is None, reason="the C library has no malloc_trim")
def test_free_pages_between_those_in_use_go_back() -> None:
    pieces = [bytearray(65_536) for _ in range(1024)]  # 64 MiB of small pieces, from the heap
    kept = pieces[::2]
    del pieces
    before = _resident()
    memory.trim_malloc()
    assert before - _resident() > 16 * 2**20
    assert len(kept) == 512


def test_a_library_without_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    memory._trim.cache_clear()
    try:
        assert memory._trim() is None
        memory.trim_malloc()
    finally:
        memory._trim.cache_clear()
