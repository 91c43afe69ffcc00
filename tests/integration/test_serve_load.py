"""The server under load, for minutes: too much, all kinds together, and whatever its description allows.

`make slow` runs this; the default model in a process of its own, and clients on the same cores.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from _serve_load import arrivals, closed, request

from regard.concordance import build_index

pytestmark = pytest.mark.slow

SCHEMATHESIS = Path(__file__).parents[2] / "build/slow"
"""A folder of its own: pytest would load what it brings in every other test."""

SOAK_S = float(os.environ.get("REGARD_SOAK_S", "180"))
READY_S = 120.0
TEXT = "The river bends twice before the town, and on the inside of the second bend the bank is soft. "


class Process:
    """`regard serve`."""

    def __init__(self, err: Path, *words: str, port: int = 0) -> None:
        command = [sys.executable, "-m", "regard", "serve", "--port", str(port), *words]
        with err.open("wb") as file:
            self.process = subprocess.Popen(command, stderr=file)
        until = time.monotonic() + READY_S
        while " at http" not in err.read_text():
            assert self.process.poll() is None, err.read_text()
            assert time.monotonic() < until
            time.sleep(0.1)
        self.url = next(word for word in err.read_text().split() if word.startswith("http"))
        self.port = int(self.url.rpartition(":")[2])
        while httpx.get(f"{self.url}/health/ready").status_code != 200:
            assert time.monotonic() < until
            time.sleep(0.1)

    def megabytes(self) -> float:
        """What it holds in memory."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

    def end(self, with_signal: signal.Signals) -> int:
        self.process.send_signal(with_signal)
        return self.process.wait(60)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Process]:
    server = Process(tmp_path / "err", "--timeout", "10")
    yield server
    if server.process.poll() is None:
        assert server.end(signal.SIGTERM) in (0, -signal.SIGTERM)


def run(url: str, work: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
    """What a coroutine of a client gives."""

    async def with_client() -> Any:
        limits = httpx.Limits(max_connections=2000, max_keepalive_connections=200)
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as client:
            return await work(client)

    return asyncio.run(with_client())


async def embed(client: httpx.AsyncClient, texts: Any) -> httpx.Response:
    return await client.post("/v1/embeddings", json={"input": texts, "encoding_format": "base64"})


def test_four_times_too_much(server: Process) -> None:
    """What is accepted is answered in time, and the rest is refused at once; work goes on."""
    requests = [request(json.dumps({"input": TEXT * 3, "encoding_format": "base64"}).encode())]
    able = asyncio.run(closed(server.port, requests, 32, 8)).rate
    seen = asyncio.run(arrivals(server.port, requests, 4 * able, 20))
    counts = {status: len(seconds) for status, seconds in seen.seconds.items()}
    refused = seen.percentile(50, 429), seen.percentile(99, 429)
    print(f"{able:.1f}/s alone, {seen.rate:.1f}/s then; {counts}; refused after {refused} ms (median, p99)")
    late = counts.get(503, 0) + counts.get(504, 0)
    assert set(counts) <= {200, 429, 503, 504}
    assert late < 0.1 * counts[200]  # than ten seconds, where others have the cores
    assert seen.rate > 0.5 * able  # the clients compute too, on the same cores, and more than before
    assert refused[1] < 1000
    assert httpx.get(f"{server.url}/health/ready").status_code == 200


def test_killed_and_started_again(server: Process, tmp_path: Path) -> None:
    """Clients see a closed connection, not a silence; the port is free at once."""

    async def kill(client: httpx.AsyncClient) -> list[Any]:
        asked = [asyncio.create_task(embed(client, [TEXT] * 50)) for _ in range(8)]
        await asyncio.sleep(1.0)
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
        return await asyncio.gather(*asked, return_exceptions=True)

    begun = time.monotonic()
    answers = run(server.url, kill)
    assert time.monotonic() - begun < 10
    assert any(isinstance(each, httpx.TransportError) for each in answers)
    again = Process(tmp_path / "again", port=server.port)
    assert run(again.url, lambda client: embed(client, "a river bank")).status_code == 200
    assert again.end(signal.SIGTERM) in (0, -signal.SIGTERM)


async def soak(client: httpx.AsyncClient, seconds: float, kept: Callable[[], None]) -> Counter[int]:
    """All kinds of clients at once: short, long, many texts, wrong ones, and ones that leave."""
    seen: Counter[int] = Counter()
    until = time.monotonic() + seconds

    async def ask(draw: random.Random) -> None:
        while time.monotonic() < until:
            kind = draw.random()
            if kind < 0.1:
                task = asyncio.create_task(embed(client, TEXT * 20))
                await asyncio.sleep(draw.random() / 20)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                continue
            texts: Any = [
                f"{draw.random()} {TEXT}"[: draw.randint(1, 100)] for _ in range(draw.randint(1, 16))
            ]
            if kind < 0.2:
                texts = [" ", "a"]
            elif kind < 0.3:
                texts = [[101, draw.randrange(40_000), 102]]
            elif kind < 0.4:
                texts = f"{draw.random()} " + TEXT * draw.randint(1, 12)
            seen[(await embed(client, texts)).status_code] += 1

    async def watch() -> None:
        while time.monotonic() < until:
            kept()
            assert (await client.get("/health/live")).status_code == 200
            await asyncio.sleep(min(10, seconds / 30))

    await asyncio.gather(watch(), *(ask(random.Random(seed)) for seed in range(64)))
    return seen


# httpx leaves the sockets of requests open that are cancelled while they connect.
@pytest.mark.filterwarnings("ignore:unclosed", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_memory_stays(server: Process) -> None:
    held: list[float] = []
    seen = run(server.url, lambda client: soak(client, SOAK_S, lambda: held.append(server.megabytes())))
    third = len(held) // 3
    first, last = max(held[third : 2 * third]), max(held[2 * third :])
    print(f"{dict(seen)}; MB: {[round(each) for each in held]}")
    assert set(seen) <= {200, 400, 429, 503, 504}  # in ten seconds, where others have the cores
    assert seen[200] > 100
    assert last < 1.05 * first + 5


HOOKS = """
import schemathesis

@schemathesis.check
def valid_as_described(ctx, response, case):
    # What a description allows may still be more than this model or corpus can do, and is then told so.
    if response.status_code == 400 and case.meta.generation.mode.is_positive:
        assert response.json()["error"]["code"] not in ("invalid_body", "invalid_json"), response.text
"""
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "valid_as_described",
)


@pytest.fixture
def all_kinds(tmp_path: Path) -> Iterator[Process]:
    """With a model that chats and a corpus."""
    (tmp_path / "corpus.txt").write_text("The bank of the river.\nShe went to the bank for money.\n", "utf-8")
    build_index([tmp_path / "corpus.txt"], tmp_path / "corpus")
    words = ["-m", "sentence-transformers/all-MiniLM-L6-v2", "-m", "smollm2"]
    server = Process(tmp_path / "err", "--timeout", "10", "--index", str(tmp_path / "corpus"), *words)
    yield server
    assert server.end(signal.SIGTERM) in (0, -signal.SIGTERM)


def test_nothing_that_is_described_fails(all_kinds: Process, tmp_path: Path) -> None:
    """schemathesis asks what the description allows, and what it does not; answers are as described."""
    server = all_kinds
    if not SCHEMATHESIS.is_dir():
        pytest.skip(f"`make slow` installs schemathesis into {SCHEMATHESIS}")
    words = ["run", f"{server.url}/openapi.json", "--seed", "1", "--no-color", "--continue-on-failure"]
    words += ["--max-examples", "1000", "--max-time", os.environ.get("REGARD_FUZZ_S", "300")]
    (tmp_path / "described.py").write_text(HOOKS, "utf-8")
    # Too large is no wrong answer to what is not allowed either.
    wrong = '["400", "401", "404", "405", "413", "415"]'
    settings = f"[checks.negative_data_rejection]\nexpected-statuses = {wrong}\n"
    (tmp_path / "schemathesis.toml").write_text(settings, "utf-8")
    path = os.pathsep.join([str(SCHEMATHESIS), str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", *words, "--checks", ",".join(CHECKS)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path, "SCHEMATHESIS_HOOKS": "described"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
