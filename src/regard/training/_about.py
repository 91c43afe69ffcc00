"""What a run is, in words and numbers: for who starts it, and for the card of its model."""

from typing import Any

from regard.training._feed import Feed
from regard.training._run import Run


def told(run: Run) -> list[str]:
    """What somebody should know before the first step, a line each."""
    texts, tokens = amount(run.train)
    lines = [
        f"network: {network_told(run)}",
        f"tokenizer: {tokenizer_told(run)}",
        f"to learn from: {texts:,} {_texts(texts)}, {tokens:,} tokens",
        f"to score on: {valid_told(run)}",
    ]
    is_default = run.settings.steps is None and run.settings.epochs is None
    default = " (--steps and --epochs say otherwise)" if is_default else ""
    read = epochs(run)
    lines.append(f"{run.steps:,} steps{default}, {read:{',.0f' if read >= 100 else '.3g'}} epochs")
    return lines


def epochs(run: Run) -> float:
    """How often all of the data is read."""
    return run.steps / max(1, len(run.train.steps(0)))


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
    texts, tokens = amount(run.valid)
    size = f"{texts:,} {_texts(texts)}, {tokens:,} tokens"
    if data.valid:
        return f"{size} of {', '.join(data.valid)}"
    share = f"{100 * data.valid_share:.3g} %"
    where = f"the last {share} of each file" if run.unit == "file" else f"{share} of them, drawn by the seed"
    return f"{size}: {where}"


def amount(feed: Feed) -> tuple[int, int]:
    """The texts and the tokens of a set."""
    examples, columns = feed.form.examples, feed.form.columns
    return len(examples), sum(int(examples.lengths(name).sum()) for name in columns)


def _origin(run: Run) -> str | None:
    """The checkpoint whose tokenizer the run has: where it starts, or its teacher."""
    return run.task.origin(run.settings.start, run.settings.task)


def _texts(count: int) -> str:
    return "text" if count == 1 else "texts"
