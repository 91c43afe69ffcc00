"""What a run is, in words and numbers: for who starts it, and for the card of its model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regard.training._feed import Feed
from regard.training._run import Run


@dataclass(frozen=True, kw_only=True)
class About:
    """The sizes of a run.

    Attributes:
        parameters: numbers of the network that is written, shared ones once.
        vocabulary: entries of the tokenizer.
        train, valid: texts and tokens to learn from and to score on; None for none.
        steps: in all.
        epochs: how often all of the data is read.
    """

    parameters: int
    vocabulary: int
    train: tuple[int, int]
    valid: tuple[int, int] | None
    steps: int
    epochs: float


def about(run: Run) -> About:
    """The sizes of a run."""
    network = run.task.saved
    return About(
        parameters=sum(each.numel() for each in network.parameters()),
        vocabulary=run.task.tokenizer.vocab_size,
        train=_amount(run.train),
        valid=None if run.valid is None else _amount(run.valid),
        steps=run.steps,
        epochs=run.steps / max(1, len(run.train.steps(0))),
    )


def told(run: Run) -> list[str]:
    """What somebody should know before the first step, a line each."""
    found = about(run)
    texts, tokens = found.train
    lines = [
        f"network: {network_told(run)}",
        f"tokenizer: {tokenizer_told(run)}",
        f"to learn from: {texts:,} {_texts(texts)}, {tokens:,} tokens",
        f"to score on: {valid_told(run)}",
    ]
    default = " (--steps and --epochs say otherwise)" if _is_default(run) else ""
    epochs = f"{found.epochs:,.0f}" if found.epochs >= 100 else f"{found.epochs:.3g}"
    lines.append(f"{found.steps:,} steps{default}, {epochs} epochs")
    return lines


def network_told(run: Run) -> str:
    """Which network, and how large."""
    config: Any = run.task.saved.config
    size = f"{sum(each.numel() for each in run.task.saved.parameters()):,} parameters"
    if run.settings.start is not None:
        return f"{run.settings.start} ({run.family}), {size}"
    shape = f"{config.num_layers} layers of {config.num_heads} heads, d_model {config.d_model}"
    origin = _origin(run)
    whose = f"a new {run.family}" if origin is None else f"a {run.family} with layers of {origin}"
    return f"{whose}, {size}: {shape}"


def tokenizer_told(run: Run) -> str:
    """Which tokenizer, and how large."""
    settings, entries = run.settings, f"{run.task.tokenizer.vocab_size:,} entries"
    if settings.tokenizer.path is not None:
        return f"{settings.tokenizer.path}, {entries}"
    origin = _origin(run)
    if origin is not None:
        return f"that of {origin}, {entries}"
    return f"{settings.tokenizer.kind or run.task.tokenizer_kind}, learned from the texts, {entries}"


def valid_told(run: Run) -> str:
    """Which texts are scored on, and how many."""
    data = run.settings.data
    if run.valid is None:
        return "nothing (data.valid_share is 0)"
    texts, tokens = _amount(run.valid)
    size = f"{texts:,} {_texts(texts)}, {tokens:,} tokens"
    if data.valid:
        return f"{size} of {', '.join(data.valid)}"
    share = f"{100 * data.valid_share:.3g} %"
    where = f"the last {share} of each file" if run.unit == "file" else f"{share} of them, drawn by the seed"
    return f"{size}: {where}"


def scores_told(scores: Mapping[str, float]) -> str:
    """Scores in words, such as "loss 1.7500, perplexity 5.7546"."""
    return ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in scores.items())


def _amount(feed: Feed) -> tuple[int, int]:
    examples, columns = feed.form.examples, feed.form.columns
    return len(examples), sum(int(examples.lengths(name).sum()) for name in columns)


def _origin(run: Run) -> str | None:
    """The checkpoint whose tokenizer the run has: where it starts, or its teacher."""
    return run.task.origin(run.settings.start, run.settings.task)


def _texts(count: int) -> str:
    return "text" if count == 1 else "texts"


def _is_default(run: Run) -> bool:
    return run.settings.steps is None and run.settings.epochs is None
