"""Servers of embeddings that others would start, and ours, each by its command.

python benchmarks/_serve_rivals.py FOLDER PORT      FastAPI and sentence-transformers, as people write it
"""

import os
import sys
from pathlib import Path
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
        name: "regard-float32", "regard-fast", "fastapi-st" or "infinity".
        folder: of the model.
        port: on 127.0.0.1.
        infinity: the folder into which infinity-emb was installed.
    """
    own = [sys.executable, "-m"]
    environment = os.environ | KEPT_QUIET
    if name == "fastapi-st":
        return [sys.executable, __file__, str(folder), str(port)], environment
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


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app(Path(sys.argv[1])), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
