"""Embeddings over HTTP, beside the servers that people start, and beside the engine without a server.

    python benchmarks/bench_serve.py TEXTS [--infinity FOLDER]
        [--servers regard-float32 regard-fast sketch-float32 sketch-fast fastapi-st]
        [--seconds 8] [--repeats 3] [--keep]

TEXTS has one text a line, such as the sentences of the Brown corpus (nltk.org/nltk_data, "brown"). FOLDER is
where infinity-emb was installed: `pip install --target FOLDER --no-deps infinity-emb
prometheus-fastapi-instrumentator posthog einops`, since what it asks for is older than what the others need.

All servers run on 127.0.0.1, each in a process of its own, and load falls on one at a time, in turns; the
median counts. Clients that wait for their answers: 64 with one text a request, 16 with 16 texts as base64, 8
with 32. Then requests of one text at random moments, whether or not others are answered: at seven tenths of
what the slowest server and the server itself can do, and at four times what it can do. The engine embeds the
same texts in batches of 64, in a process of its own. The clients run on the same cores. The last line is the
result as JSON.
"""

import argparse
import asyncio
import base64
import json
import multiprocessing
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
from _harness import finish, machine
from _serve_load import Connection, Seen, arrivals, closed, request
from _serve_rivals import command

import regard

OURS = ("regard-float32", "regard-fast")
READY_S = 120
WARM_S = 2.0
TOLERANCE = {"regard-fast": 0.05, "sketch-fast": 0.05}


@dataclass(frozen=True)
class Load:
    """Clients, the texts of each of their requests, and how they want the vectors."""

    clients: int
    texts: int
    encoding: str

    def __str__(self) -> str:
        return f"{self.clients} x {self.texts} {self.encoding}"

    def requests(self, texts: Sequence[str]) -> list[bytes]:
        """What is sent, in turn."""
        return [
            request(json.dumps({"model": "model", "input": some, "encoding_format": self.encoding}).encode())
            for some in cut(texts, self.texts)
            if len(some) == self.texts
        ]


def cut(texts: Sequence[str], size: int) -> list[list[str]]:
    """In pieces of a size."""
    return [list(texts[start : start + size]) for start in range(0, len(texts), size)]


LOADS = (Load(64, 1, "float"), Load(16, 16, "base64"), Load(8, 32, "float"))


class Server:
    """One of those that are compared."""

    def __init__(self, name: str, folder: Path, infinity: Path | None) -> None:
        self.name = name
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        words, environment = command(name, folder, self.port, infinity)
        self._process = subprocess.Popen(
            words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    async def vectors(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        """Those of texts, once it answers."""
        wanted = request(json.dumps({"model": "model", "input": list(texts)}).encode())
        until = time.monotonic() + READY_S
        while True:
            try:
                status, body = await (await Connection.to(self.port)).ask(wanted)
                break
            except OSError:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"{self.name} does not start") from None
                await asyncio.sleep(0.2)
        assert status == 200, body
        return np.array([decoded(each["embedding"]) for each in json.loads(body)["data"]])

    def seconds(self) -> float:
        """Of processor time that it has taken, its threads together."""
        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    def end(self) -> None:
        """Stop it."""
        self._process.terminate()
        self._process.wait()


def decoded(vector: Any) -> np.ndarray[Any, Any]:
    """A vector of an answer: a list, or base64 of float32."""
    return np.frombuffer(base64.b64decode(vector), "<f4") if isinstance(vector, str) else np.asarray(vector)


def embed(pipe: Pipe, precision: Any, texts: list[str]) -> None:
    """The engine without a server, in a process of its own, whenever asked to."""
    model = regard.load()
    while pipe.recv():
        start = time.perf_counter()
        for some in cut(texts, 64):
            model.embed(some, precision=precision)
        pipe.send(len(texts) / (time.perf_counter() - start))


class Engine:
    """The rate of the engine, in texts a second."""

    def __init__(self, precision: str, texts: list[str]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=embed, args=(theirs, precision, texts), daemon=True)
        self._process.start()
        self.rate()

    def rate(self) -> float:
        """Once over its texts."""
        self._pipe.send(True)
        return float(self._pipe.recv())

    def end(self) -> None:
        """Let the process go."""
        self._pipe.send(False)
        self._process.join()


def check(servers: Sequence[Server], texts: Sequence[str]) -> None:
    """All answer with the library's vectors, up to rounding."""
    exact = np.asarray(regard.load().embed(list(texts)))
    for server in servers:
        got = asyncio.run(server.vectors(texts))
        cosines = (got * exact).sum(1) / np.linalg.norm(got, axis=1) / np.linalg.norm(exact, axis=1)
        assert cosines.min() > 1 - TOLERANCE.get(server.name, 1e-4), (server.name, cosines.min())


def told(seen: Seen, texts: int) -> dict[str, float]:
    """What is kept of a run."""
    other = {f"answers_{status}": len(each) for status, each in seen.seconds.items() if status != 200}
    return {
        "texts_per_second": round(seen.rate * texts, 1),
        "p50_ms": round(seen.percentile(50), 1),
        "p99_ms": round(seen.percentile(99), 1),
        **other,
    }


def middle(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    """The median of each figure."""
    return {key: round(median(run.get(key, 0.0) for run in runs), 2) for key in runs[0]}


def tell(row: dict[str, Any]) -> None:
    """Print a row, a server a line."""
    print(row["load"])
    for name, each in row.items():
        if name != "load":
            print(f"  {name:15s} {each}", flush=True)


def saturated(
    servers: Sequence[Server], engines: dict[str, Engine], texts: list[str], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Clients that wait for their answers, and the engine, in turns."""
    rows = []
    alone: dict[str, list[float]] = {name: [] for name in engines}
    for load in LOADS:
        requests = load.requests(texts)
        runs: dict[str, list[dict[str, float]]] = {server.name: [] for server in servers}
        for server in servers:
            asyncio.run(closed(server.port, requests, load.clients, WARM_S))
        for _ in range(options.repeats):
            for name, engine in engines.items():
                alone[name].append(engine.rate())
            for server in servers:
                before = server.seconds()
                seen = asyncio.run(closed(server.port, requests, load.clients, options.seconds))
                spent = (server.seconds() - before) / (seen.rate * seen.lasted * load.texts) * 1000
                runs[server.name].append(told(seen, load.texts) | {"cpu_ms_of_a_text": round(spent, 2)})
        rows.append({"load": str(load), **{name: middle(each) for name, each in runs.items()}})
        tell(rows[-1])
    rates = {name: round(median(each), 1) for name, each in alone.items()}
    print("engine", rates)
    return [{"load": "engine, batches of 64", **rates}, *rows]


def open_loop(
    servers: Sequence[Server], rates: dict[str, float], texts: list[str], seconds: float
) -> list[dict[str, Any]]:
    """Requests at random moments: their latency, and what is left of the rate where they are too many."""
    requests = LOADS[0].requests(texts)
    slowest = min(rates.values())
    rows = []
    for times, of_slowest in ((0.7, True), (0.7, False), (4.0, False)):
        row: dict[str, Any] = {"load": f"{times:g} x the rate of {'the slowest' if of_slowest else 'each'}"}
        for server in servers:
            if times > 1 and server.name not in OURS:
                continue  # those queue without a bound
            rate = times * (slowest if of_slowest else rates[server.name])
            seen = asyncio.run(arrivals(server.port, requests, rate, seconds))
            row[server.name] = {"sent_per_second": round(rate, 1), **told(seen, 1)}
            if 429 in seen.seconds:
                row[server.name]["p99_ms_of_429"] = round(seen.percentile(99, 429), 1)
        rows.append(row)
        tell(row)
    return rows


def ratios(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Texts a second over those of the engine at the same precision, and over those of the other servers."""
    alone, *loads = rows
    over: dict[str, dict[str, float]] = {}
    for row in loads:
        for ours in (name for name in OURS if name in row):
            own = row[ours]["texts_per_second"]
            rivals = {name: row[name]["texts_per_second"] for name in row if name not in (*OURS, "load")}
            rivals["engine"] = alone[ours.removeprefix("regard-")]
            for name, rate in rivals.items():
                over.setdefault(ours, {})[f"{row['load']}, {name}"] = round(own / rate, 2)
    return over


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", type=Path)
    parser.add_argument("--infinity", type=Path)
    parser.add_argument("--servers", nargs="+")
    parser.add_argument("--limit", type=int, default=2048)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    lines = [line for line in options.texts.read_text(encoding="utf-8").split("\n") if line.strip()]
    texts = lines[:: max(1, len(lines) // options.limit)][: options.limit]
    names = options.servers or [*OURS, "fastapi-st", *(["infinity"] if options.infinity else [])]
    folder = regard.load().loaded.source.folder
    servers = [Server(name, folder, options.infinity) for name in names]
    precisions = [name.removeprefix("regard-") for name in names if name in OURS]
    engines = {precision: Engine(precision, texts) for precision in precisions}
    try:
        check(servers, texts[:8])
        rows = saturated(servers, engines, texts, options)
        over = ratios(rows)
        rates = {name: each["texts_per_second"] for name, each in rows[1].items() if name != "load"}
        rows += open_loop(servers, rates, texts, options.seconds)
    finally:
        for each in (*servers, *engines.values()):
            each.end()
    print("over", json.dumps(over, indent=1))
    facts = machine("sentence-transformers", "transformers", "fastapi", "uvicorn")
    finish("serve", facts, [*rows, {"over": over}], keep=options.keep)


if __name__ == "__main__":
    main()
