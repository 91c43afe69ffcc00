"""Whether files are on disk before they get the name under which others look for them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


class Disk:
    """Notes how much of each file was flushed, and what was renamed before it was.

    A power cut may keep a rename and lose what the file held. No test can cut it; the order can be seen.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.flushed: dict[int, int] = {}
        self.named: list[str] = []
        self.too_early: list[str] = []
        patch.setattr(os, "fsync", self._fsync)
        for name in ("rename", "replace"):
            patch.setattr(os, name, self._before(getattr(os, name)))

    def has(self, path: Path) -> bool:
        """Whether the whole of a file was flushed."""
        return self.flushed.get(path.stat().st_ino) == path.stat().st_size

    def _fsync(self, file: int) -> None:
        known = os.fstat(file)
        self.flushed[known.st_ino] = known.st_size

    def _before(self, rename):  # type: ignore[no-untyped-def]
        def renamed(source: Path, target: Path, **how: object) -> None:
            given = Path(source)
            # In a folder that waits for its name nobody looks: its own rename comes later, and looks at all.
            waits = any(each[0] == "." and each.endswith(".tmp") for each in Path(target).parts[:-1])
            inside = [] if given.is_symlink() or waits else [given, *given.rglob("*")]
            files = [each for each in inside if each.is_file()]
            self.too_early += [str(each) for each in files if not self.has(each)]
            self.named += [Path(target).name]
            rename(source, target, **how)

        return renamed
