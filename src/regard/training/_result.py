"""What a run leaves: a model in a folder that regard and transformers load."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from regard.core.json import read_object
from regard.models import load_checkpoint, write_checkpoint
from regard.training._card import card_of
from regard.training._checkpoints import Checkpoints, Progress
from regard.training._folder import MODEL
from regard.training._run import Run
from regard.training._scoring import evaluate

_SCORES = "scores.json"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a run.

    Args:
        folder: of the run.
        model: of the model, in the Hugging Face layout.
        step: steps done.
        scores: of the model, on the validation set; {} without one.
        signatures: how some of them were computed, in the notation that papers quote, and over how many
            texts.
    """

    folder: Path
    model: Path
    step: int
    scores: Mapping[str, float] = field(default_factory=dict)
    signatures: Mapping[str, str] = field(default_factory=dict)


def check_model(run: Run, module: nn.Module) -> None:
    """Write the model as it is before the first step, read it, and remove it.

    What a trained model could not be written or read for ends the run here, and not after its steps.
    """
    write = _writer(run, module, 0, {})

    def rehearse() -> None:
        with TemporaryDirectory(prefix=".regard-", suffix=".tmp", dir=run.folder) as place:
            write(Path(place, "whole"))
            # A link too: there are file systems without.
            link = Path(place, "link")
            link.symlink_to("whole")
            load_checkpoint(link)

    run.ranks.together(rehearse)


def _writer(run: Run, module: nn.Module, step: int, scores: Mapping[str, float]) -> Callable[[Path], None]:
    """What writes the present parameters into a new folder. All processes call this together."""
    # Gathered here, where all processes are: only the first one writes.
    network = run.ranks.gathered(run.task.saved, module)
    beside = {name: run.ranks.gathered(each, module) for name, each in run.task.beside.items()}
    signatures = {"signatures": run.signatures} if scores and run.signatures else {}

    def write(target: Path) -> None:
        write_checkpoint(network, target, tokenizer=run.task.tokenizer, card=card_of(run, step, scores))
        for name, each in beside.items():
            write_checkpoint(each, target / name, tokenizer=run.task.tokenizer)
        (target / _SCORES).write_text(json.dumps({"step": step, **scores, **signatures}), encoding="utf-8")

    return write


def write_model(run: Run, module: nn.Module, step: int, scores: Mapping[str, float]) -> None:
    """Write the present parameters as the model of the run, in place of the one before.

    `model` is a link to a folder of `models`, so that there is a whole one at every moment.
    """
    write_into = _writer(run, module, step, scores)
    above, link = run.folder / "models", run.folder / MODEL

    def write() -> None:
        above.mkdir(exist_ok=True)
        _remove_others(above, link)  # of a run that was killed here
        target = above / f"step-{step}"
        if target.exists():  # the run was killed after this, and did the step again
            target = above / f"step-{step}-again"
        write_into(target)
        # A link is replaced in one step, unlike a folder.
        other = run.folder / f".{MODEL}.tmp"
        other.unlink(missing_ok=True)
        other.symlink_to(target.relative_to(run.folder))
        other.replace(link)
        _remove_others(above, link)

    run.ranks.together(write)


def _remove_others(above: Path, link: Path) -> None:
    """Remove every model but the one that the link leads to."""
    for each in above.iterdir():
        if each.resolve() != link.resolve():
            shutil.rmtree(each)


def finish(run: Run, module: nn.Module, checkpoints: Checkpoints, progress: Progress) -> Result:
    """The model of a run that is over: the best, or the mean of the last checkpoints if that is better."""
    if run.valid is None:
        write_model(run, module, progress.step, {})
    elif run.settings.average > 1:
        checkpoints.load_mean(run.settings.average, module)
        scores = evaluate(module, run, run.valid)
        if run.is_better(scores[run.best], progress.best):
            write_model(run, module, progress.step, scores)
    model = run.folder / MODEL
    # From the file: the best model may have been written before the run was last killed.
    kept: Any = read_object(model / _SCORES)
    step, signatures = kept.pop("step"), kept.pop("signatures", {})
    return Result(folder=run.folder, model=model, step=step, scores=kept, signatures=signatures)
