"""Traces and weights: those of `model.trace`, and what is refused."""

import re
from base64 import b64decode
from typing import Any

import numpy as np
import pytest

import regard
from regard.serving import _traces
from unit.serving.conftest import Ask

TEXT = "a man on the river bank, on the bank."


def test_a_trace_in_plain_values(ask: Ask, models: dict[str, regard.Model]) -> None:
    answer = ask("/v1/trace", input=TEXT, pair="the fish", off=[[0, 1]])
    trace = models["bert"].edited(regard.Zero("head", layer=0, head=1)).trace(TEXT, "the fish")
    encoding = trace.stack(None).encoding
    assert answer["kinds"] == ["encoder"]
    side = answer["sides"]["encoder"]
    assert side["texts"] == [TEXT, "the fish"]
    assert [token["id"] for token in side["tokens"]] == trace.token_ids
    assert [token["span"] for token in side["tokens"]] == [
        None if token.span is None else list(token.span) for token in encoding.tokens
    ]
    assert [(word["text"], word["tokens"]) for word in side["words"]] == [
        (word.text, list(word.tokens)) for word in encoding.words
    ]
    assert [(head["layer"], head["head"]) for head in answer["heads"]] == [
        (layer, head) for layer in range(2) for head in range(3)
    ]
    entropy = trace.statistics().mean("entropy")
    names = {(card.layer, card.head): card.pattern for card in trace.heads()}
    for head in answer["heads"]:
        place = (head["layer"], head["head"])
        assert head["entropy"] == pytest.approx(float(entropy[place]), abs=1e-6)
        assert head["pattern"] == names[place]
    assert answer["html"] is None


def test_a_trace_with_its_page(ask: Ask) -> None:
    html = ask("/v1/trace", input=TEXT, html=True)["html"]
    assert html.startswith("<!DOCTYPE html>")
    assert "connect-src" not in html


CHOSEN: list[dict[str, Any]] = [
    {},
    {"layers": [-1], "heads": [2, 0]},
    {"layers": [0], "heads": [1], "queries": [1, "river"], "keys": ["bank#2", 0]},
]


@pytest.mark.parametrize("model", ["bert", "gpt2"])
@pytest.mark.parametrize("chosen", CHOSEN, ids=str)
@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_weights_are_those_of_the_trace(
    model: str, chosen: dict[str, Any], encoding: str, ask: Ask, models: dict[str, regard.Model]
) -> None:
    if model == "gpt2" and "keys" in chosen:
        chosen = chosen | {"queries": [1, 2], "keys": [0]}  # its words are many pieces
    answer = ask("/v1/attention", input=TEXT, model=model, encoding_format=encoding, **chosen)
    trace = models[model].trace(TEXT)
    assert answer["kind"] == trace.kinds[0]
    assert len(answer["data"]) == len(chosen.get("layers", range(2))) * len(chosen.get("heads", range(3)))
    for item in answer["data"]:
        found = item["weights"]
        if encoding == "base64":
            found = np.frombuffer(b64decode(found), "<f4").reshape(item["shape"])
        query, key = chosen.get("queries"), chosen.get("keys")
        wanted = trace.weights(item["layer"], item["head"], query=query, key=key)
        np.testing.assert_allclose(np.array(found), wanted, atol=1e-7)
        assert np.shape(found) == (len(answer["queries"]), len(answer["keys"]))
    assert [each["text"] for each in answer["keys"]] == [
        trace.tokens[each["index"]] for each in answer["keys"]
    ]


def test_the_largest_and_the_mass_they_hold(ask: Ask, models: dict[str, regard.Model]) -> None:
    answer = ask("/v1/attention", input=TEXT, layers=[1], heads=[0], top_k=3, off=[[0, 2]])
    trace = models["bert"].edited(regard.Zero("head", layer=0, head=2)).trace(TEXT)
    (item,) = answer["data"]
    weights = trace.weights(1, 0)
    for row, keys, some, mass in zip(weights, item["keys"], item["weights"], item["mass"], strict=True):
        assert some == pytest.approx(sorted(row.tolist(), reverse=True)[:3], abs=1e-7)
        assert some == pytest.approx(row[keys].tolist(), abs=1e-7)
        assert mass == pytest.approx(sum(some), abs=1e-6)
    every = ask("/v1/attention", input=TEXT, layers=[1], heads=[0], top_k=500)["data"][0]
    assert every["mass"] == pytest.approx([1.0] * len(trace.tokens), abs=1e-5)


REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    ("trace", {"input": ""}, 400, "input"),
    ("trace", {"input": " \n"}, 400, "text"),
    ("trace", {"input": "x" * 20_001}, 400, "20000"),
    ("trace", {"input": "bank " * 90}, 400, "92 tokens"),
    ("trace", {"input": "a", "off": [[9, 0]]}, 400, "layer"),
    ("trace", {"input": "a", "target": "b"}, 400, "target"),
    ("attention", {"input": "a", "layers": []}, 400, "layers"),
    ("attention", {"input": "a", "heads": [3]}, 400, "head"),
    ("attention", {"input": "a", "queries": ["nowhere"]}, 400, "nowhere"),
    ("attention", {"input": "a", "kind": "cross"}, 400, "kind"),
    ("attention", {"input": "a", "top_k": 0}, 400, "top_k"),
    ("attention", {"input": "a", "model": "../../etc"}, 404, "one of bert, gpt2"),
]


@pytest.mark.parametrize(("path", "body", "status", "message"), REFUSED, ids=str)
def test_what_cannot_be_answered(
    path: str, body: dict[str, Any], status: int, message: str, ask: Ask
) -> None:
    found, error = ask(f"/v1/{path}", **body)
    assert found == status
    assert re.search(message, error["message"])


@pytest.mark.parametrize(("name", "told"), [("MOST_WEIGHTS", "may be 100"), ("MOST_READ", "may be 100")])
def test_an_answer_is_bounded(name: str, told: str, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_traces, name, 100)
    if name == "MOST_READ":
        assert ask("/v1/trace", input="a man on the")[0] == 413
    top = {"top_k": 1} if name == "MOST_READ" else {}
    status, error = ask("/v1/attention", input="a man on the", layers=[0], **top)
    assert (status, error["code"]) == (413, "too_large")
    assert "108 weights" in error["message"]
    assert told in error["message"]
