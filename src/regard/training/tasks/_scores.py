"""From sums over a set to scores."""

import math
from collections.abc import Mapping


def of_language_model(sums: Mapping[str, float]) -> dict[str, float]:
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
