"""A run's watched text as a page that goes through the steps: heads as they emerge."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from regard.core.errors import InputError
from regard.models import StackKind
from regard.tracing import Trace, page_record
from regard.training._journal import JOURNAL, read_journal
from regard.training._watch import FOLDER, step_of
from regard.views import MOST_MB, AttentionRecord, Page, plain, render_page

_MOST_WORDS = 48
_MOST_WEIGHTS = 1 << 20  # that are read to name the heads of a step
_BESIDE = 20_000  # bytes that a step takes beside q and k


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
    count = max(2, int(max_mb * 1e6 / each))
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
        texts = json.loads((run / "settings.json").read_text(encoding="utf-8"))["watch"]
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
    files = sorted((run / FOLDER / str(number)).glob("step-*.safetensors"), key=step_of)
    if len(files) < 2:
        raise InputError(f"run must have traces of two steps or more; {run / FOLDER} has {len(files)}.")
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
