"""Requests to `/v1/embeddings` that servers get wrong, with the right answers, on a process."""

from __future__ import annotations

import asyncio
import base64
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest

import regard
from integration.forked import Forked
from integration.served import command

KEY = "a key of the tests"
TEXTS = ["He sat by the river bank.", "She went to the bank.", "time flies like an arrow"]
LONG = "bank " * 600
BOUND = 2e-6
"""What company may change: `regard.embedding.Embedder`."""


class Server(NamedTuple):
    process: Forked
    url: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"another\n{KEY}\n", "utf-8")
    settings = ["--api-key-file", keys, "--drain-delay", "0.5", "--drain", "60", "--max-body", "1000000"]
    with command(*settings) as server:
        yield Server(*server)


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def expected() -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.asarray(regard.load().embed(TEXTS))


def post(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post("/v1/embeddings", json=body)


def vectors(answer: httpx.Response) -> np.ndarray[Any, np.dtype[np.float32]]:
    assert answer.status_code == 200, answer.text
    data = answer.json()["data"]
    assert [each["index"] for each in data] == list(range(len(data)))
    return np.array([each["embedding"] for each in data], np.float32)


def test_floats_and_base64_are_the_same_bits(client: httpx.Client, expected: Any) -> None:
    floats = vectors(post(client, input=TEXTS))
    coded = post(client, input=TEXTS, encoding_format="base64").json()["data"]
    assert np.abs(floats - expected).max() <= BOUND
    for each, row in zip(coded, floats, strict=True):
        assert base64.b64decode(each["embedding"]) == row.astype("<f4").tobytes()


@pytest.mark.parametrize(
    ("body", "status", "param", "told"),
    [
        ({"input": "a", "encoding_format": "md5"}, 400, "encoding_format", "base64"),
        ({"input": ""}, 400, "input", "input[0]"),
        ({"input": " "}, 400, "input", "input[0]"),
        ({"input": ["a", "\t\n"]}, 400, "input", "input[1]"),
        ({"input": [[97], ""]}, 400, "input", "input[1]"),
        ({"input": ["a", 5]}, 400, "input", "input[1]"),
        ({"input": ["a", "\u0000"]}, 400, "input", "input[1]"),
        ({"input": []}, 400, "input", "an empty list"),
        ({"input": [[]]}, 400, "input", "input[0]"),
        ({"input": {"a": 1}}, 400, "input", "text"),
        ({}, 400, "input", "required"),
        ({"input": [[-1]]}, 400, "input", "-1"),
        ({"input": [[999_999]]}, 400, "input", "check_embedding_ctx_length=False"),
        ({"input": ["a"] * 2049}, 400, "input", "2,049"),
        ({"input": ["a", LONG]}, 400, "input", "input[1] has 602 tokens, and this model takes 256"),
        ({"input": "a", "model": "other"}, 404, "model", "all-MiniLM-L6-v2"),
        ({"input": "a", "dimensions": 99_999}, 400, "dimensions", "384"),
        ({"input": "a", "dimensions": 256}, 400, "dimensions", "384"),
        ({"input": "a", "dimensions": 0}, 400, "dimensions", "1"),
        ({"input": "a", "dimension": 5}, 400, "dimension", "not supported by this server; leave it out"),
        ({"input": "a" * 1_000_001}, 413, None, "1,000,000"),
    ],
)
def test_what_is_wrong_is_named(
    client: httpx.Client, body: dict[str, Any], status: int, param: str | None, told: str
) -> None:
    answer = client.post("/v1/embeddings", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param)
    assert set(error) == {"message", "type", "param", "code"}
    assert told in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b'{"input": "a', "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"", "application/json", 400),
        (b'{"input": "\\ud800"}', "application/json", 400),
        (b'{"input": "a"}', "text/plain", 415),
        (b'{"input": "a"}', "", 415),
    ],
)
def test_what_is_no_json(client: httpx.Client, content: bytes, kind: str, status: int) -> None:
    answer = client.post("/v1/embeddings", content=content, headers={"Content-Type": kind})
    assert (answer.status_code, set(answer.json()["error"])) == (status, {"message", "type", "param", "code"})


def test_ids_are_read_as_given(client: httpx.Client) -> None:
    one = vectors(post(client, input=[101, 2054, 102]))
    two = vectors(post(client, input=[[101, 2054, 102], [101, 2924, 102]]))
    assert np.abs(one - vectors(post(client, input="what"))).max() <= BOUND
    assert np.abs(two - vectors(post(client, input=["what", "bank"]))).max() <= BOUND
    assert np.abs(vectors(post(client, input=[2054])) - one).max() > 0.01


def test_long_texts_only_as_asked(client: httpx.Client) -> None:
    cut = post(client, input=["a", LONG], overlong="truncate").json()
    assert [each.get("truncated") for each in cut["data"]] == [None, 346]
    assert cut["usage"]["prompt_tokens"] == 3 + 256
    whole = post(client, input=LONG, overlong="windows")
    assert np.abs(vectors(whole) - np.asarray(regard.load().embed([LONG]))).max() <= BOUND
    assert "truncated" not in whole.json()["data"][0]


def test_usage_counts_special_tokens(client: httpx.Client) -> None:
    usage = post(client, input=["time flies like an arrow", "a"]).json()["usage"]
    assert usage == {"prompt_tokens": 10, "total_tokens": 10}


def test_company_changes_nothing(client: httpx.Client) -> None:
    texts = [f"{place} " + "river bank flies arrow " * (1 + place % 7) for place in range(100)]
    together = vectors(post(client, input=texts))
    for place in (0, 7, 50, 99):
        alone = vectors(post(client, input=texts[place]))
        assert np.abs(alone[0] - together[place]).max() <= BOUND


def test_without_the_key(server: Server) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {KEY}"}):
        answer = httpx.post(f"{server.url}/v1/embeddings", json={"input": "a"}, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_metrics_and_description(client: httpx.Client) -> None:
    assert post(client, input="a bank").status_code == 200  # a route is counted from its first request on
    told = client.get("/metrics").text
    assert 'regard_queue_tokens{model="sentence-transformers/all-MiniLM-L6-v2"} 0.0' in told
    assert 'regard_requests_total{route="/v1/embeddings",status="200"}' in told
    described = client.get("/openapi.json").json()
    body = described["components"]["schemas"]["EmbeddingsBody"]["properties"]
    assert {"input", "model", "encoding_format", "dimensions", "overlong"} <= set(body)
    assert "examples" in body["input"]
    for route in ("/v1/embeddings", "/v1/words", "/v1/usages/search"):
        right = described["paths"][route]["post"]["responses"]["200"]["content"]["application/json"]
        assert right["schema"]["$ref"].endswith("Answer")
        assert right["example"]["object"] == "list"


def test_sigterm_answers_what_was_accepted(server: Server) -> None:
    """The last of this file: readiness falls first, and what is in flight is answered."""

    async def ends() -> list[httpx.Response]:
        headers = {"Authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60) as client:
            body = {"input": [f"{LONG} {place}"[-1200:] for place in range(8)], "overlong": "truncate"}
            asked = [asyncio.create_task(client.post("/v1/embeddings", json=body)) for _ in range(4)]
            await asyncio.sleep(0.1)
            server.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.2)
            ready = await client.get("/health/ready")
            return [ready, *await asyncio.gather(*asked)]

    with ThreadPoolExecutor(1) as beside:  # Playwright leaves a loop running in the thread of the tests
        ready, *answers = beside.submit(asyncio.run, ends()).result()
    assert (ready.status_code, ready.json()["error"]["code"]) == (503, "draining")
    assert all(each.status_code == 200 for each in answers), [
        (each.status_code, each.text[:300]) for each in answers
    ]
    assert [len(each.json()["data"]) for each in answers] == [8] * 4
    assert server.process.end()[0] == 0
