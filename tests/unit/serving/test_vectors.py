"""Words with their vectors: those of `model.embed`, and what is refused."""

import re
from base64 import b64decode
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import regard
from regard.serving import _vectors
from unit.serving.conftest import Ask

TEXTS = ["a man on the river bank.", "fish 鱼 bank"]


def test_a_vector_that_begins_with_zeros_can_be_cut() -> None:
    engine: Any = SimpleNamespace(dimensions=(2, 3), width=3)
    vectors = np.array([[3e-30, 4e-30, 1.0], [0.0, 0.0, 1.0]], np.float32)
    assert _vectors._cut(vectors, 2, engine).round(3).tolist() == [
        [pytest.approx(0.6), pytest.approx(0.8)],
        [0, 0],
    ]


@pytest.mark.parametrize("layer", [-1, 0, [0, 1]])
@pytest.mark.parametrize("level", ["word", "token"])
@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_words_are_those_of_embed(
    level: Any, layer: Any, encoding: str, ask: Ask, models: dict[str, regard.Model]
) -> None:
    answer = ask("/v1/words", input=TEXTS, model="bert", level=level, layer=layer, encoding_format=encoding)
    wanted = models["bert"].embed(TEXTS, level=level, layer=layer)
    words = [(item["index"], word) for item in answer["data"] for word in item["words"]]
    assert [index for index, _ in words] == wanted.rows.tolist()
    assert [word["text"] for _, word in words] == wanted.texts
    assert [(word["start"], word["end"]) for _, word in words] == [tuple(span) for span in wanted.spans]
    assert [word["unknown"] for _, word in words] == wanted.unknown.tolist()
    shape = wanted.vectors.shape[1:]
    found = [
        np.frombuffer(b64decode(word["embedding"]), "<f4").reshape(shape)
        if encoding == "base64"
        else word["embedding"]
        for _, word in words
    ]
    np.testing.assert_allclose(np.array(found), wanted.vectors, atol=2e-6)
    assert answer["dimensions"] == 24
    assert answer["layers"] == ([0, 1] if layer == [0, 1] else None)
    assert answer["usage"]["prompt_tokens"] == int(wanted.report.tokens.sum())


LONG = "a man on the river bank. " * 20

REFUSED: list[tuple[dict[str, Any], int, str, str]] = [
    ({"input": ""}, 400, "input", r"input\[0\] is empty"),
    ({"input": ["a", " "]}, 400, "input", r"input\[1\] is empty"),
    ({"input": []}, 400, "input", "input"),
    ({"input": [1, 2]}, 400, "input", "string"),
    ({"input": LONG}, 400, "input", r"input\[0\] has 142 tokens, more than this model takes"),
    ({"input": "a", "layer": 9}, 400, "input", "layer"),
    ({"input": "a", "pooling": "sum"}, 400, "pooling", "mean"),
    ({"input": "a", "units": "words"}, 400, "units", "not supported"),
    ({"input": "a", "model": "other"}, 404, "model", "one of bert, gpt2"),
]


@pytest.mark.parametrize(("body", "status", "param", "message"), REFUSED, ids=str)
def test_what_cannot_be_answered(
    body: dict[str, Any], status: int, param: str, message: str, ask: Ask
) -> None:
    found, error = ask("/v1/words", **body)
    assert (found, error["param"]) == (status, param)
    assert re.search(message, error["message"])


@pytest.mark.parametrize("overlong", ["truncate", "windows"])
def test_long_texts_on_request(overlong: str, ask: Ask) -> None:
    (item,) = ask("/v1/words", input=LONG, overlong=overlong)["data"]
    assert item.get("truncated", 0) == (63 if overlong == "truncate" else 0)
    assert len(item["words"]) == (77 if overlong == "truncate" else 140)


def test_an_answer_is_bounded(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_vectors, "MOST_NUMBERS", 24 * 4 - 1)
    status, error = ask("/v1/words", input="a man on the")
    assert (status, error["code"]) == (413, "too_large")
    assert "96 numbers, and may have 95" in error["message"]
