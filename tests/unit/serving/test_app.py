"""The application, in this process."""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import TestCase

import numpy as np
import pytest
from starlette.testclient import TestClient

import regard
from integration.served import tiny
from regard.serving import Settings, app_of
from regard.serving._operations import Line
from unit.embedding.test_settings import stored


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(app_of([regard.load()])) as client:
        yield client


def test_texts_become_vectors(client: TestClient) -> None:
    texts = ["a river bank", "a bank account"]
    answer = client.post("/v1/embeddings", json={"input": texts}).json()
    assert [item["index"] for item in answer["data"]] == [0, 1]
    expected = regard.load().embed(texts)
    for item, vector in zip(answer["data"], expected, strict=True):
        assert item["embedding"] == pytest.approx(vector.tolist(), abs=2e-6)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"input": }', "Expecting value"),
        ('{"input": "café"}'.encode("latin-1"), "'utf-8' codec can't decode byte 0xe9 in position 14"),
        (gzip.compress(b'{"input": "a"}'), "'utf-8' codec can't decode byte 0x8b"),
        (b"[" * 100_000, "maximum recursion depth exceeded"),
    ],
    ids=["json", "latin-1", "packed", "deep"],
)
def test_why_a_body_cannot_be_read(body: bytes, why: str, client: TestClient) -> None:
    answer = client.post("/v1/embeddings", content=body, headers={"content-type": "application/json"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "invalid_json")
    assert error["message"].startswith(f"the body must be JSON in UTF-8; {why}")


def test_a_line_for_each_request_without_text_and_key(tmp_path: Path) -> None:
    app = app_of([regard.load(tiny(tmp_path))], settings=Settings(keys=("a key",)))
    with TestCase().assertLogs("regard.serving") as logged, TestClient(app) as client:
        asked: list[dict[str, Any]] = [{"input": "w1"}, {"input": ["w1", 2]}, {"input": "w1", "w30": "w30"}]
        answers = [
            client.post("/v1/embeddings", json=each, headers={"authorization": "Bearer a key"})
            for each in asked
        ]
        answers.append(client.post("/v1/embeddings", json=asked[0]))
    text = "\n".join(map(Line().format, logged.records))
    lines = list(map(json.loads, text.split("\n")))
    told = [(line["event"], line["route"], line["status"], line["id"]) for line in lines]
    ids = [answer.headers["x-request-id"] for answer in answers]
    statuses = [200, 400, 400, 401]
    assert told == [("request", "/v1/embeddings", *each) for each in zip(statuses, ids, strict=True)]
    assert not re.search("w1|w30|a key", text)


def test_vectors_are_cut_to_the_sizes_of_the_card_and_of_the_command(tmp_path: Path) -> None:
    """Others are refused; the model's own is always there."""
    folder = tiny(stored(tmp_path, "Transformer", "Pooling"))
    (folder / "README.md").write_text('{"matryoshka_dims": [15, 8, 4]}', "utf-8")
    with TestClient(app_of({"tiny": regard.load(folder)}, settings=Settings(dimensions=(6, 99)))) as client:
        whole = np.array(asked(client)["data"][0]["embedding"])
        assert client.get("/v1/models/tiny").json()["all_dimensions"] == [4, 6, 8, 15]
        for size in (4, 6, 8, 15):
            part = whole[:size] / np.linalg.norm(whole[:size]) if size < 15 else whole
            assert asked(client, size)["data"][0]["embedding"] == pytest.approx(part.tolist(), abs=1e-6)
        told = asked(client, 7)["error"]["message"]
        assert told == "dimensions must be one of 4, 6, 8, 15 for this model; got 7."


def asked(client: TestClient, size: int | None = None) -> Any:
    return client.post("/v1/embeddings", json={"input": "w1 w2", "dimensions": size}).json()


def test_a_client_s_own_id_is_sent_back_and_logged(tmp_path: Path) -> None:
    app = app_of([regard.load(tiny(tmp_path))])
    with TestCase().assertLogs("regard.serving") as logged, TestClient(app) as client:
        told = client.get("/health", headers={"X-Request-Id": "me.2026:1/a=b"})
        made = [client.get("/health").headers["x-request-id"] for _ in range(2)]
    lines = [json.loads(line) for record in logged.records for line in Line().format(record).split("\n")]
    assert told.headers["x-request-id"] == "me.2026:1/a=b"
    assert [line["id"] for line in lines] == ["me.2026:1/a=b", *made]
    assert len(set(made)) == 2


def test_pages_of_named_origins_may_call_it(tmp_path: Path) -> None:
    """Others' browsers find no header that would let them read the answer."""
    settings = Settings(origins=("https://a.example",), keys=("key",))
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    with TestClient(app_of([regard.load(tiny(tmp_path))], settings=settings)) as client:
        for origin in ("https://a.example", "https://a.example.evil", "null"):
            is_named = origin == "https://a.example"
            before = client.options("/v1/embeddings", headers={"Origin": origin} | asked)
            headers = {"Origin": origin, "Authorization": "Bearer key"}
            answer = client.post("/v1/embeddings", json={"input": "w1"}, headers=headers)
            assert (before.status_code, answer.status_code) == (200 if is_named else 400, 200)
            for each in (before, answer):
                assert each.headers.get("access-control-allow-origin") == (origin if is_named else None)


def test_texts_as_tokens_ask_for_a_key(tmp_path: Path) -> None:
    app = app_of([regard.load(tiny(tmp_path))], settings=Settings(keys=("key",)))
    with TestClient(app) as client:
        assert client.post("/tokenize", json={"prompt": "w1"}).status_code == 401
        keyed = {"Authorization": "Bearer key"}
        assert client.post("/tokenize", json={"prompt": "w1"}, headers=keyed).status_code == 200
        assert app.openapi()["paths"]["/tokenize"]["post"]["security"] == [{"key": []}, {}]


def test_texts_as_tokens_without_a_run_of_the_model(tmp_path: Path) -> None:
    """As `/tokenize` of vLLM: ids, their number, and how many the model takes."""
    model = regard.load(tiny(tmp_path))
    with TestClient(app_of({"tiny": model})) as client:
        told = client.post("/tokenize", json={"prompt": "w1 w30 w2"}).json()
        wanted = [token.id for token in model.tokenizer.encode("w1 w30 w2").tokens]
        assert told == {"tokens": wanted, "count": len(wanted), "max_model_len": 11}
        assert client.post("/tokenize", json={"prompt": "w1", "model": "x"}).status_code == 404
        assert client.post("/tokenize", json={"prompt": ["w1"]}).status_code == 400
