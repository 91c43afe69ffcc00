"""The cores that this process may use, and packs on all of them.

Each core computes packs of its own, with one thread of torch's. Products of a few hundred rows on one core
each are faster than one product on all cores: nobody waits for the others at its end. And a pack's numbers
then do not depend on how many cores there are.
"""

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import torch

from regard.embedding._packs import Pack

_CGROUP: Final = Path("/sys/fs/cgroup")

_settings = threading.Lock()
_users = 0
_before = 0


class _OneThread:
    """torch computes with one thread while anybody is inside; who leaves gets back as many as there were.

    The number is one of each thread's own, and what a new thread begins with is what was set last, anywhere.
    So the first one in remembers it, for all who come while others are inside.
    """

    def __enter__(self) -> None:
        global _users, _before
        with _settings:
            if not _users:
                _before = torch.get_num_threads()
            _users += 1
            torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        global _users
        with _settings:
            _users -= 1
            torch.set_num_threads(_before)


def over(packs: Sequence[Pack], compute: Callable[[Pack], None], *, threads: int) -> None:
    """Call `compute` for every pack, on so many threads, in inference mode."""
    todo = iter(packs)
    lock = threading.Lock()
    failed: list[BaseException] = []

    def work() -> None:
        with _OneThread(), torch.inference_mode():
            while not failed:
                with lock:
                    pack = next(todo, None)
                if pack is None:
                    return
                try:
                    compute(pack)
                except BaseException as error:
                    failed.append(error)

    helpers = [threading.Thread(target=work, daemon=True) for _ in range(min(threads, len(packs)) - 1)]
    for helper in helpers:
        helper.start()
    try:
        work()
    except BaseException as error:
        failed.append(error)
    for helper in helpers:
        helper.join()
    if failed:
        raise failed[0]


def cores(root: Path = _CGROUP) -> int:
    """The cores that the process may run on, and that its control group grants time of; at least 1."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        allowed = os.cpu_count() or 1
    granted = _granted(root)
    return allowed if granted is None else max(1, min(allowed, int(granted)))


def _granted(root: Path) -> float | None:
    try:
        quota, period = (root / "cpu.max").read_text().split()
        share = int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # no group, or "max": no limit
        return None
    return share if share > 0 else None
