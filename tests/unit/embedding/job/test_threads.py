"""Reading ahead and writing behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from regard.embedding.job._threads import ahead, behind


def numbers(log: list[int], *, stop: int = 100) -> Iterator[int]:
    try:
        for number in range(stop):
            log.append(number)
            yield number
    finally:
        log.append(-1)


def test_no_further_ahead_than_said() -> None:
    log: list[int] = []
    with ahead(numbers(log), 2) as items:
        assert next(items) == 0
        time.sleep(0.1)
        assert log == [0, 1, 2]  # one taken, two that wait
    assert log[-1] == -1  # closed, and with it what it reads
    assert not [each for each in threading.enumerate() if each.name.startswith("regard-reader")]


def test_an_error_comes_where_the_item_would() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise KeyError("broken")

    with ahead(failing(), 3) as items:
        assert next(items) == 1
        with pytest.raises(KeyError, match="broken"):
            next(items)


def test_writing_behind_in_order() -> None:
    done: list[int] = []

    def slowly(item: int) -> None:
        time.sleep(0.001)
        done.append(item)

    with behind(slowly, 1) as put:
        for number in range(20):
            put(number)
    assert done == list(range(20))


def test_an_error_behind_reaches_who_puts() -> None:
    def failing(item: int) -> None:
        raise OSError(28, "full")

    def user() -> None:
        with behind(failing, 1) as put:
            for number in range(1000):
                put(number)
                time.sleep(0.001)
        raise AssertionError("it was put long ago")

    with pytest.raises(OSError, match="full"):
        user()
    with pytest.raises(OSError, match="full"), behind(failing, 5) as put:
        put(1)


def test_nothing_more_is_written_after_an_error_in_front() -> None:
    done: list[int] = []
    begun, go = threading.Event(), threading.Event()

    def slowly(item: int) -> None:
        begun.set()
        go.wait(10)
        done.append(item)

    def user() -> None:
        with behind(slowly, 3) as put:
            put(1)
            put(2)
            begun.wait(10)
            threading.Timer(0.05, go.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        user()
    assert done == [1]
