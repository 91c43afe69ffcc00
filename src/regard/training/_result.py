"""What a run leaves: a model in a folder that regard and transformers load."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from regard.models import write_checkpoint
from regard.training._checkpoints import Checkpoints, Progress
from regard.training._evaluate import evaluate
from regard.training._run import Run, is_better

MODEL = "model"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a run.

    Args:
        folder: of the run.
        model: of the model, in the Hugging Face layout.
        step: steps done.
        scores: of the model, on the validation set; {} without one.
    """

    folder: Path
    model: Path
    step: int
    scores: Mapping[str, float] = field(default_factory=dict)


def write_model(run: Run, module: nn.Module, step: int, scores: Mapping[str, float]) -> None:
    """Write the present parameters as the model of the run, in place of the one before.

    `model` is a link to a folder of `models`, so that there is a whole one at every moment.
    """
    network = run.ranks.gathered(run.task.saved, module)
    if run.ranks.is_first:
        above = run.folder / "models"
        above.mkdir(exist_ok=True)
        target = above / f"step-{step}"
        shutil.rmtree(target, ignore_errors=True)
        write_checkpoint(network, target, tokenizer=run.task.tokenizer)
        (target / "scores.json").write_text(json.dumps({"step": step, **scores}), encoding="utf-8")
        link = run.folder / f".{MODEL}.tmp"
        link.unlink(missing_ok=True)
        link.symlink_to(target.relative_to(run.folder))
        link.replace(run.folder / MODEL)
        for other in above.iterdir():
            if other != target:
                shutil.rmtree(other)
    run.ranks.wait()


def finish(run: Run, module: nn.Module, checkpoints: Checkpoints, progress: Progress) -> Result:
    """The model of a run that is over: the best, or the mean of the last checkpoints if that is better."""
    if run.valid is None:
        write_model(run, module, progress.step, {})
    elif run.settings.average > 1:
        checkpoints.load_mean(run.settings.average, module)
        scores = evaluate(module, run, run.valid)
        bigger = run.task.is_bigger_better(run.best)
        if is_better(scores[run.best], progress.best, bigger=bigger):
            write_model(run, module, progress.step, scores)
    model = run.folder / MODEL
    kept: dict[str, Any] = json.loads((model / "scores.json").read_text(encoding="utf-8"))
    return Result(folder=run.folder, model=model, step=kept.pop("step"), scores=kept)
