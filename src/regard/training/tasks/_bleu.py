"""BLEU and chrF of translations, by sacrebleu."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from regard.core.errors import InputError
from regard.core.extras import missing

AS_A_RULE = 200
"""Texts that are translated for each score, where nobody says."""

USUAL = "13a"
"""How sacrebleu cuts texts into words by default: as the WMT's script mteval-v13a does."""

_WAYS = ("13a", "none", "intl", "char", "zh")  # of sacrebleu's those that need nothing else


def texts_scored(wanted: int | None) -> int:
    """How many texts are translated for a score.

    Args:
        wanted: 0 for none; None for 200 where sacrebleu is installed, else none.

    Raises:
        InputError: below 0.
        MissingExtraError: texts are asked for, and sacrebleu is not installed.
    """
    if wanted is None:
        return AS_A_RULE if find_spec("sacrebleu") is not None else 0
    if wanted < 0:
        raise InputError(f"task.bleu_texts must be at least 0; got {wanted}.")
    if wanted:
        _metrics()
    return wanted


def of_translations(
    found: Sequence[str], wanted: Sequence[str], *, tokenize: str = USUAL
) -> dict[str, float]:
    """BLEU and chrF of translations, each against one reference, in percent; 0 without any.

    Args:
        found: the translations.
        wanted: the references.
        tokenize: how BLEU cuts both into words: "13a", "intl", "char" or "zh" as sacrebleu does, or
            "none", at blanks alone, for texts that are tokenised already.

    Raises:
        InputError: another way.

    Example:
        >>> of_translations(["a river and a bank"], ["a river and a bank"])
        {'bleu': 100.0..., 'chrf': 100.0}

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
    if tokenize not in _WAYS:
        raise InputError(f"task.bleu_tokenize must be {' or '.join(_WAYS)}; got {tokenize!r}.")
    # force: texts that look tokenised are scored as the signature says, without a remark for each score.
    return {"bleu": metrics.BLEU(tokenize=tokenize, force=True), "chrf": metrics.CHRF()}
