"""Reading ahead and writing behind, each in a thread, with a bounded number of things on the way."""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def ahead(items: Generator[T], depth: int) -> Iterator[Iterator[T]]:
    """An iterator that runs in a thread, a few items ahead of its reader.

    What it raises is raised where the item would have been taken. It is closed at the end.
    """

    def taken() -> Iterator[T]:
        waiting = deque(pool.submit(list, islice(items, 1)) for _ in range(depth))
        while found := waiting.popleft().result():
            waiting.append(pool.submit(list, islice(items, 1)))
            yield found[0]

    with ThreadPoolExecutor(1, "regard-reader") as pool:
        try:
            yield taken()
        finally:
            pool.shutdown(cancel_futures=True)
            items.close()  # and with it the file that it reads


@contextmanager
def behind(call: Callable[[T], object], depth: int) -> Iterator[Callable[[T], None]]:
    """A function that is called in a thread, a few items behind its caller.

    What it raises is raised by a later call, or at the end. After that, or after an error of the caller, it
    is not called again.
    """
    waiting: deque[Future[None]] = deque()
    failed = False

    def guarded(item: T) -> None:
        nonlocal failed
        if not failed:
            failed = True
            call(item)
            failed = False

    def put(item: T) -> None:
        waiting.append(pool.submit(guarded, item))
        while waiting and (len(waiting) > depth or waiting[0].done()):
            waiting.popleft().result()

    with ThreadPoolExecutor(1, "regard-writer") as pool:
        try:
            yield put
            while waiting:
                waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
