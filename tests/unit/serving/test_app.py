"""The application, in this process."""

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
