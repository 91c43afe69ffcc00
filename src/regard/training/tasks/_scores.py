"""From sums over a set to scores."""

import math
from collections.abc import Mapping, Sequence
from typing import Any


def of_language_model(sums: Mapping[str, Any]) -> dict[str, float]:
    """Loss in nats a target, perplexity, the share guessed right; where bytes are known, bits a byte.

        perplexity    = exp(loss)
        bits a byte   = (sum of the losses) / ln 2 / bytes of the texts in UTF-8

    Example:
        >>> of_language_model({"loss": 6.0, "targets.loss": 3, "right": 1, "bytes": 5})
        {'loss': 2.0, 'perplexity': 7.38905609893065, 'accuracy': 0.333..., 'bits_per_byte': 1.7312...}
    """
    targets = max(1.0, sums["targets.loss"])
    loss = sums["loss"] / targets
    scores = {"loss": loss, "perplexity": math.exp(min(loss, 700.0)), "accuracy": sums["right"] / targets}
    if sums.get("bytes"):
        scores["bits_per_byte"] = sums["loss"] / math.log(2) / sums["bytes"]
    return scores


def of_classes(sums: Mapping[str, Any]) -> dict[str, float]:
    """Loss, the share of texts with the right label, and the mean of F1 over the labels (macro-F1).

        F1 of a label = 2 right / (texts that have it + texts that were given it)

    A label that neither occurs nor was given has no F1, and is left out of the mean.

    Example:
        >>> of_classes({"loss": 1.5, "targets.loss": 3, "right": 2, "confusion": [[0, 1], [0, 2]]})
        {'loss': 0.5, 'accuracy': 0.666..., 'macro_f1': 0.4}
    """
    table, targets = sums["confusion"], max(1.0, sums["targets.loss"])
    both = [sum(row) + sum(column) for row, column in zip(table, zip(*table, strict=True), strict=True)]
    found = [2.0 * table[label][label] / count for label, count in enumerate(both) if count]
    return {
        "loss": sums["loss"] / targets,
        "accuracy": sums["right"] / targets,
        "macro_f1": sum(found) / max(1, len(found)),
    }


def of_found(counts: Sequence[float]) -> dict[str, float]:
    """Precision, recall and F1 of what is found in texts; a span is right with its kind, beginning and end.

    Args:
        counts: how many there are, how many were found, and how many of these are right.

    Example:
        >>> of_found([4, 2, 1])
        {'precision': 0.5, 'recall': 0.25, 'f1': 0.333...}

    Source: Tjong Kim Sang and De Meulder 2003, arXiv cs/0306050, section 2.4.
    """
    there, found, right = counts
    return {
        "precision": right / found if found else 0.0,
        "recall": right / there if there else 0.0,
        "f1": 2.0 * right / (there + found) if there + found else 0.0,
    }
