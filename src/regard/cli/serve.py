"""`regard serve`: models over HTTP."""

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli._options import DEFAULT_MODEL, load_model, status
from regard.cli._progress import say
from regard.core.errors import InputError, RegardError


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="[NAME=]MODEL",
            help="A folder or a name on the hub, and what requests call it; give it again for more.",
        ),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option("--index", metavar="INDEX", help="A concordance to search, as regard index makes it."),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="0.0.0.0 is for all networks.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", metavar="N", help="0 takes a free one.")] = 8000,
    api_key_file: Annotated[
        Path | None,
        typer.Option("--api-key-file", metavar="FILE", help="Keys, one a line; requests must carry one."),
    ] = None,
    precision: Annotated[
        str, typer.Option("--precision", metavar="TYPE", help="Of embeddings, as in regard embed.")
    ] = "float32",
    dimensions: Annotated[
        str | None,
        typer.Option(
            "--dimensions", metavar="N[,N...]", help="Sizes that requests may cut vectors to, if trained for."
        ),
    ] = None,
    max_queue: Annotated[
        int, typer.Option("--max-queue", metavar="TOKENS", help="More tokens may not wait: 429.")
    ] = 2**18,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", metavar="TOKENS", help="The most of one request.")
    ] = 2**17,
    max_texts: Annotated[
        int, typer.Option("--max-texts", metavar="N", help="The most of one request.")
    ] = 2048,
    max_body: Annotated[int, typer.Option("--max-body", metavar="BYTES", help="The most of one request.")] = 2
    ** 23,
    max_memory: Annotated[
        int | None,
        typer.Option(
            "--max-memory",
            metavar="BYTES",
            help="Of weights; models are then loaded when asked for, and those not asked for let go.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="In which a request is answered.")
    ] = 60.0,
    drain_delay: Annotated[
        float,
        typer.Option(
            "--drain-delay", metavar="SECONDS", help="After SIGTERM: not ready, but requests are taken."
        ),
    ] = 2.0,
    drain: Annotated[
        float, typer.Option("--drain", metavar="SECONDS", help="Then: in which what was taken is answered.")
    ] = 30.0,
    access_log: Annotated[
        bool, typer.Option("--access-log/--no-access-log", help="A line of JSON a request, without its text.")
    ] = True,
) -> None:
    """Serve models over HTTP: OpenAI's embeddings API, attention, and the concordance.

    One thread a model computes what all clients ask for, together. SIGTERM ends it without losing what was
    accepted. /health/ready and /metrics are for who operates it, /openapi.json describes the rest.
    """
    with status("starting"):
        try:
            from regard.serving import Settings, app_of, listen
            from regard.serving import serve as run
        except ImportError as error:
            from regard.core.extras import missing

            packages = ("fastapi", "uvicorn", "httptools", "orjson", "prometheus-client")
            raise missing("serving needs", error, *packages) from error
    chosen: Any = precision
    settings = Settings(
        keys=() if api_key_file is None else _keys(api_key_file),
        index=index,
        precision=chosen,
        dimensions=_sizes(dimensions),
        max_body=max_body,
        max_texts=max_texts,
        max_tokens=max_tokens,
        max_queue=max_queue,
        max_memory=max_memory,
        timeout=timeout,
        access_log=access_log,
    )
    on = listen(host, port)
    models: dict[str, Any] = {}
    for each in model or [DEFAULT_MODEL]:
        name, _, where = each.rpartition("=")
        models[name or where] = where if max_memory is not None else load_model(where)
    app = app_of(models, settings=settings)
    at = f"http://{f'[{host}]' if ':' in host else host}:{on.getsockname()[1]}"
    names = ", ".join(models)
    dead = run(app, on, drain_delay=drain_delay, drain=drain, started=lambda: say(f"{names} at {at}"))
    if dead is not None:
        raise RegardError(f"a model's thread has ended: {type(dead).__name__}: {dead}")


def _keys(file: Path) -> tuple[str, ...]:
    try:
        lines = file.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        told = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise InputError(f"--api-key-file {str(file)!r} cannot be read ({told}).") from None
    keys = tuple(line.strip() for line in lines if line.strip())
    if not keys:
        raise InputError(f"--api-key-file {str(file)!r} must hold a key, one a line; it is empty.")
    return keys


def _sizes(words: str | None) -> tuple[int, ...]:
    try:
        return () if words is None else tuple(int(word) for word in words.split(","))
    except ValueError:
        raise InputError(f"--dimensions must be whole numbers with commas; got {words!r}.") from None
