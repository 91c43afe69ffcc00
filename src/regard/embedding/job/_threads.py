"""Reading ahead and writing behind, each in a thread, with a bounded number of things on the way."""

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# Seconds after which a thread that waits looks whether it is still wanted.
_LOOK = 0.2


class Ahead(Generic[T]):
    """An iterator that runs in a thread, a few items ahead of who takes them.

    What it raises is raised where the item would have been taken.

    Example:
        >>> with Ahead(iter("abc"), 1) as items:
        ...     "".join(items)
        'abc'
    """

    def __init__(self, items: Iterator[T], depth: int) -> None:
        self._items = items
        self._queue: queue.Queue[tuple[str, Any]] = queue.Queue(depth)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="regard-reader")

    def __enter__(self) -> Iterator[T]:
        self._thread.start()
        return self._taken()

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        with suppress(queue.Empty):
            self._queue.get_nowait()  # it may wait for a place
        # Not for ever: a pipe may never give another byte, and a thread that waits for it cannot be ended.
        self._thread.join(timeout=2.0)

    def _taken(self) -> Iterator[T]:
        while True:
            kind, item = self._queue.get()
            if kind == "end":
                return
            if kind == "error":
                raise item
            yield item

    def _run(self) -> None:
        try:
            for item in self._items:
                if not self._put("item", item):
                    return
            self._put("end", None)
        except BaseException as error:
            self._put("error", error)
        finally:
            if isinstance(self._items, Generator):
                self._items.close()  # and with it the file that it reads

    def _put(self, kind: str, item: Any) -> bool:
        while not self._stop.is_set():
            try:
                self._queue.put((kind, item), timeout=_LOOK)
                return True
            except queue.Full:
                continue
        return False


class Behind(Generic[T]):
    """A function that is called in a thread, for a few items behind who hands them over.

    What it raises is raised on the next `put`, or at the end. Left by an error of its user, it calls
    nothing more.

    Example:
        >>> done = []
        >>> with Behind(done.append, 1) as behind:
        ...     behind.put(3)
        >>> done
        [3]
    """

    def __init__(self, call: Callable[[T], object], depth: int) -> None:
        self._call = call
        self._queue: queue.Queue[T | None] = queue.Queue(depth)
        self._error: BaseException | None = None
        self._dropped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="regard-writer")

    def __enter__(self) -> "Behind[T]":
        self._thread.start()
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None:
            self._dropped.set()
        self._queue.put(None)
        self._thread.join()
        if kind is None:
            self._check()

    def put(self, item: T) -> None:
        """Hands an item over; waits while there are too many."""
        self._check()
        self._queue.put(item)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            # After an error whatever comes is taken and dropped, so that nobody waits for a place.
            if self._error is not None or self._dropped.is_set():
                continue
            try:
                self._call(item)
            except BaseException as error:
                self._error = error
