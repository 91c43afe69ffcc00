"""Packs on several threads, and the number of torch's threads that they leave behind."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from regard.embedding._packs import Run
from regard.embedding._workers import cores, over

PACKS = [(Run((row,), 1),) for row in range(4)]


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_the_caller_gets_its_threads_back_where_a_helper_is_the_last_to_leave() -> None:
    caller = threading.get_ident()

    def compute(_: object) -> None:
        assert torch.get_num_threads() == 1
        time.sleep(0.001 if threading.get_ident() == caller else 0.02)

    over(PACKS[:2], compute, threads=2)
    assert torch.get_num_threads() == 2


def test_so_do_callers_that_come_and_go_at_once_and_threads_made_later() -> None:
    left: list[int] = []

    def call(wait: float) -> None:
        over(PACKS, lambda _: time.sleep(wait), threads=2)
        left.append(torch.get_num_threads())

    def all_of(callers: list[threading.Thread]) -> None:
        for each in callers:
            each.start()
        for each in callers:
            each.join()

    all_of([threading.Thread(target=call, args=(wait / 1000,)) for wait in (7, 1, 5, 3)])
    all_of([threading.Thread(target=lambda: left.append(torch.get_num_threads()))])
    assert left == [2] * 5


def test_an_error_in_a_thread_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        over(PACKS, lambda _: 1 / 0, threads=3)  # type: ignore[arg-type, return-value]
    assert torch.get_num_threads() == 2


ALLOWED = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("100000 100000", 1),
        ("50000 100000", 1),
        ("max 100000", ALLOWED),
        ("9900000 100000", ALLOWED),
        ("", ALLOWED),
    ],
)
def test_a_control_group(tmp_path: Path, quota: str, expected: int) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    assert cores(tmp_path) == expected


def test_no_control_group(tmp_path: Path) -> None:
    assert cores(tmp_path) == ALLOWED
