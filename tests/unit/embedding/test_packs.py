"""Which rows run together, and packs on several threads."""

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.embedding._packs import Run, cores, over, pack


@pytest.mark.parametrize("mixed", [False, True])
def test_every_row_is_in_one_run_of_its_length_and_packs_keep_to_the_budget(mixed: bool) -> None:
    dice = random.Random(7)
    for _ in range(100):
        lengths = [dice.randint(1, 23) for _ in range(dice.randint(0, 97))]
        budget = dice.randint(1, 131)
        packs = pack(lengths, tokens=budget, mixed=mixed)
        runs = [run for each in packs for run in each]
        assert sorted(row for run in runs for row in run.rows) == list(range(len(lengths)))
        assert all(lengths[row] == run.length for run in runs for row in run.rows)
        for each in packs:
            tokens = sum(len(run.rows) * run.length for run in each)
            assert tokens <= budget or sum(len(run.rows) for run in each) == 1
            assert mixed or len(each) == 1


@pytest.mark.parametrize(
    ("lengths", "options", "rows"),
    [
        ([2, 5, 2, 5], {"tokens": 10}, [(1, 3), (0, 2)]),
        # 4096 tokens squared are 2^24: such rows run alone, however large the budget.
        ([4096] * 3, {"tokens": 10**6}, [(0,), (1,), (2,)]),
        ([], {"tokens": 5}, []),
        ([16] * 75, {"mixed": True, "alone": True}, [(*range(32),), (*range(32, 64),), (*range(64, 75),)]),
    ],
    ids=["the longest come first", "long rows run alone", "no rows", "one thread alone has full packs"],
)
def test_the_rows_of_packs_of_one_run(
    lengths: list[int], options: dict[str, Any], rows: list[tuple[int, ...]]
) -> None:
    assert [[run.rows for run in each] for each in pack(lengths, **options)] == [[each] for each in rows]


def _sizes(lengths: list[int], *, mixed: bool = True) -> list[int]:
    return [sum(len(run.rows) * run.length for run in each) for each in pack(lengths, mixed=mixed)]


@pytest.mark.parametrize("mixed", [False, True])
def test_packs_get_smaller_towards_the_end(mixed: bool) -> None:
    """So that no core is left alone with a large one: an eighth of what is left, and at last equal packs."""
    sizes = _sizes([7] * 2003, mixed=mixed)
    left = sum(sizes)
    assert left == 7 * 2003
    while left >= 8 * 256:
        size = sizes.pop(0)
        assert abs(size - min(512, left // 8)) < 7
        left -= size
    assert len(sizes) == 8
    assert max(sizes) - min(sizes) <= 7


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([31] * 4, [124]),  # under 128 tokens
        ([32] * 4, [64, 64]),
        ([26] * 32, [208, 208, 208, 208]),
        ([60, 40, 30, 10], [60, 80]),
        ([100, 100, 100], [200, 100]),
        ([50, 50, 50, 40], [100, 90]),
        ([300, 20, 20], [300, 40]),
    ],
)
def test_few_texts_are_an_even_number_of_like_packs(lengths: list[int], expected: list[int]) -> None:
    assert sorted(_sizes(lengths)) == sorted(expected)


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


def test_so_does_a_new_thread_that_asks_after_another_came() -> None:
    """torch gives a thread the number that was set last anywhere when it first asks, not when it begins."""
    inside, go, left = threading.Semaphore(0), threading.Event(), list[int]()

    def stay(_: object) -> None:
        inside.release()
        go.wait()

    def come_and_go() -> None:
        over(PACKS[:1], lambda _: None, threads=1)
        stays[1].start()
        inside.acquire()
        left.append(torch.get_num_threads())

    stays = [threading.Thread(target=over, args=(PACKS[:1], stay), kwargs={"threads": 1}) for _ in range(2)]
    stays[0].start()
    inside.acquire()
    asks = threading.Thread(target=come_and_go)
    asks.start()
    asks.join()
    go.set()
    for each in stays:
        each.join()
    assert left == [2]


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
        (None, ALLOWED),
    ],
)
def test_a_control_group(tmp_path: Path, quota: str | None, expected: int) -> None:
    if quota is not None:
        (tmp_path / "cpu.max").write_text(quota)
    assert cores(tmp_path) == expected
