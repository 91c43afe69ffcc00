"""BLEU and chrF: by hand, while a translation is learned, and without sacrebleu."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from unittest import TestCase

import pytest

from regard.core.errors import InputError, MissingExtraError
from regard.decoding import decode_texts
from regard.models import load_checkpoint
from regard.training import score, train
from regard.training.tasks import _seq2seq
from regard.training.tasks._seq2seq import signatures, texts_scored, translation_scores
from unit.training.small import PAIRS
from unit.training.test_runs import settings_of


def test_bleu_is_the_geometric_mean_of_precisions_times_the_penalty() -> None:
    """Of "a b c d e" against "a b c d x y": 4/5, 3/4, 2/3, 1/2, and exp(1 - 6/5)."""
    wanted = 100 * math.exp(1 - 6 / 5) * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    assert translation_scores(["a b c d e"], ["a b c d x y"])["bleu"] == pytest.approx(wanted)
    assert translation_scores([], []) == {"bleu": 0.0, "chrf": 0.0}
    assert signatures()["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")


def test_translations_are_scored_while_they_are_learned(tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "steps": 36,
        "evaluate_every": 36,
        "save_every": 36,
        "optimiser": {"lr": 0.02, "warmup": 5, "schedule": "constant"},
        "batch": {"length": 16, "rows": 12},
        "task": {"smoothing": 0.0, "bleu_texts": 1, "bleu_tokenize": "none"},
    }
    settings = settings_of("seq2seq", tmp_path, **more)
    result = train(settings, tmp_path / "run")
    count = 3 * len(PAIRS)  # the rows of the file
    told = {name: f"{each}, the first 1 of {count} texts" for name, each in signatures("none").items()}
    assert "|tok:none|" in told["bleu"]
    assert result.signatures == told
    assert json.loads((result.model / "scores.json").read_text())["signatures"] == told
    assert f"* bleu: `{told['bleu']}`" in (result.model / "README.md").read_text()
    assert result.scores["bleu"] == pytest.approx(100.0)
    model = load_checkpoint(result.model)
    found = decode_texts(model.network, model.require_tokenizer(), [text for text, _ in PAIRS[:1]])
    written = [ways[0].text for ways in found]
    wanted = translation_scores(written, [target for _, target in PAIRS[:1]], tokenize="none")
    assert {name: result.scores[name] for name in wanted} == wanted
    again = score(tmp_path / "run", settings.data.valid)
    assert (again.scores, again.details["signatures"]) == (result.scores, told)


def test_without_sacrebleu_there_is_no_score_but_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (texts_scored(None), texts_scored(7), texts_scored(0)) == (200, 7, 0)
    with pytest.raises(InputError, match=r"task\.bleu_texts must be at least 0; got -1"):
        texts_scored(-1)

    def absent(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(_seq2seq, "import_module", absent)
    monkeypatch.setattr(_seq2seq, "find_spec", lambda name: None)
    assert (texts_scored(None), texts_scored(0)) == (0, 0)
    with pytest.raises(MissingExtraError, match="BLEU and chrF need sacrebleu, which is not installed"):
        texts_scored(7)


def test_texts_that_are_tokenised_already_are_cut_at_blanks() -> None:
    """ "a," is one word, or two: 4/5, 3/4, 2/3, 1/2 are right, or 5/6, 3/5, 2/4, 1/3."""
    found, wanted = ["a, b c d e"], ["a; b c d e"]
    bleu = {way: translation_scores(found, wanted, tokenize=way)["bleu"] for way in ("none", "13a")}
    assert bleu["none"] == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    assert bleu["13a"] == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)
    with TestCase().assertNoLogs("sacrebleu"):  # no remark that these look tokenised
        translation_scores(["a b ."] * 101, ["a c ."] * 101)
    with pytest.raises(InputError, match=r"task\.bleu_tokenize must be 13a or none or .*; got 'moses'"):
        signatures("moses")
