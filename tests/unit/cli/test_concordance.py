"""`regard tune-layer`: the table, the file of settings, and an index that takes them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from regard.cli import main
from regard.concordance import Concordance, build_index

USES = [("a river bank", 8, "side"), ("a bank loan", 2, "money"), ("the muddy bank", 10, "side")]


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["regard", "tune-layer", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_settings_go_to_a_file_and_to_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"word": "bank", "text": text, "start": at, "stop": at + 4, "sense": sense}
        for text, at, sense in USES
    ]
    data = tmp_path / "senses.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "a.txt").write_text("The bank of a river.\n")
    build_index([tmp_path / "a.txt"], tmp_path / "index")
    told = tmp_path / "layers.json"
    assert run(monkeypatch, data, "-o", told, "--index", tmp_path / "index", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["settings"] == json.loads(told.read_text())
    assert len(result["scores"]) == 18
    concordance = Concordance(tmp_path / "index")
    assert list(concordance.vectors.embed.layers) == result["settings"]["meaning"]["layers"]
    assert concordance.calibration is not None
    assert concordance.calibration.fitted_on.startswith("senses.jsonl")


def test_what_is_refused_is_refused_before_the_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("regard.cli.concordance.load_model", lambda name: pytest.fail("loaded"))
    data = tmp_path / "a.jsonl"
    data.write_text("no\n")
    assert run(monkeypatch, data) == 2
    assert "line 1" in capsys.readouterr().err
    assert run(monkeypatch, tmp_path / "none.jsonl") == 2
    data.write_text(json.dumps({"word": "b", "first": {}, "second": {}, "same": True}))
    assert run(monkeypatch, data, "-o", "-") == 2
    assert run(monkeypatch, data, "--index", tmp_path / "nowhere") == 2
    assert "nowhere" in capsys.readouterr().err
