"""What a run leaves: a model in a folder that regard and transformers load."""

import json
import platform
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from regard._version import __version__
from regard.core.json import read_object
from regard.models import load_checkpoint, write_checkpoint
from regard.training._about import amount, epochs, network_told, tokenizer_told, valid_told
from regard.training._checkpoints import Checkpoints, Progress
from regard.training._configuration import as_toml
from regard.training._evaluate import evaluate
from regard.training._run import Run, is_better

MODEL = "model"
_SCORES = "scores.json"

_CLASSES = {
    "language-model": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "replaced": "AutoModelForPreTraining",
    "sequence": "AutoModelForSequenceClassification",
    "token": "AutoModelForTokenClassification",
}


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
            link = Path(place, "link")
            link.symlink_to("whole")
            load_checkpoint(link)

    run.ranks.together(rehearse)


def _writer(run: Run, module: nn.Module, step: int, scores: Mapping[str, float]) -> Callable[[Path], None]:
    """What writes the present parameters into a new folder. All processes call this together."""
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
        bigger = run.task.is_bigger_better(run.best)
        if is_better(scores[run.best], progress.best, bigger=bigger):
            write_model(run, module, progress.step, scores)
    model = run.folder / MODEL
    kept: Any = read_object(model / _SCORES)
    step, signatures = kept.pop("step"), kept.pop("signatures", {})
    return Result(folder=run.folder, model=model, step=step, scores=kept, signatures=signatures)


def card_of(run: Run, step: int, scores: Mapping[str, float]) -> str:
    """The README.md of a run's model, with front matter as model hubs read it.

    Args:
        run: the run.
        step: of the parameters that are written.
        scores: of these.
    """
    settings = run.settings
    front = {"library_name": "transformers", "tags": ["regard", settings.objective]}
    if settings.start is not None:
        front["base_model"] = settings.start
    texts, tokens = amount(run.train)
    files = ", ".join(Path(name).name for name in (*settings.data.train, *settings.data.train_target))
    rows = [f"| {name.replace('_', ' ')} | {value:.4f} |" for name, value in scores.items()]
    table = ["| score | on the texts that were kept apart |", "|---|---|", *rows] if rows else ["None."]
    signed = [f"* {name}: `{signature}`" for name, signature in run.signatures.items()] if rows else []
    return "\n".join(
        [
            "---",
            *(f"{name}: {json.dumps(value)}" for name, value in front.items()),
            "---",
            "",
            f"# {run.folder.resolve().name}",
            "",
            f"Network: {network_told(run)}. Trained for `{settings.objective}` by regard.",
            "",
            "## Scores",
            "",
            *table,
            *(["", *signed] if signed else []),
            "",
            f"Of the parameters after step {step:,} of {run.steps:,} ({epochs(run):.3g} epochs in all).",
            "",
            "## Data",
            "",
            f"* To learn from: {texts:,} {'text' if texts == 1 else 'texts'}, {tokens:,} tokens, of {files}.",
            f"* To score on: {valid_told(run)}.",
            f"* Tokenizer: {tokenizer_told(run)}.",
            "",
            "Add the licence, the language and the limits of the texts before you share the model.",
            "",
            "## How to load it",
            "",
            "```python",
            "import regard",
            "",
            'model = regard.load("FOLDER")',
            "```",
            "",
            "```python",
            f"from transformers import {_class_of(run)}, AutoTokenizer",
            "",
            f'model = {_class_of(run)}.from_pretrained("FOLDER")',
            'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
            "```",
            "",
            "## Settings",
            "",
            "```toml",
            as_toml(settings).rstrip(),
            "```",
            "",
            f"regard {__version__}, torch {torch.__version__}, tokenizers {version('tokenizers')}, Python "
            f"{platform.python_version()}, on {run.ranks.world} x {run.ranks.device.type}.",
            "",
        ]
    )


def _class_of(run: Run) -> str:
    network: Any = run.task.saved
    if len(network.prefixes) == 2:
        return "AutoModelForSeq2SeqLM"
    return _CLASSES.get(network.config.head, "AutoModel")
