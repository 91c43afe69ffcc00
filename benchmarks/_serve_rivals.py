"""Servers of embeddings that others would start, and ours, each by its command.

python benchmarks/_serve_rivals.py FOLDER PORT            FastAPI and sentence-transformers
python benchmarks/_serve_rivals.py FOLDER PORT PRECISION  FastAPI and our engine, in short
"""

import asyncio
import os
import sys
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

KEPT_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "INFINITY_ANONYMOUS_USAGE_STATS": "0",
    # transformers 5 has neither what these two call.
    "INFINITY_BETTERTRANSFORMER": "0",
    "INFINITY_MODEL_WARMUP": "0",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Neither telemetry nor a look at the hub."""


def command(name: str, folder: Path, port: int, infinity: Path | None) -> tuple[list[str], dict[str, str]]:
    """How a server is started: its words, and its environment.

    Args:
        name: "regard-float32", "regard-fast", "sketch-float32", "sketch-fast", "fastapi-st" or "infinity".
        folder: of the model.
        port: on 127.0.0.1.
        infinity: the folder into which infinity-emb was installed.
    """
    own = [sys.executable, "-m"]
    environment = os.environ | KEPT_QUIET
    if name.startswith(("fastapi", "sketch")):
        precision = [name.removeprefix("sketch-")] if name.startswith("sketch") else []
        return [sys.executable, __file__, str(folder), str(port), *precision], environment
    address = ["--host", "127.0.0.1", "--port", str(port)]
    if name == "infinity":
        environment["PYTHONPATH"] = f"{infinity}{os.pathsep}{environment.get('PYTHONPATH', '')}"
        words = ["--model-id", str(folder), "--served-model-name", "model", "--url-prefix", "/v1"]
        on = ["--engine", "torch", "--device", "cpu"]
        return [*own, "infinity_emb.cli", "v2", *words, *on, *address], environment
    words = ["-m", f"model={folder}", "--precision", name.removeprefix("regard-")]
    return [*own, "regard", "serve", *words, *address], environment


def app(folder: Path) -> Any:
    """Twenty lines: each request is encoded by itself, on a thread of the pool."""
    from fastapi import FastAPI
    from pydantic import BaseModel
    from sentence_transformers import SentenceTransformer

    class Wanted(BaseModel):
        model: str
        input: str | list[str]

    model = SentenceTransformer(str(folder), device="cpu")
    server = FastAPI()

    @server.post("/v1/embeddings")
    def embeddings(wanted: Wanted) -> dict[str, Any]:
        texts = [wanted.input] if isinstance(wanted.input, str) else wanted.input
        vectors = model.encode(texts, normalize_embeddings=True, show_progress_bar=False)
        data = [
            {"object": "embedding", "index": place, "embedding": vector.tolist()}
            for place, vector in enumerate(vectors)
        ]
        return {"object": "list", "model": wanted.model, "data": data}

    return server


def sketch(folder: Path, precision: Any) -> Any:
    """Some thirty: one thread embeds together what waits. No limits, keys, metrics, logs, or end."""
    import base64

    import orjson
    from fastapi import FastAPI, Response
    from pydantic import BaseModel

    import regard
    from regard.embedding import Embedder, Request

    class Wanted(BaseModel):
        model: str
        input: str | list[str]
        encoding_format: str = "float"

    embedder = Embedder(regard.load(folder).loaded, Request(precision=precision))
    waiting: SimpleQueue[Any] = SimpleQueue()
    server = FastAPI()

    def give(done: list[tuple[asyncio.Future[Any], Any]]) -> None:
        for future, vectors in done:
            if not future.cancelled():
                future.set_result(vectors)

    def work() -> None:
        while True:
            jobs = [waiting.get()]
            while len(jobs) < 64 and not waiting.empty():
                jobs.append(waiting.get())
            vectors = iter(embedder.sentences([text for texts, _, _ in jobs for text in texts]).vectors)
            done = [(future, [next(vectors) for _ in texts]) for texts, future, _ in jobs]
            jobs[0][2].call_soon_threadsafe(give, done)

    @server.post("/v1/embeddings")
    async def embeddings(wanted: Wanted) -> Response:
        texts = [wanted.input] if isinstance(wanted.input, str) else wanted.input
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        waiting.put((texts, future, loop))
        vectors = await future
        if wanted.encoding_format == "base64":
            vectors = [base64.b64encode(vector).decode() for vector in vectors]
        data = [
            {"object": "embedding", "index": place, "embedding": vector}
            for place, vector in enumerate(vectors)
        ]
        told = {"object": "list", "model": wanted.model, "data": data}
        return Response(orjson.dumps(told, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")

    Thread(target=work, daemon=True).start()
    return server


if __name__ == "__main__":
    import uvicorn

    made = sketch(Path(sys.argv[1]), sys.argv[3]) if len(sys.argv) > 3 else app(Path(sys.argv[1]))
    uvicorn.run(made, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning", access_log=False)
