"""The card of a model that was trained: what it learned from, how, and what it scores."""

import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from regard._version import __version__
from regard.training._about import about, network_told, tokenizer_told, valid_told
from regard.training._configuration import as_toml
from regard.training._run import Run

_CLASSES = {
    "language-model": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "replaced": "AutoModelForPreTraining",
    "sequence": "AutoModelForSequenceClassification",
    "token": "AutoModelForTokenClassification",
}


def card_of(run: Run, step: int, scores: Mapping[str, float]) -> str:
    """The README.md of a run's model, with front matter as model hubs read it.

    Args:
        run: the run.
        step: of the parameters that are written.
        scores: of these.
    """
    settings, sizes = run.settings, about(run)
    front = {"library_name": "transformers", "tags": ["regard", settings.objective]}
    if settings.start is not None:
        front["base_model"] = settings.start
    texts, tokens = sizes.train
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
            f"Of the parameters after step {step:,} of {run.steps:,} ({sizes.epochs:.3g} epochs in all).",
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
