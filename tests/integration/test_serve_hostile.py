"""Requests of those who mean harm, ten and more of each kind; and the server is well afterwards."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

import regard
from integration.served import Served, posted, tiny
from regard.serving import app_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    served = Served(folder, hosts=("Regard.example",), body_timeout=2.0)
    yield served
    assert served.embed("w3 w5").status == 200
    assert served.ask("/health/ready").status == 200
    served.close()


def said(served: Served, sent: bytes) -> bytes:
    """The beginning of what is answered."""
    with served.connect(sent) as connection:
        return connection.recv(65536)


BODIES: dict[str, bytes] = {
    "a list": b'["w1"]',
    "a text": b'"w1"',
    "null": b"null",
    "a field of JavaScript": b'{"input": "w1", "__proto__": {"model": "x"}}',
    "a field twice": b'{"input": "w1", "input": 5}',
    "something after it": b'{"input": "w1"} {"input": "w1"}',
    "a number beyond all": b'{"input": "w1", "dimensions": 1e999}',
    "a list in a list": b'{"input": [[["w1"]]]}',
    "an id beyond all": b'{"input": [%d]}' % 2**70,
    "an id below all": b'{"input": [-9223372036854775809]}',
    "half a character": b'{"input": "\\udfff"}',
    "packed": gzip.compress(b'{"input": "w1"}'),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies(served: Served, name: str) -> None:
    answer = served.ask("/v1/embeddings", raw=BODIES[name])
    assert (answer.status, answer.body["error"]["type"]) == (400, "invalid_request_error")


RIGHT = b'{"input": "w1"}'
HEADERS: dict[str, tuple[bytes, int]] = {
    "two lengths": (posted(RIGHT, "Content-Length: 3"), 400),
    "a length and chunks": (posted(RIGHT, "Transfer-Encoding: chunked"), 400),
    "chunks of another kind": (
        posted(b"", "Transfer-Encoding: xchunked").replace(b"Content-Length: 0\r\n", b""),
        400,
    ),
    "a length below 0": (posted(b"", length=-1), 400),
    "a length in hexadecimal": (posted(RIGHT).replace(b"Content-Length: 15", b"Content-Length: 0xf"), 400),
    "a length beyond all": (posted(b"", length=10**30), 400),
    "a space in a name": (posted(RIGHT, "X Name: 1"), 400),
    "a NUL": (posted(RIGHT, "X-Name: a\0b"), 400),
    "no name": (posted(RIGHT, ": b"), 400),
    "no colon": (posted(RIGHT, "X-Name"), 400),
    "a line end alone": (posted(RIGHT, "X-Name: a\nX-Other: b"), 400),
    "another kind": (posted(RIGHT).replace(b"application/json", b"application/json, text/html"), 415),
    "a form": (posted(RIGHT).replace(b"application/json", b"application/x-www-form-urlencoded"), 415),
    "no kind": (posted(RIGHT).replace(b"Content-Type: application/json\r\n", b""), 415),
    "another origin": (posted(RIGHT, "Origin: https://evil.example"), 200),
    "another address": (posted(RIGHT, "X-Forwarded-For: 1.2.3.4, " * 200), 200),
    "a long key": (posted(RIGHT, "Authorization: Bearer " + "k" * 30_000), 200),
    "another protocol": (
        b"GET /health HTTP/1.1\r\nHost: tiny\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
        200,
    ),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers(served: Served, name: str) -> None:
    sent, status = HEADERS[name]
    told = said(served, sent.replace(b"Host: tiny", b"Host: localhost"))
    assert told[9:12] == str(status).encode(), told
    assert b"access-control" not in told.lower()


@pytest.mark.parametrize(
    "id", ["a\x7fb", "<script>", "a b", "x" * 129, "{}", '"', "a;b", "é", "a,b", "$(id)"]
)
def test_ids_that_are_not_sent_back(served: Served, id: str) -> None:
    told = said(served, b"GET /health HTTP/1.1\r\nX-Request-Id: " + id.encode() + b"\r\n\r\n")
    assert told[9:12] in (b"200", b"400")  # the parser knows of some
    assert b": " + id.encode() not in told


STRANGE = (
    "evil.example",
    "evil.example:8000",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "localhost..",
    "..",
    "../localhost",
    "localhost@evil.example",
    "[::1].evil.example",
    "[localhost]",
    "127.0.0.1:80:80",
    "2130706433",
    "0x7f.0.0.1",
    "regard.example.evil",
    "xregard.example",
    "a" * 5000,
    "%6c%6fcalhost",
    "<script>",
    "",
)
KNOWN = (
    "localhost",
    "LocalHost:1",
    "127.0.0.1",
    "127.0.0.1:8000",
    "10.1.2.3:80",
    "[::1]",
    "[::1]:8000",
    "[fe80::1]",
    "regard.example",
    "REGARD.EXAMPLE:443",
)


@pytest.mark.parametrize("path", ["/", "/v1/models"])
@pytest.mark.parametrize("host", STRANGE)
def test_hosts(served: Served, host: str, path: str) -> None:
    answer = served.ask(path, Host=host)
    assert answer.status == 400
    assert answer.body["error"]["code"] == "unknown_host"
    assert "--allow-host" in answer.body["error"]["message"]
    assert len(answer.body["error"]["message"]) < 300


@pytest.mark.parametrize("host", KNOWN)
def test_hosts_that_are_its_own(served: Served, host: str) -> None:
    assert served.ask("/health", Host=host).status == 200


def test_two_hosts_and_none(served: Served) -> None:
    two = b"GET /health HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n\r\n"
    assert said(served, two)[9:12] == b"400"
    assert said(served, b"GET /health HTTP/1.0\r\n\r\n")[9:12] == b"200"  # no browser's


NAMES = (
    "../tiny",
    "..",
    "tiny/../tiny",
    "/etc/passwd",
    "..\\..\\tiny",
    "%2e%2e/tiny",
    "tiny\0",
    "tiny\nx",
    "<script>alert(1)</script>",
    "\u202eynit",
    "TINY",
    "x" * 5000,
    "hub/tiny",
)


@pytest.mark.parametrize("name", NAMES)
def test_names(served: Served, name: str) -> None:
    coded = quote(name, safe="")
    asked = [
        served.ask("/v1/embeddings", {"input": "w1", "model": name}),
        served.ask("/v1/trace", {"input": "w1", "model": name}),
        served.ask(f"/v1/models/{coded}"),
        served.ask(f"/?model={coded}"),
        served.ask(f"/answers/{coded}"),
    ]
    assert [each.status for each in asked] == [404] * 5
    assert {each.headers["content-type"] for each in asked} == {"application/json"}


TEXTS = (
    "w1 </script><script>alert(1)</script>",
    "w1 <img src=x onerror=alert(1)>",
    "w1 <!-- <script>",
    "w1 --> ]]> </style>",
    "w1 </title><svg onload=alert(1)>",
    "w1 ' onload='alert(1)",
    'w1 " onload="alert(1)',
    "w1 &lt;b&gt; &quot; &#39;",
    "w1 ${alert(1)} `x`",
    "w1 \u2028 \u2029 \\u003c",
    "w1 javascript:alert(1)",
    "w1 <base href=https://evil.example>",
    "w1 {{7*7}} {% x %}",
)


class Tags(HTMLParser):
    """The elements of a page, with the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: Counter[tuple[str, ...]] = Counter()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        self.found[tag, *(name for name, _ in attrs)] += 1


@pytest.fixture(scope="module")
def plain(served: Served) -> Counter[tuple[str, ...]]:
    """The elements of a page of a text that means no harm."""
    return Tags(served.ask("/v1/trace", {"input": "w1", "html": True}).body["html"]).found


@pytest.mark.parametrize("text", TEXTS)
def test_texts_in_pages(served: Served, plain: Counter[tuple[str, ...]], text: str) -> None:
    """A text makes no element and no attribute."""
    told = served.ask("/v1/trace", {"input": text, "html": True})
    assert told.status == 200
    assert Tags(told.body["html"]).found == plain
    assert (
        served.ask("/v1/page", {"text": text, "second": text}).headers["content-type"] == "application/json"
    )


def test_names_in_pages(folder: Path) -> None:
    """Nor does the name of a model, here of all those texts."""
    name, model = " ".join(TEXTS), regard.load(folder)
    with TestClient(app_of({name: model, "w1": model})) as client:
        pages = [client.get("/", params={"model": each}) for each in (name, "w1")]
    assert [each.status_code for each in pages] == [200, 200]
    assert Tags(pages[0].text).found == Tags(pages[1].text).found
    assert "script-src" in pages[0].text
    assert pages[0].headers["x-content-type-options"] == "nosniff"


def test_methods(served: Served) -> None:
    """What a path knows is told; a body is not waited for."""
    for path, allowed in {"/v1/embeddings": "POST", "/health": "GET", "/v1/models/tiny": "GET"}.items():
        for method in ("PUT", "PATCH", "DELETE", "QUERY", "TRACE", "GET" if allowed == "POST" else "POST"):
            told = said(
                served, f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n".encode()
            )
            assert told[9:12] == b"405", told
            assert f"allow: {allowed}".encode() in told.lower().replace(
                allowed.lower().encode(), allowed.encode()
            )
            assert json.loads(told.partition(b"\r\n\r\n")[2])["error"]["type"] == "invalid_request_error"
