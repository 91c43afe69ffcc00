"""The application, in this process."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

import regard
from regard.serving import app_of


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
