"""Traces of a few texts while a network is trained, and their page: heads as they emerge."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.checkpoints import Source
from regard.core.errors import InputError
from regard.models import Loaded, StackKind, Transformer
from regard.tracing import Trace, page_record, trace_text
from regard.training._folder import SETTINGS, WATCH
from regard.training._journal import JOURNAL, read_journal
from regard.training._run import Run
from regard.views import MOST_MB, AttentionRecord, Page, plain, render_page

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
        network = ranks.gathered(self._run.task.saved, self._module)
        ranks.together(lambda: self._write(network, step))

    def _write(self, network: Transformer, step: int) -> None:
        run = self._run
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
        >>> film("nowhere")
        Traceback (most recent call last):
        regard.core.errors.InputError: run must be the folder of a run with traces of its texts; ...
    """
    files = _files(Path(run), text)
    first = Trace.open(files[0])
    each = _bytes(page_record(first))
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
    return render_page(*records, training=facts, max_mb=None)


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
    number = texts.index(text) + 1 if text in texts else int(text) if str(text).isdecimal() else 0
    if not 1 <= number <= len(texts):
        listed = ", ".join(f"{place} {each!r}" for place, each in enumerate(texts, start=1))
        raise InputError(f"{run} watched {listed}; got text {text!r}, which is none of them.")
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
    since = [[loss for at, loss in told if low < at <= high] for low, high in pairwise([-1, *steps])]
    return [round(fmean(some), 4) if some else None for some in since]


def _words(vectors: Sequence[torch.Tensor]) -> dict[str, Any]:
    """Of each step the cosine of every token to its last vector, and of a short text between tokens."""
    units = [torch.nn.functional.normalize(each.double(), dim=1) for each in vectors]
    to_end = torch.stack([(each * units[-1]).sum(dim=1) for each in units]).numpy()
    between = torch.stack([each @ each.T for each in units]).numpy()
    few = between.shape[1] <= _MOST_WORDS
    return {"to_end": plain(to_end, 3), "between": plain(between, 3) if few else None}
