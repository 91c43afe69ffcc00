"""A server on a socket of this machine, in a thread, whose model waits when a test says so."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import regard
from integration.forked import Forked, wait_for
from regard.embedding import Passage
from regard.serving import Settings, app_of, listen, serve
from regard.serving._engine import Engine
from regard.serving._jobs import EmbedJob, StepJob
from unit.models.folders import write, write_tokenizer

PATIENCE_S = 60.0


class Answer(NamedTuple):
    """Status, headers, and the body: of JSON what it says, else as it is."""

    status: int
    headers: dict[str, str]
    body: Any

    @property
    def vectors(self) -> list[list[float]]:
        return [each["embedding"] for each in self.body["data"]]


def tiny(folder: Path) -> Path:
    """A model of random numbers that takes eleven tokens, w0 to w30."""
    write_tokenizer(write(folder, "bert"), 31)
    return folder


@contextmanager
def command(*words: object) -> Iterator[tuple[Forked, str]]:
    """`regard serve` as a process of its own, and its address."""
    process = Forked("serve", "--port", "0", *map(str, words))
    line = process.stderr.readline()
    address = re.search(r"http://127\.0\.0\.1:\d+", line)
    assert address is not None, line + process.stderr.read()
    try:
        yield process, address[0]
    finally:
        process.stop()


class Served:
    """The server.

    Attributes:
        computed: how many texts each run of the model had.
        admitted: how many jobs have been lined up.
        pause: seconds that each run takes besides.
        ended: what `serve` returned, once it has.
    """

    def __init__(self, folder: Path, **settings: Any) -> None:
        self._app = app_of({"tiny": regard.load(str(folder))}, settings=Settings(**settings))
        self.engine: Engine = self._app.state.service.engines["tiny"]
        self.computed: list[int] = []
        self.admitted = 0
        self.pause = 0.0
        self.ended: list[str | None] = []
        self._go = threading.Event()
        self._go.set()
        self._fault: BaseException | None = None
        on = listen("127.0.0.1", 0)
        self.port = on.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, args=(on,))
        self._thread.start()
        wait_for(lambda: self.engine.is_loaded or self.engine.dead)
        if self.engine.dead is not None:
            raise self.engine.dead
        wait_for(lambda: self.ask("/health/live").status == 200)
        self._real = self.engine.embedder.vectors
        self.engine.embedder.vectors = self._vectors  # type: ignore[method-assign]
        self._admit = self.engine.queue.admit
        self.engine.queue.admit = self._admitted  # type: ignore[method-assign]

    def _serve(self, on: socket.socket) -> None:
        settings = {"drain_delay": 0.0, "drain": 5.0, "started": lambda: None, "stopping": lambda told: None}
        self.ended.append(serve(self._app, on, **settings))

    def _vectors(self, passages: Sequence[Passage], **named: bool) -> Any:
        self._go.wait(PATIENCE_S)
        time.sleep(self.pause)
        if self._fault is not None:
            raise self._fault
        self.computed.append(len(passages))
        return self._real(passages, **named)

    def _admitted(self, job: EmbedJob | StepJob) -> None:
        self._admit(job)
        self.admitted += 1

    def hold(self) -> None:
        """Let the model wait before its next run."""
        self._go.clear()

    def go(self) -> None:
        """Let it run."""
        self._go.set()

    def die(self) -> None:
        """End the model's thread, by what no code expects there, in its next run."""
        self._fault = SystemExit("a fault of the test")
        self.go()

    def close(self) -> None:
        """End the server: as it ends when a model's thread dies."""
        self.die()
        if self.engine.dead is None:
            self.embed("w1")
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def ask(self, path: str, body: object = None, *, raw: bytes | None = None, **headers: str) -> Answer:
        """A request on a connection of its own."""
        sent = raw if raw is not None else None if body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            kind = {} if sent is None else {"Content-Type": "application/json"}
            connection.request("GET" if sent is None else "POST", path, sent, kind | headers)
            answer = connection.getresponse()
            text = answer.read()
            is_json = answer.headers.get_content_type() == "application/json"
            told = {name.lower(): value for name, value in answer.headers.items()}
            return Answer(answer.status, told, json.loads(text) if is_json else text)
        finally:
            connection.close()

    def embed(self, texts: str | Sequence[str], **fields: object) -> Answer:
        return self.ask("/v1/embeddings", {"input": texts} | fields)

    def later(self, texts: str | Sequence[str], **fields: object) -> Later:
        """The same, without waiting; it is accepted when this returns."""
        before = self.admitted  # not the queue's tokens: they become fewer as soon as a job is read
        later = Later(lambda: self.embed(texts, **fields))
        wait_for(lambda: self.admitted > before or later.is_done)
        return later

    def connect(self, sent: bytes = b"") -> socket.socket:
        """A connection on which bytes were sent."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        connection.sendall(sent)
        return connection


class Later:
    """An answer that is waited for in a thread."""

    def __init__(self, ask: Callable[[], Answer]) -> None:
        self._got: list[Answer | BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(ask,), daemon=True)
        self._thread.start()

    def _run(self, ask: Callable[[], Answer]) -> None:
        try:
            self._got.append(ask())
        except BaseException as error:
            self._got.append(error)

    @property
    def is_done(self) -> bool:
        return bool(self._got)

    @property
    def answer(self) -> Answer:
        self._thread.join(PATIENCE_S)
        [got] = self._got
        if isinstance(got, BaseException):
            raise got
        return got


def posted(body: bytes, *headers: str, length: int | None = None) -> bytes:
    """The bytes of a request, with a length of its body that may be wrong."""
    lines = ["POST /v1/embeddings HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
