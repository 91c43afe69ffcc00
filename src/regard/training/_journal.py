"""The reports of a run: as lines of JSON, in TensorBoard's format where that is installed, and as curves."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self, TextIO

from regard.core.errors import InputError
from regard.core.files import write_whole
from regard.training._ranks import Ranks
from regard.views import CurvePicture, Panel, Series

JOURNAL = "metrics.jsonl"

_MOST = 200
"""Points of a curve: of more steps, each is the mean of several."""

_LEFT_OUT = ("perplexity",)  # which says what the loss says
_SCORE = "valid_"


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
            # Steps after the checkpoint will be taken again, and write their lines again.
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
        self._file.flush()  # so that who watches the file sees every step
        self._on_report(report)
        if self._board is not None:
            self._board.file_writer.add_summary(_summary(report), report["step"])


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
        lines = (folder / JOURNAL).read_bytes().split(b"\n")  # bytes: a power cut leaves what is no text
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
    from torch.utils.tensorboard import SummaryWriter  # takes a second

    return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)


def _summary(report: Mapping[str, Any]) -> Any:
    """All numbers of a report as one event: `add_scalar` would write one for each."""
    from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]

    values = [Summary.Value(tag=name, simple_value=value) for name, value in report.items() if name != "step"]
    return Summary(value=values)


def curves(folders: Sequence[str | Path]) -> CurvePicture:
    """The curves of runs, beside each other.

    The loss while learning is the mean over some steps, at most 200 points a run; the loss on the texts to
    score on lies over it, with marks. Then come the other scores, and the learning rate.

    Args:
        folders: of runs, finished or not.

    Raises:
        InputError: one holds no run, or a run that has not done a step.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp(), "run")
        >>> place.mkdir()
        >>> _ = (place / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5, "lr": 0.1}\\n')
        >>> [panel.title for panel in curves([place]).panels]
        ['loss: thin while learning', 'learning rate']
    """
    if not folders:
        raise InputError("RUN... must name at least one folder of a run.")
    told = {name: list(read_journal(Path(each))) for name, each in _named(folders).items()}
    for name, reports in told.items():
        if not any("loss" in each for each in reports):
            raise InputError(f"{name} has not done a step yet: there is nothing to draw.")
    loss = [_series(name, reports, "loss") for name, reports in told.items()]
    scored = [_series(name, reports, f"{_SCORE}loss") for name, reports in told.items()]
    scored = [each for each in scored if each.points]
    title = "loss: thin while learning" + (", with marks on the texts to score on" if scored else "")
    panels = [Panel(title=title, series=loss + scored)]
    for key in _scores(told):
        series = [_series(name, reports, key) for name, reports in told.items()]
        title = key.removeprefix(_SCORE).replace("_", " ")
        panels.append(Panel(title=title, series=[each for each in series if each.points]))
    panels.append(
        Panel(title="learning rate", series=[_series(name, reports, "lr") for name, reports in told.items()])
    )
    return CurvePicture(title=" and ".join(told), along="steps", panels=panels)


def _named(folders: Sequence[str | Path]) -> dict[str, str | Path]:
    """Folders by their last names, or as they were given where these are not all different."""
    names = [Path(each).resolve().name for each in folders]
    return dict(zip(names if len(set(names)) == len(names) else map(str, folders), folders, strict=True))


def _scores(told: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    known = dict.fromkeys(key for reports in told.values() for each in reports for key in each)
    left_out = [f"{_SCORE}{name}" for name in ("loss", *_LEFT_OUT)]
    return [key for key in known if key.startswith(_SCORE) and key not in left_out]


def _series(name: str, reports: Sequence[Mapping[str, Any]], key: str) -> Series:
    points = [(float(each["step"]), float(each[key])) for each in reports if key in each]
    size = -(-len(points) // _MOST)  # rounded up
    if key.startswith(_SCORE) or size <= 1:
        return Series(name=name, points=points, is_marked=key.startswith(_SCORE))
    parts = [points[start : start + size] for start in range(0, len(points), size)]
    means = [(part[-1][0], sum(y for _, y in part) / len(part)) for part in parts]
    return Series(name=name, points=means)
