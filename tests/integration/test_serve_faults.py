"""What clients do wrong, and what fails, on a real socket: it costs only who did it, and nothing hangs."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from integration.forked import wait_for
from integration.served import PATIENCE_S, Served, posted, tiny

LONG = ["w1 w2 w3 w4 w5 w6 w7 w8 w9"]

BODY_S = 0.4
SLACK_S = 10.0  # for a busy machine; what never ends takes 75
"""In which a body has to arrive."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[Served]:
    served = Served(folder, max_queue=20_000, body_timeout=BODY_S, max_body=100_000)
    yield served
    served.close()


@pytest.fixture
def served(shared: Served) -> Iterator[Served]:
    """The server of all tests, with nothing left to do; it must be well afterwards."""
    shared.computed.clear()
    yield shared
    shared.go()
    wait_for(lambda: shared.engine.queue.tokens == 0)
    assert shared.embed("w3 w5").status == 200
    assert shared.ask("/health/ready").status == 200


def leave(served: Served, text: str) -> None:
    """Ask for a text, and go once it waits."""
    before, admitted = served.engine.queue.tokens, served.admitted
    connection = served.connect(posted(json.dumps({"input": text}).encode()))
    wait_for(lambda: served.admitted > admitted)
    connection.close()
    wait_for(lambda: served.engine.queue.tokens == before)


def test_who_leaves_costs_nothing(served: Served) -> None:
    served.hold()
    first = served.later("w1")
    second = served.later("w2 w3")
    for _ in range(5):
        leave(served, "w4 w5 w6")
    third = served.later("w7")
    served.go()
    answers = [each.answer for each in (first, second, third)]
    assert [each.status for each in answers] == [200] * 3
    assert sum(served.computed) == 3
    expected = served.engine.model.embed(["w1", "w2 w3", "w7"])
    np.testing.assert_allclose([each.vectors[0] for each in answers], expected, atol=2e-6)


def test_who_leaves_before_all_others_ends_nothing(served: Served) -> None:
    """Nothing waits beside them, neither for the model nor for the tokenizer."""
    for _ in range(30):
        served.connect(posted(b'{"input": "w1 w2"}')).close()
        time.sleep(0.002)
    assert served.embed("w8").status == 200


def test_a_full_queue_refuses_at_once(served: Served) -> None:
    served.hold()
    accepted = [served.later(LONG * 700) for _ in range(3)]
    begun = time.monotonic()
    refused = served.embed(["w1 w2 w3"] * 2000)
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.body["error"]["code"] == "queue_full"
    assert served.ask("/health/live").status == 200
    assert served.ask("/health/ready").status == 200
    assert time.monotonic() - begun < SLACK_S
    assert not any(each.is_done for each in accepted)
    served.go()
    assert [each.answer.status for each in accepted] == [200] * 3


def test_what_cannot_be_answered_in_time_is_refused(folder: Path) -> None:
    """By the speed that was seen: 2,048 tokens in at least six tenths of a second, however many threads."""
    served = Served(folder, timeout=12.0)
    try:
        served.pause = 0.15 * served.engine.queue.threads
        assert served.embed(LONG * 600).status == 200
        served.hold()
        accepted = [served.later(LONG * 1500) for _ in range(2)]
        refused = served.embed("w1")
        assert served.ask("/v1/embeddings", raw=b"{").status == 429  # before it is parsed
        served.pause = 0.0
        served.go()
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert [each.answer.status for each in accepted] == [200, 200]
        assert served.embed("w1").status == 200
    finally:
        served.close()


def test_functions_and_texts_take_turns(served: Served) -> None:
    """However many texts wait, a function of the model is run after the turns that have begun."""
    served.hold()
    texts = [served.later(LONG * 60) for _ in range(10)]
    turns: list[int] = []
    before = served.admitted
    called = served.engine.call(lambda model: turns.append(len(served.computed)), tokens=1)
    caller = threading.Thread(target=asyncio.run, args=(called,))
    caller.start()
    wait_for(lambda: served.admitted > before)
    served.go()
    caller.join(PATIENCE_S)
    assert turns == [served.engine.queue.threads]
    assert [each.answer.status for each in texts] == [200] * 10


def test_one_bad_text_fails_no_stranger(served: Served) -> None:
    served.hold()
    good = [served.later(f"w{n}") for n in range(3)]
    bad = [served.later(text) for text in (" ", [[31]], ["w1", ""])]
    served.go()
    assert [each.answer.status for each in bad] == [400] * 3
    assert [each.answer.status for each in good] == [200] * 3


def test_many_texts_keep_their_order(served: Served) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{word}" for word in rng.integers(0, 31, size)) for size in rng.integers(1, 10, 1000)]
    answer = served.embed(texts)
    assert [each["index"] for each in answer.body["data"]] == list(range(1000))
    for place in range(0, 1000, 40):
        [single] = served.embed(texts[place]).vectors
        np.testing.assert_allclose(answer.vectors[place], single, rtol=0, atol=2e-6 * np.abs(single).max())


def test_a_short_request_does_not_wait_for_a_long_one(served: Served) -> None:
    served.hold()
    long = served.later(LONG * 1500)
    short = served.later("w1")
    served.go()
    assert short.answer.status == 200
    assert not long.is_done
    assert len(long.answer.vectors) == 1500


def read_all(connection: socket.socket) -> bytes:
    connection.settimeout(10)
    with connection:
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_body_that_does_not_come(served: Served) -> None:
    slow = [served.connect(posted(b'{"input": ', length=1000)) for _ in range(20)]
    begun = time.monotonic()
    assert served.embed("w1").status == 200
    for connection in slow:
        told = read_all(connection)
        assert told.startswith(b"HTTP/1.1 408")
        assert b'"error"' in told
    assert time.monotonic() - begun < BODY_S + SLACK_S


def test_a_body_that_drips(served: Served) -> None:
    """A byte now and then is no body either."""
    connection = served.connect(posted(b"", length=1000))
    begun = time.monotonic()
    connection.settimeout(0.05)
    told = b""
    while not told and time.monotonic() - begun < BODY_S + SLACK_S:
        try:
            connection.sendall(b" ")
            told = connection.recv(1000)
        except TimeoutError:
            pass
    connection.close()
    assert told.startswith(b"HTTP/1.1 408")
    assert time.monotonic() - begun < BODY_S + SLACK_S


UNREAD: dict[str, tuple[bytes, bytes]] = {
    "200": (b"GET /health/live HTTP/1.1\r\nHost: tiny\r\n", b""),
    "401": (b"POST /v1/embeddings HTTP/1.1\r\nHost: tiny\r\n", b"Content-Type: application/json\r\n"),
    "404": (b"POST /nowhere HTTP/1.1\r\nHost: tiny\r\n", b"Content-Type: application/json\r\n"),
    "405": (b"PUT /v1/embeddings HTTP/1.1\r\nHost: tiny\r\n", b"Authorization: Bearer key\r\n"),
    "415": (b"POST /v1/embeddings HTTP/1.1\r\nHost: tiny\r\n", b"Authorization: Bearer key\r\n"),
}
"""Requests that are answered before their body is there."""


def test_a_body_that_drips_after_its_answer(folder: Path) -> None:
    """The answer is there at once, and the connection ends when the time of a body has."""
    served = Served(folder, body_timeout=1.0, keys=("key",))
    try:
        begun = time.monotonic()
        dripping = {
            status: served.connect(first + more + b"Content-Length: 1000\r\n\r\n")
            for status, (first, more) in UNREAD.items()
        }
        for status, connection in dripping.items():
            assert connection.recv(65536).startswith(f"HTTP/1.1 {status}".encode())
        assert time.monotonic() - begun < 1.0
        going = list(dripping.values())
        while going:
            assert time.monotonic() - begun < SLACK_S
            time.sleep(0.05)
            for connection in list(going):
                try:
                    connection.sendall(b" ")
                except OSError:
                    going.remove(connection)
                    connection.close()
        assert time.monotonic() - begun > 0.9
    finally:
        served.die()
        served.ask("/v1/embeddings", {"input": "w1"}, Authorization="Bearer key")
        served.close()


def test_after_a_body_that_came_late_a_connection_goes_on(served: Served) -> None:
    ask = b"GET /health/live HTTP/1.1\r\nHost: tiny\r\n"
    with served.connect(ask + b"Content-Length: 3\r\n\r\n") as connection:
        assert b"200 OK" in connection.recv(65536)
        connection.sendall(b"abc")
        time.sleep(BODY_S * 2)
        connection.sendall(ask + b"\r\n")
        assert b"200 OK" in connection.recv(65536)


def hungry(served: Served, requests: int) -> socket.socket:
    """A connection with little room, on which much is asked for."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(PATIENCE_S)
    connection.connect(("127.0.0.1", served.port))
    connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: tiny\r\n\r\n" * requests)
    return connection


def is_held(served: Served, connection: socket.socket) -> bool:
    """Whether the server has its end of a connection open: the kernel lists a closed one without inode."""
    ends = f":{served.port:04X}", f":{connection.getsockname()[1]:04X}"
    rows = (row.split() for row in Path("/proc/net/tcp").read_text().splitlines())
    return any(row[1].endswith(ends[0]) and row[2].endswith(ends[1]) and row[9] != "0" for row in rows)


def test_who_does_not_read_is_cut_off(served: Served, capfd: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    with hungry(served, 200) as connection:
        wait_for(lambda: is_held(served, connection))
        wait_for(lambda: not is_held(served, connection))
        assert BODY_S * 0.9 < time.monotonic() - begun < 4 * BODY_S + SLACK_S
    assert "error" not in capfd.readouterr().err


def test_who_reads_slowly_gets_all(served: Served) -> None:
    """More than the least, and for longer than the time."""
    most = 60 * int(served.ask("/openapi.json").headers["content-length"])
    with hungry(served, 60) as connection:
        begun, read = time.monotonic(), 0
        while read < most:
            part = connection.recv(32_768)
            assert part
            read += len(part)
            if time.monotonic() - begun < 2.5 * BODY_S:
                time.sleep(0.004)
        assert time.monotonic() - begun > 2 * BODY_S


WRONG: dict[str, tuple[bytes, bytes]] = {
    "garbage": (bytes(range(256)) * 8, b"400"),
    "tls": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), b"400"),
    "truncated": (posted(b'{"input": "w1'), b"400"),
    "no-utf8": (posted(b'{"input": "\xff"}'), b"400"),
    "lone-surrogate": (posted(b'{"input": "\\ud800"}'), b"400"),
    "nan": (posted(b'{"input": NaN}'), b"400"),
    "deep": (posted(b'{"input": ' + b"[" * 40_000 + b"]" * 40_000 + b"}"), b"400"),
    "long-number": (posted(b'{"input": [' + b"9" * 5_000 + b"]}"), b"400"),
    "two-lengths": (posted(b"{}", "Content-Length: 7"), b"400"),
    "too-large": (posted(b" " * 100_001), b"413"),
    "announced": (posted(b"", length=10**12), b"413"),
    "wrong-kind": (posted(b"input=w1").replace(b"application/json", b"text/plain"), b"415"),
    "nowhere": (b"GET /../../etc/passwd HTTP/1.1\r\nHost: tiny\r\n\r\n", b"404"),
    "wrong-method": (b"DELETE /v1/embeddings HTTP/1.1\r\nHost: tiny\r\n\r\n", b"405"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_bytes(served: Served, name: str) -> None:
    sent, status = WRONG[name]
    with served.connect(sent) as connection:
        told = connection.recv(65536)
    assert told[9:12] == status, told


def test_endless_headers(served: Served) -> None:
    """A client that never ends its headers is cut off; its bytes are not collected."""
    with (
        served.connect(b"GET /health/live HTTP/1.1\r\nHost: tiny\r\n") as connection,
        pytest.raises(OSError, match=r"reset|[Bb]roken pipe"),
    ):
        connection.sendall((b"X-Long: " + b"x" * 65_000 + b"\r\n") * 300)


def test_headers_that_do_not_come(served: Served) -> None:
    """Neither at first, nor on a connection on which a request was answered."""
    silent, begun, answered = (
        served.connect(sent)
        for sent in (
            b"",
            b"POST /v1/embeddings HTTP/1.1\r\nHost: ti",
            b"GET /health/live HTTP/1.1\r\nHost: tiny\r\n\r\n",
        )
    )
    assert b"200" in answered.recv(65536)
    start = time.monotonic()
    answered.sendall(b"GET /heal")
    assert [read_all(each) for each in (silent, begun, answered)] == [b""] * 3
    assert BODY_S * 0.9 < time.monotonic() - start < BODY_S + SLACK_S


def test_a_body_in_chunks(served: Served) -> None:
    parts = [b'{"input"', b': "w1 w2"}']
    chunks = b"".join(f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts) + b"0\r\n\r\n"
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: tiny\r\nContent-Type: application/json\r\n"
    connection = served.connect(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    connection.close()


def test_a_fault_of_the_model_is_its_request_s(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    real = served.engine.embedder.vectors

    def faulty(passages: Any, **named: bool) -> Any:
        if any(passage.tokens == 3 for passage in passages):
            raise RuntimeError("a fault of the test")
        return real(passages, **named)

    monkeypatch.setattr(served.engine.embedder, "vectors", faulty)
    served.hold()
    others = [served.later("w1"), served.later("w2 w4")]
    bad = served.later("w1 w2 w3")
    served.go()
    assert bad.answer.status == 500
    assert "fault" not in json.dumps(bad.answer.body)
    assert [each.answer.status for each in others] == [200, 200]


def test_when_the_model_ends_nobody_waits(folder: Path) -> None:
    served = Served(folder)
    served.hold()
    waiting = [served.later(f"w{n}") for n in range(8)]
    begun = time.monotonic()
    served.die()
    assert [each.answer.status for each in waiting] == [503] * 8
    wait_for(lambda: served.ended)
    assert time.monotonic() - begun < SLACK_S
    assert served.ended == ["a model's thread has ended: SystemExit: a fault of the test"]
    served.close()


def test_without_its_thread_it_is_not_ready(folder: Path) -> None:
    """Whoever asks before the process has ended is told so."""
    from starlette.testclient import TestClient

    from regard.serving import app_of

    app = app_of({"tiny": regard.load(str(folder))})
    engine = app.state.service.engines["tiny"]
    with TestClient(app) as client:
        wait_for(lambda: engine.is_loaded)
        engine.embedder.vectors = raises(SystemExit)  # type: ignore[method-assign]
        assert client.post("/v1/embeddings", json={"input": "w1"}).status_code == 503
        assert client.post("/v1/embeddings", json={"input": "w1"}).status_code == 503
        assert client.get("/health/ready").status_code == 503
        assert client.get("/health/live").status_code == 200


def raises(error: type[BaseException]) -> Callable[..., Any]:
    def function(*arguments: object, **named: object) -> None:
        raise error

    return function
