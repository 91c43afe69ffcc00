"""The concordance over HTTP: the lines of `Concordance.find`, and what is refused."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import regard
from regard.concordance import Concordance, build_index
from regard.core.errors import InputError
from regard.serving import Settings, app_of
from unit.concordance.conftest import write_rows
from unit.serving.conftest import Ask

ASKED: list[dict[str, Any]] = [
    {"word": "bank"},
    {"word": "bank", "k": 2, "sort": ["R1", "L1"], "where": ["genre=news", "date>=1991"]},
    {"word": "/banks?/", "sample": 3, "seed": 2},
    {"sentence": "a man on the *bank*", "k": 4},
    {"sentence": "the river", "word": "river", "why": True},
]


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_lines_are_those_of_find(
    asked: dict[str, Any], ask: Ask, models: dict[str, regard.Model], index: Path, tmp_path: Path
) -> None:
    shutil.copytree(index, tmp_path / "index")
    found = Concordance(tmp_path / "index", models["bert"]).find(**{"k": 20} | asked)
    answer = ask("/v1/usages/search", **asked)
    assert answer["index"] == "small"
    assert (answer["total"], answer["about"]) == (found.total, found.about)
    for line, row in zip(answer["lines"], found.to_rows(), strict=True):
        assert line.keys() == row.keys()
        exact = {name: value for name, value in row.items() if name not in ("similarity", "reasons")}
        assert {name: line[name] for name in exact} == exact
        assert line.get("similarity") == pytest.approx(row.get("similarity"), abs=1e-5)


def test_more_of_these_and_less_of_those(ask: Ask) -> None:
    uses = [line["use"] for line in ask("/v1/usages/search", word="bank")["lines"]]
    lines = ask("/v1/usages/search", word="bank", more=uses[:1], less=uses[1:2])["lines"]
    assert lines[0]["use"] == uses[0]


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({}, 400, "word must be given"),
    ({"word": "nowhere"}, 400, "nowhere"),
    ({"word": "bank", "where": ["colour=red"]}, 400, "where must name a field"),
    ({"word": "/(/"}, 400, "regular expression"),
    ({"word": "bank", "sort": ["X1"]}, 400, "sort"),
    ({"word": "bank", "k": 1001}, 400, "k: "),
    ({"sentence": "a *bank*", "why": True, "k": 21}, 400, "k must be 20 at most with why"),
    ({"word": "bank", "more": [0]}, 400, "more must be uses of this word"),
    ({"word": "bank", "more": [99_999]}, 400, "more must be a whole number, from 0 to"),
    (
        {"word": "g\uba32", "any_word": True, "more": [198_822, 594]},
        400,
        "more must be a whole number, from 0",
    ),
    ({"word": "bank", "any_word": True, "more": [0], "less": [2**70]}, 400, "less must be a whole number"),
    ({"word": "bank", "index": "../small"}, 404, "index must be small"),
    ({"word": "bank", "any_word": True, "sentence": "a *bank*"}, 400, "regard index --all|any"),
    ({"sentence": "no mark here"}, 400, "mark"),
]


@pytest.mark.parametrize(("body", "status", "message"), REFUSED, ids=str)
def test_what_cannot_be_answered(body: dict[str, Any], status: int, message: str, ask: Ask) -> None:
    found, error = ask("/v1/usages/search", **body)
    assert found == status
    assert re.search(message, error["message"])


def test_an_index_needs_a_model_of_the_server(models: dict[str, regard.Model], tmp_path: Path) -> None:
    build_index([write_rows(tmp_path / "rows.jsonl")], tmp_path / "index")
    _ = Concordance(tmp_path / "index", models["gpt2"]).vectors
    app_of(models, settings=Settings(index=tmp_path / "index"))
    with pytest.raises(InputError, match="vectors of a model that is served"):
        app_of({"bert": models["bert"]}, settings=Settings(index=tmp_path / "index"))


@pytest.mark.parametrize("timeout", [60, 0.001])
def test_vectors_are_computed_in_turns(
    timeout: float, models: dict[str, regard.Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_index([write_rows(tmp_path / "rows.jsonl")], tmp_path / "index")
    monkeypatch.setattr("regard.concordance._vectors._TEXTS_AT_ONCE", 1)
    monkeypatch.setattr("regard.serving._usages._TURN_S", 0.0)
    app = app_of({"bert": models["bert"]}, settings=Settings(index=tmp_path / "index"))
    monkeypatch.setattr(app.state.service.usages, "_timeout", timeout)
    with TestClient(app) as client:
        answer = client.post("/v1/usages/search", json={"sentence": "the *bank*"})
        if timeout < 1:
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "1"
            assert "1 of 6 in this turn" in answer.json()["error"]["message"]
        else:
            assert answer.json()["total"] == 6
