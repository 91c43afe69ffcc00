"""What a run has told: a line of JSON for each report, and TensorBoard's format where that is installed."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self, TextIO

from regard.core.errors import InputError
from regard.core.files import write_whole
from regard.training._ranks import Ranks

JOURNAL = "metrics.jsonl"


class Journal:
    """The reports of a run, appended as they come; the first process keeps it, the others say nothing.

    Args:
        folder: of the run.
        step: the step that the run goes on from: later reports are of steps that will be done again, and are
            taken back.
        on_report: gets each report too.
        ranks: the processes.
        say: is told which lines cannot be read; they are left out, and the run goes on.
    """

    def __init__(
        self,
        folder: Path,
        *,
        step: int,
        on_report: Callable[[Mapping[str, Any]], None],
        ranks: Ranks,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._file: TextIO | None = None
        self._board: Any = None
        self._on_report = on_report
        if ranks.is_first:
            path = folder / JOURNAL
            kept = []
            for number, line in _lines(folder) if path.exists() else ():
                if line is None:
                    say(f"line {number} of {path} cannot be read and is left out")
                elif line["step"] <= step:
                    kept.append(line)
            write_whole(path, "".join(json.dumps(line) + "\n" for line in kept).encode())
            self._file = path.open("a", encoding="utf-8")
            self._board = _board(folder, step)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()
        if self._board is not None:
            self._board.close()

    def to_disk(self) -> None:
        """Wait until all that was written is on disk: a checkpoint comes after the lines of its steps."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def write(self, report: Mapping[str, Any]) -> None:
        """One line; "step" is in it."""
        if self._file is None:
            return
        self._file.write(json.dumps(report) + "\n")
        self._file.flush()
        self._on_report(report)
        if self._board is not None:
            for name, value in report.items():
                if name != "step":
                    self._board.add_scalar(name, value, report["step"])


def read_journal(folder: Path) -> Iterator[dict[str, Any]]:
    """The reports of a run. A last line that was cut short by a crash is left out.

    Raises:
        InputError: there is none, or a line of it cannot be read.
    """
    for number, line in _lines(folder):
        if line is None:
            raise InputError(
                f"line {number} of {folder / JOURNAL} cannot be read; remove it, or go on with the run."
            )
        yield line


def _lines(folder: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Each whole line with its number, from 1; None for one that is no report."""
    try:
        lines = (folder / JOURNAL).read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(
            f"{folder} must be the folder of a run, with {JOURNAL}: {error.strerror}."
        ) from error
    for number, line in enumerate(lines[:-1], 1):  # a whole line ends with a line break
        try:
            report = json.loads(line)
            yield number, report if isinstance(report["step"], int) else None
        except (ValueError, TypeError, KeyError, RecursionError):
            yield number, None


def _board(folder: Path, step: int) -> Any:
    if find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
