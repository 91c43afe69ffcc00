"""BLEU and chrF: by hand, while a translation is learned, and without sacrebleu."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import InputError, MissingExtraError
from regard.decoding import decode_texts
from regard.models import load_checkpoint
from regard.training import score, train
from regard.training.tasks import _bleu
from regard.training.tasks._bleu import of_translations, signatures, texts_scored
from unit.training.small import PAIRS
from unit.training.test_runs import settings_of


def test_bleu_is_the_geometric_mean_of_precisions_times_the_penalty() -> None:
    """Of "a b c d e" against "a b c d x y": 4/5, 3/4, 2/3, 1/2, and exp(1 - 6/5)."""
    wanted = 100 * math.exp(1 - 6 / 5) * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    assert of_translations(["a b c d e"], ["a b c d x y"])["bleu"] == pytest.approx(wanted)
    assert of_translations([], []) == {"bleu": 0.0, "chrf": 0.0}
    assert signatures()["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")


def test_translations_are_scored_while_they_are_learned(tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "steps": 60,
        "evaluate_every": 60,
        "save_every": 60,
        "optimiser": {"lr": 0.02, "warmup": 5, "schedule": "constant"},
        "batch": {"length": 16, "rows": 12},
        "task": {"smoothing": 0.0, "bleu_texts": 1},
    }
    settings = settings_of("seq2seq", tmp_path, **more)
    result = train(settings, tmp_path / "run")
    assert result.signatures == signatures()
    assert json.loads((result.model / "scores.json").read_text())["signatures"] == signatures()
    assert result.scores["bleu"] == pytest.approx(100.0)
    model = load_checkpoint(result.model)
    found = decode_texts(model.network, model.require_tokenizer(), [text for text, _ in PAIRS[:1]])
    wanted = of_translations(found, [target for _, target in PAIRS[:1]])
    assert {name: result.scores[name] for name in wanted} == wanted
    again = score(tmp_path / "run", settings.data.valid)
    assert (again.scores, again.details["signatures"]) == (result.scores, signatures())


def test_without_sacrebleu_there_is_no_score_but_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (texts_scored(None), texts_scored(7), texts_scored(0)) == (200, 7, 0)
    with pytest.raises(InputError, match=r"task\.bleu_texts must be at least 0; got -1"):
        texts_scored(-1)

    def absent(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(_bleu, "import_module", absent)
    monkeypatch.setattr(_bleu, "find_spec", lambda name: None)
    assert (texts_scored(None), texts_scored(0)) == (0, 0)
    with pytest.raises(MissingExtraError, match="BLEU and chrF need sacrebleu, which is not installed"):
        texts_scored(7)


def test_the_score_that_decides_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"best must be loss or perplexity or accuracy or .*; got 'blue'"):
        train(settings_of("seq2seq", tmp_path, best="blue"), tmp_path / "run")
