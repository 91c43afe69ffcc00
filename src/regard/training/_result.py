"""What a run leaves: a model in a folder that regard and transformers load, and its card."""

import json
import os
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from regard._version import __version__
from regard.core.files import read_object
from regard.models import load_checkpoint, write_checkpoint
from regard.training._checkpoints import Checkpoints, RunState
from regard.training._configuration import AnySettings, as_toml
from regard.training._feed import Feed
from regard.training._folder import MODEL
from regard.training._run import Run
from regard.training._scoring import evaluate
from regard.training._settings import WordSettings

_CLASSES = {
    "language-model": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "replaced": "AutoModelForPreTraining",
    "sequence": "AutoModelForSequenceClassification",
    "token": "AutoModelForTokenClassification",
}
"""The class of `transformers` that reads a model, by what its head is for."""


def describe(run: Run) -> list[str]:
    """Network, tokenizer, texts and steps, a line each, before the first step."""
    # Nobody chose the length: the line says how to.
    is_default = run.settings.steps is None and run.settings.epochs is None
    default = " (--steps and --epochs say otherwise)" if is_default else ""
    return [
        f"network: {_network(run)}",
        f"tokenizer: {_tokenizer(run)}",
        f"to learn from: {_amount(run.train)}",
        f"to score on: {_valid(run)}",
        f"{run.steps:,} steps{default}, {run.epochs:{',.0f' if run.epochs >= 100 else '.3g'}} epochs",
    ]


def _card_of(run: Run, step: int, scores: Mapping[str, float]) -> str:
    """The card of a run's model after a step, with the scores of its parameters then."""
    settings = run.settings
    files = ", ".join(Path(name).name for name in (*settings.data.train, *settings.data.train_target))
    # A table of scores, if any were made.
    rows = [f"| {name.replace('_', ' ')} | {value:.4f} |" for name, value in scores.items()]
    table = ["| score | on the texts that were kept apart |", "|---|---|", *rows] if rows else ["None."]
    signed = [f"* {name}: `{signature}`" for name, signature in run.signatures.items()] if rows else []
    kind = _class_of(run)
    return _card(
        settings,
        {"library_name": "transformers", "base_model": settings.start},
        run.folder,
        [
            f"Network: {_network(run)}. Trained for `{settings.objective}` by regard.",
            "",
            "## Scores",
            "",
            *table,
            *(["", *signed] if signed else []),
            "",
            f"Of the parameters after step {step:,} of {run.steps:,} ({run.epochs:.3g} epochs in all).",
            "",
            "## Data",
            "",
            f"* To learn from: {_amount(run.train)}, of {files}.",
            f"* To score on: {_valid(run)}.",
            f"* Tokenizer: {_tokenizer(run)}.",
            "",
            "Add the licence, the language and the limits of the texts before you share the model.",
        ],
        [
            'import regard\n\nmodel = regard.load("FOLDER")',
            f"from transformers import {kind}, AutoTokenizer\n\n"
            f'model = {kind}.from_pretrained("FOLDER")\n'
            'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
        ],
        f"regard {__version__}, torch {torch.__version__}, tokenizers {version('tokenizers')}, Python "
        f"{platform.python_version()}, on {run.ranks.world} x {run.ranks.device.type}.",
    )


def word_card_of(settings: WordSettings, folder: Path, *, words: int, read: int) -> str:
    """The card of vectors: of `words` words, learned from texts of `read` words."""
    files = ", ".join(Path(name).name for name in settings.data.train)
    what = f"{settings.architecture} of {settings.objective}"
    return _card(
        settings,
        {},
        folder,
        [
            f"{words:,} words with static embeddings of {settings.size} numbers, by the {what}, learned from",
            f"{read:,} words of {files} in {settings.epochs} epochs.",
            "",
            "Add the licence, the language and the limits of the texts before you share them.",
        ],
        [
            "from regard.words import WordVectors\n\n"
            'vectors = WordVectors.open("FOLDER/vectors.safetensors")',
            "from gensim.models import KeyedVectors\n\n"
            'vectors = KeyedVectors.load_word2vec_format("FOLDER/vectors.txt")',
        ],
        f"regard {__version__}, numpy {np.__version__}.",
    )


def _card(
    settings: AnySettings,
    front: Mapping[str, Any],
    folder: Path,
    about: Sequence[str],
    loading: Sequence[str],
    made_with: str,
) -> str:
    """Front matter as model hubs read it, then `about`, code to load it, and the settings."""
    front = {**front, "tags": ["regard", settings.objective]}
    return "\n".join(
        [
            "---",
            *(f"{name}: {json.dumps(value)}" for name, value in front.items() if value is not None),
            "---",
            "",
            f"# {folder.resolve().name}",
            "",
            *about,
            "",
            "## How to load it",
            "",
            *(f"```python\n{code}\n```\n" for code in loading),
            "## Settings",
            "",
            f"```toml\n{as_toml(settings).rstrip()}\n```",
            "",
            made_with,
            "",
        ]
    )


def _network(run: Run) -> str:
    """The network and its size."""
    config: Any = run.task.saved.config
    size = f"{sum(each.numel() for each in run.task.saved.parameters()):,} parameters"
    # Sizes are the checkpoint's.
    if run.settings.start is not None:
        return f"{run.settings.start} ({run.family}), {size}"
    shape = f"{config.num_layers} layers of {config.num_heads} heads, d_model {config.d_model}"
    origin = _origin(run)
    whose = f"a new {run.family}" if origin is None else f"a {run.family} with layers of {origin}"
    return f"{whose}, {size}: {shape}"


def _tokenizer(run: Run) -> str:
    """The tokenizer and its size."""
    settings, entries = run.settings, f"{run.task.tokenizer.vocab_size:,} entries"
    # In the order in which `make_tokenizer` chooses.
    if settings.tokenizer.path is not None:
        return f"{settings.tokenizer.path}, {entries}"
    origin = _origin(run)
    if origin is not None:
        return f"that of {origin}, {entries}"
    return f"{settings.tokenizer.kind or run.task.tokenizer_kind}, learned from the texts, {entries}"


def _valid(run: Run) -> str:
    """The texts to score on, and their number."""
    data = run.settings.data
    if run.valid is None:
        return "nothing (data.valid_share is 0)"
    size = _amount(run.valid)
    if data.valid:
        return f"{size} of {', '.join(data.valid)}"
    share = f"{100 * data.valid_share:.3g} %"
    where = f"the last {share} of each file" if run.unit == "file" else f"{share} of them, drawn by the seed"
    return f"{size}: {where}"


def _amount(feed: Feed) -> str:
    texts, tokens = feed.amount()
    return f"{texts:,} {'text' if texts == 1 else 'texts'}, {tokens:,} tokens"


def _origin(run: Run) -> str | None:
    """The checkpoint whose tokenizer the run has: where it starts, or its teacher."""
    return run.task.origin(run.settings.start, run.settings.task)


def _class_of(run: Run) -> str:
    network: Any = run.task.saved
    # transformers has one class for all of these.
    if len(network.prefixes) == 2:
        return "AutoModelForSeq2SeqLM"
    return _CLASSES.get(network.config.head, "AutoModel")


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
            # What fails here would fail after days of training.
            link.symlink_to("whole", target_is_directory=True)
            load_checkpoint(link)

    run.ranks.together(rehearse)


def _writer(run: Run, module: nn.Module, step: int, scores: Mapping[str, float]) -> Callable[[Path], None]:
    """What writes the present parameters into a new folder. All processes call this together."""
    # Gathered here, where all processes are: only the first one writes.
    network = run.ranks.gathered(run.task.saved, module)
    # Such as ELECTRA's generator.
    beside = {name: run.ranks.gathered(each, module) for name, each in run.task.beside.items()}
    signatures = {"signatures": run.signatures} if scores and run.signatures else {}

    def write(target: Path) -> None:
        write_checkpoint(network, target, tokenizer=run.task.tokenizer, card=_card_of(run, step, scores))
        # In folders of their own within the model's.
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
        # The model is a link to a folder in "models", so that it is replaced in one step.
        above.mkdir(exist_ok=True)
        _remove_others(above, link)  # of a run that was killed here
        target = above / f"step-{step}"
        if target.exists():  # the run was killed after this, and did the step again
            target = above / f"step-{step}-again"
        write_into(target)
        _point(link, target)
        _remove_others(above, link)

    run.ranks.together(write)


def _point(link: Path, target: Path) -> None:
    """Have the link lead to this folder: a link is replaced in one step, unlike a folder."""
    other = link.with_name(f".{link.name}.tmp")
    if os.name == "nt":  # where a link to a folder goes like a folder, and nothing takes its place
        for each in (other, link):
            with suppress(FileNotFoundError):
                each.rmdir()
    # The new link under another name, then renamed over the old one.
    other.unlink(missing_ok=True)
    other.symlink_to(target.relative_to(link.parent), target_is_directory=True)
    other.replace(link)


def _remove_others(above: Path, link: Path) -> None:
    """Remove every model but the one that the link leads to."""
    for each in above.iterdir():
        if each.resolve() != link.resolve():
            shutil.rmtree(each)


def finish(run: Run, module: nn.Module, checkpoints: Checkpoints, progress: RunState) -> Result:
    """The model of a run that is over: the best, or the mean of the last checkpoints if that is better."""
    # Nothing to compare by: the last parameters are the model.
    if run.valid is None:
        write_model(run, module, progress.step, {})
    elif run.settings.average > 1:
        # The mean must be better than the best single one.
        checkpoints.load_mean(run.settings.average, module)
        scores = evaluate(module, run, run.valid)
        if run.is_better(scores[run.best], progress.best):
            write_model(run, module, progress.step, scores)
    model = run.folder / MODEL
    # From the file: the best model may have been written before the run was last killed.
    kept: Any = read_object(model / _SCORES)
    step, signatures = kept.pop("step"), kept.pop("signatures", {})
    return Result(folder=run.folder, model=model, step=step, scores=kept, signatures=signatures)
