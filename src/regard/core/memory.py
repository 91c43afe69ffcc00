"""How much memory there is, and giving back what is free."""

import ctypes
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import torch

from regard.core.errors import InputError


def human_bytes(count: int) -> str:
    """Bytes for people to read: "1.5 GiB"."""
    # The largest unit of which there is at least one.
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


CPU = torch.device("cpu")


def check_room(what: str, needed: float, device: torch.device, way_out: str) -> None:
    """Refuse what needs more memory than is free, before it is begun.

    Raises:
        InputError: with both numbers, and the way out.
    """
    # Unknown means allowed: only a certain lack is refused.
    free = free_bytes(device)
    if free is not None and needed > free:
        raise InputError(
            f"{what} needs {human_bytes(int(needed))} of memory, and {human_bytes(free)} are free; {way_out}."
        )


def has_room(needed: float, device: torch.device) -> bool:
    """Whether so many bytes are free, as far as anybody says."""
    free = free_bytes(device)
    return free is None or needed <= free


# Module constants, so that tests can put files of their own in their place.
_MEMINFO = Path("/proc/meminfo")
_OWN_GROUP = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")


def free_bytes(device: torch.device) -> int | None:
    """How much memory can still be taken on a device; None where nobody says.

    On Linux the smaller of what the kernel calls available and what the groups (of a container, or a batch
    system) that the process is in leave; on CUDA what the driver calls free, and what torch holds unused.
    """
    if device.type == "cuda":
        # Reserved but not allocated memory is torch's own, and free for its next tensor.
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if device.type != "cpu":
        return None
    # The tightest limit counts: the machine's, or that of a group around the process.
    limits = [each for each in (_available(), *_left_in_groups()) if each is not None]
    return min(limits, default=None)


def _available() -> int | None:
    try:
        for line in _MEMINFO.read_text().splitlines():
            # The kernel's estimate in kB, caches that it would give up included.
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _left_in_groups() -> Iterator[int]:
    """What each of the groups around the process leaves, of both versions of cgroups."""
    try:
        # Lines "number:controllers:path"; version 2 has one without controllers.
        lines = _OWN_GROUP.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, own = line.split(":", 2)
        if controllers not in ("", "memory") and "memory" not in controllers.split(","):
            continue
        top = _GROUPS / "memory" if controllers else _GROUPS
        # Version 1 and version 2 name the files differently.
        limit, used = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes")
            if controllers
            else ("memory.max", "memory.current")
        )
        # Inside a container the path is often that of the host, and its own limits lie at the top.
        group = top / own.lstrip("/")
        # Each group around it has a limit of its own.
        for level in (group, *group.parents):
            if level == _GROUPS.parent:
                break
            left = _left(level / limit, level / used, level / "memory.stat")
            if left is not None:
                yield left


def _left(limit: Path, used: Path, statistics: Path) -> int | None:
    try:
        most, taken = int(limit.read_text()), int(used.read_text())
        # Pages of files that nobody uses count as used, and are given up on demand.
        for line in statistics.read_text().splitlines():
            if line.startswith(("inactive_file ", "total_inactive_file ")):
                taken -= int(line.split()[1])
    except (OSError, ValueError):  # "max" is no limit
        # Nothing to read, or no limit.
        return None
    # More may be taken than the limit where it was lowered.
    return max(0, most - taken)


def trim_malloc() -> None:
    """Let the C library give its free pages back to the system, where it can."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    try:
        # glibc only; musl and macOS have none.
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # Windows has no library without a name
        return None
    trim.argtypes, trim.restype = (ctypes.c_size_t,), ctypes.c_int
    trimmer: Callable[[int], int] = trim
    return trimmer
