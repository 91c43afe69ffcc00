"""How many cores this process may use: those of its container or job, not those of the machine."""

import os
from pathlib import Path
from typing import Final

_CGROUP: Final = Path("/sys/fs/cgroup")


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
