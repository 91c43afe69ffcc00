"""What a run reports on its way: lines of JSON, TensorBoard's format, curves, traces of watched texts."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Self, TextIO

import numpy as np
import torch
from torch import nn

from regard.checkpoints import Source
from regard.core.arguments import path_of, several
from regard.core.errors import InputError
from regard.core.files import write_whole
from regard.core.tensors import unit
from regard.models import Loaded, StackKind, Transformer
from regard.tracing import Trace, page_record, trace_text
from regard.training._folder import SETTINGS, WATCH
from regard.training._ranks import Ranks
from regard.training._run import Run
from regard.views import (
    MOST_MB,
    AttentionRecord,
    CurvePicture,
    Page,
    Panel,
    Series,
    Subject,
    plain,
    render_page,
)

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
            # Lines of a run that was killed: those after the last checkpoint go.
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
            # One event for each step.
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
            # A report has a step; anything else is no line of ours.
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
        >>> from pathlib import Path
        >>> from regard.training import curves
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp(), "run")
        >>> place.mkdir()
        >>> _ = (place / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5, "lr": 0.1}\\n')
        >>> [panel.title for panel in curves([place]).panels]
        ['loss: thin while learning', 'learning rate']
    """
    given = [path_of("folders", each) for each in several("folders", folders, "folders of runs")]
    if not given:
        raise InputError("RUN... must name at least one folder of a run.")
    # A name for each run, and its reports.
    runs = {name: list(read_journal(each)) for name, each in _named(given).items()}
    for name, reports in runs.items():
        if not any("loss" in each for each in reports):
            raise InputError(f"{name} has not done a step yet: there is nothing to draw.")
    # Loss while learning and on the texts to score on share a panel.
    loss = [_series(name, reports, "loss") for name, reports in runs.items()]
    scored = [_series(name, reports, f"{_SCORE}loss") for name, reports in runs.items()]
    scored = [each for each in scored if each.points]
    title = "loss: thin while learning" + (", with marks on the texts to score on" if scored else "")
    panels = [Panel(title=title, series=loss + scored)]
    # Each other score has a panel of its own.
    for key in _scores(runs):
        series = [_series(name, reports, key) for name, reports in runs.items()]
        title = key.removeprefix(_SCORE).replace("_", " ")
        panels.append(Panel(title=title, series=[each for each in series if each.points]))
    panels.append(
        Panel(title="learning rate", series=[_series(name, reports, "lr") for name, reports in runs.items()])
    )
    return CurvePicture(title=" and ".join(runs), along="steps", panels=panels)


def _named(folders: Sequence[Path]) -> dict[str, Path]:
    """Folders by their last names, or as they were given where these are not all different."""
    names = [each.resolve().name for each in folders]
    return dict(zip(names if len(set(names)) == len(names) else map(str, folders), folders, strict=True))


def _scores(told: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    known = dict.fromkeys(key for reports in told.values() for each in reports for key in each)
    left_out = [f"{_SCORE}{name}" for name in ("loss", *_LEFT_OUT)]
    return [key for key in known if key.startswith(_SCORE) and key not in left_out]


def _series(name: str, reports: Sequence[Mapping[str, Any]], key: str) -> Series:
    points = [(float(each["step"]), float(each[key])) for each in reports if key in each]
    # How many steps become one point.
    size = -(-len(points) // _MOST)  # rounded up
    if key.startswith(_SCORE) or size <= 1:
        return Series(name=name, points=points, is_marked=key.startswith(_SCORE))
    parts = [points[start : start + size] for start in range(0, len(points), size)]
    # At the last step of each part.
    means = [(part[-1][0], sum(y for _, y in part) / len(part)) for part in parts]
    return Series(name=name, points=means)


_COUNT = 60
"""Traces of a run without `watch_every`."""

_ARROW = " => "
"""Between what an encoder-decoder reads and what it writes, in a watched text."""

_MOST_WORDS = 48
"""Tokens of the longest text whose tokens the page compares with each other."""

_MOST_WEIGHTS = 1 << 20
"""Weights that are read to name the heads of a step."""

_BESIDE = 20_000
"""Bytes of the page that a step takes beside q and k."""


class Watch:
    """Traces the texts of `settings.watch` after the steps that are due.

    A trace is of the network in evaluation mode and draws no random number, so a run that is watched goes to
    the same parameters as one that is not. `RUN/watch/1/step-00000250.safetensors` is that of the first text
    after step 250: all of it, in the run's own type. What was traced after `step`, from which the run goes
    on, will be traced again.
    """

    def __init__(self, run: Run, module: nn.Module, step: int) -> None:
        texts = run.settings.watch
        self._run, self._module = run, module
        # Nothing to watch: no step is due.
        self._due = due_steps(run.steps, run.settings.watch_every) if texts else frozenset()
        if texts and run.ranks.is_first:
            for later in (run.folder / WATCH).glob("*/step-*.safetensors"):
                if step_of(later) > step:  # of steps that will be taken again
                    later.unlink()

    def look(self, step: int) -> None:
        """Trace the texts, if this step is due."""
        if step not in self._due:
            return
        ranks = self._run.ranks
        # All processes take part where parameters are divided.
        network = ranks.gathered(self._run.task.saved, self._module)
        ranks.together(lambda: self._write(network, step))

    def _write(self, network: Transformer, step: int) -> None:
        run = self._run
        # As if the network had been loaded now.
        loaded = Loaded(
            network=network,
            tokenizer=run.task.tokenizer,
            source=Source(name=f"{run.family}, {run.settings.objective}", folder=run.folder, kind="folder"),
            family=run.family,
            left_out=(),
        )
        network.eval()  # each step turns training mode on again
        for number, text in enumerate(run.settings.watch, start=1):
            folder = run.folder / WATCH / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            _traced(loaded, text).save(folder / f"step-{step:08}.safetensors")


def _traced(loaded: Loaded, text: str) -> Trace:
    """The trace of a text; of an encoder-decoder, "what it reads => what it writes"."""
    read, _, written = text.partition(_ARROW) if len(loaded.network.prefixes) == 2 else (text, "", "")
    try:
        return trace_text(loaded, read, target=written or None)
    except InputError as error:
        raise InputError(f"watch: {text!r} cannot be traced: {error}") from error


def due_steps(steps: int, every: int | None = None) -> frozenset[int]:
    """The steps after which texts are traced; 0 is before the first.

    Without `every` the i-th of 60 is steps x (i / 60)^2: a network changes most in the beginning, and heads
    that emerge late are still met in time.

    Example:
        >>> sorted(due_steps(2000))[:8], len(due_steps(2000))
        ([0, 1, 2, 5, 9, 14, 20, 27], 61)
        >>> sorted(due_steps(10, 4))
        [0, 4, 8, 10]
    """
    if every is not None:
        return frozenset({*range(0, steps, every), steps})
    # Close together at first, when most changes.
    return frozenset(round(steps * (place / _COUNT) ** 2) for place in range(_COUNT + 1))


def step_of(file: Path) -> int:
    """The step of a trace, by its name."""
    return int(file.stem.removeprefix("step-"))


def film(run: str | Path, text: int | str = 1, *, max_mb: float = MOST_MB) -> Page:
    """The page of a text that was watched while a network was trained: the attention of every traced step.

    It has the views of a trace with a slider over the steps, and before them one of its own: each head's
    picture, its name, and a number such as its entropy over the steps; the loss; how near each token's
    contextual embedding is to where it ends, cos(x_step, x_last).

    Args:
        run: the folder of a run with `watch`.
        text: which of its texts: the number, from 1, or the text itself.
        max_mb: what the page may take, in millions of bytes; of more, evenly spaced steps are left out,
            which the page says.

    Returns:
        The page, which opens on the last step: `film("run").write("film.html")`.

    Raises:
        InputError: a folder without traces, a text that was not watched, or attention that no page can draw.

    Example:
        >>> from regard.training import film
        >>> film("nowhere")
        Traceback (most recent call last):
        regard.core.errors.InputError: run must be the folder of a run with traces of its texts; ...
    """
    # One trace for each step.
    files = _files(path_of("run", run), text)
    first = Trace.open(files[0])
    each = _bytes(page_record(first))
    # As many steps as the page may hold, evenly chosen.
    count = max(2, int(max_mb * 1e6 / each))  # the first and the last step always
    places: Sequence[int] = range(len(files))
    if count < len(files):
        places = sorted({round(place) for place in np.linspace(0, len(files) - 1, count)})
    steps = [step_of(files[place]) for place in places]
    traces = [Trace.open(files[place]) for place in places]
    records = [page_record(trace, names=_MOST_WEIGHTS) for trace in traces]
    stacks: list[StackKind] = [kind for kind in ("encoder", "decoder") if getattr(first, kind) is not None]
    facts = {
        "steps": steps,
        "traced": len(files),
        "losses": _losses(Path(run), steps),
        "words": {kind: _words([trace.embeddings(-1, kind=kind) for trace in traces]) for kind in stacks},
    }
    return render_page(*records, subject=Subject("training", facts), max_mb=None)


def _files(run: Path, text: int | str) -> list[Path]:
    """The traces of a text, in the order of the steps."""
    try:
        texts = json.loads((run / SETTINGS).read_text(encoding="utf-8"))["watch"]
    except (OSError, ValueError, KeyError):
        texts = []
    if not texts:
        raise InputError(
            f"run must be the folder of a run with traces of its texts; got {str(run)!r}. Train with --watch."
        )
    # The text itself, or its number from 1.
    number = texts.index(text) + 1 if text in texts else int(text) if str(text).isdecimal() else 0
    if not 1 <= number <= len(texts):
        listed = ", ".join(f"{place} {each!r}" for place, each in enumerate(texts, start=1))
        raise InputError(f"{run} watched {listed}; got text {text!r}, which is not among them.")
    files = sorted((run / WATCH / str(number)).glob("step-*.safetensors"), key=step_of)
    if len(files) < 2:
        raise InputError(f"run must have traces of two steps or more; {run / WATCH} has {len(files)}.")
    return files


def _bytes(record: AttentionRecord) -> int:
    """About what a step takes in the page: q and k in 16 bits, as base64."""
    layers = [layer for of in record.layers.values() for layer in of]
    return _BESIDE + sum(8 * (layer.q.size + layer.k.size) // 3 for layer in layers)


def _losses(run: Path, steps: Sequence[int]) -> list[float | None]:
    """At each of these steps, the mean of the losses since the one before; None where there was none."""
    if not (run / JOURNAL).exists():
        return [None for _ in steps]
    told = [(line["step"], line["loss"]) for line in read_journal(run) if "loss" in line]
    # Steps between two traces.
    since = [[loss for at, loss in told if low < at <= high] for low, high in pairwise([-1, *steps])]
    return [round(fmean(some), 4) if some else None for some in since]


def _words(vectors: Sequence[torch.Tensor]) -> dict[str, Any]:
    """The cosine of each token to its last vector, step by step; of a short text also between tokens."""
    units = [unit(each.double()) for each in vectors]
    # (steps, tokens)
    to_end = torch.stack([(each * units[-1]).sum(dim=1) for each in units]).numpy()
    # (steps, tokens, tokens)
    between = torch.stack([each @ each.T for each in units]).numpy()
    few = between.shape[1] <= _MOST_WORDS
    return {"to_end": plain(to_end, 3), "between": plain(between, 3) if few else None}
