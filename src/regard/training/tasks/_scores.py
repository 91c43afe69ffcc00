"""From sums over a set to scores, and from translations to BLEU and chrF, which are sacrebleu's."""

import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from regard.core.errors import InputError
from regard.core.extras import missing

USUAL_TEXTS = 200
"""Texts that are translated for each score by default."""

USUAL = "13a"
"""How sacrebleu cuts texts into words by default: as the WMT's script mteval-v13a does."""

_TOKENIZERS = ("13a", "none", "intl", "char", "zh")  # of sacrebleu's those that need nothing else


def language_scores(sums: Mapping[str, Any]) -> dict[str, float]:
    """Loss in nats a target, perplexity, the share guessed right; where bytes are known, bits a byte.

    perplexity    = exp(loss)
    bits a byte   = (sum of the losses) / ln 2 / bytes of the texts in UTF-8
    """
    targets = max(1.0, sums["targets.loss"])
    loss = sums["loss"] / targets
    # exp(710) overflows.
    scores = {"loss": loss, "perplexity": math.exp(min(loss, 700.0)), "accuracy": sums["right"] / targets}
    if sums.get("bytes"):
        scores["bits_per_byte"] = sums["loss"] / math.log(2) / sums["bytes"]
    return scores


def class_scores(sums: Mapping[str, Any]) -> dict[str, float]:
    """Loss, the share of texts with the right label, and the mean of F1 over the labels (macro-F1).

        F1 of a label = 2 right / (texts that have it + texts that were given it)

    A label that neither occurs nor was given has no F1, and is left out of the mean.
    """
    table, targets = sums["confusion"], max(1.0, sums["targets.loss"])
    both = [sum(row) + sum(column) for row, column in zip(table, zip(*table, strict=True), strict=True)]
    found = [2.0 * table[label][label] / count for label, count in enumerate(both) if count]
    return {
        "loss": sums["loss"] / targets,
        "accuracy": sums["right"] / targets,
        "macro_f1": sum(found) / max(1, len(found)),
    }


def precision_recall_f1(counts: Sequence[float]) -> dict[str, float]:
    """Precision, recall and F1 of what is found in texts; a span is right with its kind, beginning and end.

    Source: Tjong Kim Sang and De Meulder 2003, arXiv cs/0306050, section 2.4.
    """
    there, found, right = counts
    return {
        "precision": right / found if found else 0.0,
        "recall": right / there if there else 0.0,
        "f1": 2.0 * right / (there + found) if there + found else 0.0,
    }


def texts_scored(wanted: int | None) -> int:
    """Texts to translate for a score: `wanted`, or by default 200 where sacrebleu is installed, else none."""
    if wanted is None:
        return USUAL_TEXTS if find_spec("sacrebleu") is not None else 0
    if wanted < 0:
        raise InputError(f"task.bleu_texts must be at least 0; got {wanted}.")
    if wanted:
        _metrics()
    return wanted


def translation_scores(
    found: Sequence[str], wanted: Sequence[str], *, tokenize: str = USUAL
) -> dict[str, float]:
    """BLEU and chrF of translations, each against one reference, in percent; 0 without any.

    Source: Papineni et al. 2002, "BLEU: a method for automatic evaluation of machine translation"; Popović
    2015, "chrF: character n-gram F-score"; as Post 2018, arXiv 1804.08771, computes them.
    """
    return {
        name: metric.corpus_score(list(found), [list(wanted)]).score if found else 0.0
        for name, metric in _metrics(tokenize).items()
    }


def signatures(tokenize: str = USUAL) -> dict[str, str]:
    """How the scores are computed, in sacrebleu's notation, which papers quote."""
    return {name: _signed(metric) for name, metric in _metrics(tokenize).items()}


def _signed(metric: Any) -> str:
    metric.corpus_score(["a"], [["a"]])  # only then it knows how many references there are
    return str(metric.get_signature())


def _metrics(tokenize: str = USUAL) -> dict[str, Any]:
    try:
        metrics = import_module("sacrebleu.metrics")
    except ImportError as error:
        raise missing("BLEU and chrF need", error, "sacrebleu") from error
    if tokenize not in _TOKENIZERS:
        raise InputError(f"task.bleu_tokenize must be {' or '.join(_TOKENIZERS)}; got {tokenize!r}.")
    # force: texts that look tokenised are scored as the signature says, without a remark for each score.
    return {"bleu": metrics.BLEU(tokenize=tokenize, force=True), "chrf": metrics.CHRF()}
