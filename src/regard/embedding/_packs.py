"""Which texts run together: those of equal length, up to a budget of tokens; and packs on all cores.

Nothing is ever padded, so a text's vectors are a function of the text: what runs beside it decides only the
order in which the processor adds.
"""

import math
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

# What one pack may have: more tokens do not make the matrix products faster, and fewer stay in the caches.
BATCH_TOKENS = 512

# Towards the end packs get smaller, so that no core is left alone with a large one: so small a part of what
# is left, and at last an even number of packs of one size, which two cores and four end together. Not by the
# cores that there are: the same packs give the same bits on any machine of a kind.
_PART = 8
_LAST_TOKENS = 256
_FEWEST_TOKENS = 128  # so few stay in one pack: halves of them would be slow

# Tokens squared, summed over the rows of a pack: what attention that is written out would need of memory.
_MOST_SCORES = 2**22


@dataclass(frozen=True, slots=True)
class Run:
    """Rows of equal length, by their numbers among the rows that are packed."""

    rows: tuple[int, ...]
    length: int


Pack = tuple[Run, ...]
"""What one call of an engine computes."""


def pack(
    lengths: Sequence[int], *, tokens: int = BATCH_TOKENS, mixed: bool = False, alone: bool = False
) -> list[Pack]:
    """Rows of these lengths into packs, the longest rows first; the last packs are smaller.

    A pack has at most `tokens`, but for one longer row; it ends before the row whose middle is beyond its
    share. A `mixed` engine takes runs of different lengths. For one thread `alone` no pack is made smaller.
    The packs follow from the arguments alone.
    """
    packs: list[Pack] = []
    runs: list[Run] = []
    rows: list[int] = []
    # Tokens in the pack, and their squares.
    held = scores = 0
    # Beside other threads every pack may be full: nobody waits at the end.
    left = math.inf if alone else sum(lengths)
    share, last = _share(left, tokens, 0)
    # sorted is stable: rows of equal length stay in the order of the texts.
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        length = lengths[row]
        other = bool(rows) and lengths[rows[0]] != length
        # Half of a row more is as near to the share as half of one less.
        full = held + length / 2 > share or held + length > tokens or scores + length * length > _MOST_SCORES
        if rows and (full or other):
            runs.append(Run(tuple(rows), lengths[rows[0]]))
            rows = []
            # Some engines take one length at a time.
            if full or not mixed:
                packs.append(tuple(runs))
                left -= held
                runs, held, scores = [], 0, 0
                share, last = _share(left, tokens, last)
        rows.append(row)
        held += length
        scores += length * length
    if rows:
        runs.append(Run(tuple(rows), lengths[rows[0]]))
    if runs:
        packs.append(tuple(runs))
    return packs


def _share(left: float, tokens: int, last: int) -> tuple[float, int]:
    """What the next pack should have of the tokens left, and how many the last packs still are, it included.

    `last` is that number of the pack before; 0 while packs are an eighth of what is left.
    """
    # Far from the end: a part of what is left.
    if left >= _PART * _LAST_TOKENS:
        return min(tokens, left / _PART), 0
    if last:
        last = max(1, last - 1)
    else:
        # An even number of them, for two cores or four.
        last = 2 * math.ceil(left / (2 * _LAST_TOKENS)) if left >= _FEWEST_TOKENS else 1
    return left / last, last


_CGROUP: Final = Path("/sys/fs/cgroup")

_settings = threading.Lock()
_users = 0
_before = 0


class _OneThread:
    """torch computes with one thread while anybody is inside; whoever leaves gets back the number of before.

    Each thread has its own number, and a new thread begins with what was set last, anywhere. So the first one
    in remembers it, for all who come while others are inside.
    """

    def __enter__(self) -> None:
        global _users, _before
        with _settings:
            # Everybody asks: a thread takes over what was set last when it first asks, which might be later.
            number = torch.get_num_threads()
            if not _users:
                # The first to enter notes it, for all who come while others are inside.
                _before = number
            _users += 1
            # Each thread sets it for itself: torch keeps the number by thread.
            torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        global _users
        with _settings:
            _users -= 1
            torch.set_num_threads(_before)


def over(packs: Sequence[Pack], compute: Callable[[Pack], None], *, threads: int) -> None:
    """Call `compute` for every pack, on `threads` threads, in inference mode."""
    todo = iter(packs)
    lock = threading.Lock()
    failed: list[BaseException] = []

    def work() -> None:
        with _OneThread(), torch.inference_mode():
            while not failed:
                with lock:
                    # Packs are taken, not dealt out: a slow core takes fewer.
                    one = next(todo, None)
                if one is None:
                    return
                try:
                    compute(one)
                except BaseException as error:  # an interrupt too: the other threads stop where one failed
                    failed.append(error)

    # This thread works too.
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
    """How many cores the process may run on and its control group grants time on; at least 1."""
    try:
        # Cores that the process may run on.
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        allowed = os.cpu_count() or 1
    granted = _granted(root)
    return allowed if granted is None else max(1, min(allowed, int(granted)))


def _granted(root: Path) -> float | None:
    try:
        # Microseconds of computing in each period.
        quota, period = (root / "cpu.max").read_text().split()
        share = int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # no group, or "max": no limit
        return None
    return share if share > 0 else None
