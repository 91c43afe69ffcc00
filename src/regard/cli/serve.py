"""`regard serve`: models over HTTP."""

import ctypes
import faulthandler
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import typer

from regard.cli._input import load_model
from regard.cli._options import DEFAULT_MODEL, flag, option
from regard.cli._output import say, status
from regard.core.arguments import Count
from regard.core.errors import InputError, RegardError

_AS_TYPED: Final = (
    *(f"max_{what}" for what in ("queue", "tokens", "texts", "body", "memory")),
    *("index", "precision", "timeout", "access_log"),
)
_ARENAS: Final = -8  # M_ARENA_MAX of malloc.h
_PACKAGES: Final = ("fastapi", "uvicorn", "httptools", "orjson", "prometheus-client")


def serve(
    ctx: typer.Context,
    model: list[str] | None = option(
        "--model -m [NAME=]MODEL",
        "A folder or a name on the hub, and what requests call it; give it again for more.",
    ),
    index: Path | None = option("--index INDEX", "A concordance to search, as regard index makes it."),
    host: str = option("--host ADDRESS", "0.0.0.0 is for all networks.", "127.0.0.1"),
    port: int = option("--port -p N", "0 takes a free one.", 8000),
    allow_host: list[str] | None = option(
        "--allow-host NAME", "A name by which it is called, beside localhost and addresses; * for any."
    ),
    allow_origin: list[str] | None = option(
        "--allow-origin ORIGIN", "Whose pages may call it from a browser: https://example.org."
    ),
    api_key_file: Path | None = option("--api-key-file FILE", "Keys, one a line; requests must carry one."),
    precision: str = option("--precision TYPE", "Of embeddings, as in regard embed.", "float32"),
    dimensions: str | None = option(
        "--dimensions N[,N...]", "Sizes that vectors may be cut to, beside those that a model's card names."
    ),
    max_queue: Count = option("--max-queue TOKENS", "More tokens may not wait: 429.", 2**18),
    max_tokens: Count = option("--max-tokens TOKENS", "The most of one request.", 2**17),
    max_texts: Count = option("--max-texts N", "The most of one request.", 2048),
    max_body: Count = option("--max-body BYTES", "The most of one request.", 2**23),
    max_memory: Count | None = option(
        "--max-memory BYTES", "Of weights: models are loaded when asked for, and let go of."
    ),
    timeout: float = option("--timeout SECONDS", "In which a request is answered.", 60.0),
    drain_delay: float = option(
        "--drain-delay SECONDS", "After SIGTERM: not ready, but requests are taken.", 2.0
    ),
    drain: float = option("--drain SECONDS", "Then: in which what was taken is answered.", 30.0),
    access_log: bool = flag(
        "--access-log/--no-access-log", "A line of JSON a request, without its text.", True
    ),
) -> None:
    """Serve models over HTTP: OpenAI's embeddings API, attention, and the concordance.

    What all clients ask for is computed together. SIGTERM ends it without losing what was accepted.
    /health/ready and /metrics are for who operates it, /openapi.json describes the rest.
    """
    # Before the library is imported, which reads it then.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # which pays for many texts at once only
    if sys.platform == "linux":
        # glibc keeps what threads give back, in a heap for each: memory would grow for long.
        getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)(_ARENAS, 2)
    # A crash in C says where.
    if not faulthandler.is_enabled():
        faulthandler.enable(2)
    # Until the server has handlers of its own.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, _end)
    serving = _imported()
    settings = serving.Settings(
        keys=() if api_key_file is None else _keys(api_key_file),
        # None allows any name: see DNS rebinding.
        hosts=None if "*" in (allow_host or ()) else (host, *(allow_host or ())),
        origins=tuple(allow_origin or ()),
        dimensions=_sizes(dimensions),
        **{name: ctx.params[name] for name in _AS_TYPED},
    )
    # The port is taken before models are loaded, which takes long.
    with serving.listen(host, port) as on:
        app = serving.app_of(_named(model or [DEFAULT_MODEL], max_memory is None), settings=settings)
        # IPv6 addresses stand in brackets.
        at = f"http://{f'[{host}]' if ':' in host else host}:{on.getsockname()[1]}"
        started = partial(say, f"{', '.join(app.state.service.engines)} at {at}")
        ends = {"drain_delay": drain_delay, "drain": drain, "stopping": _tell}
        failed = serving.serve(app, on, started=started, **ends)
    # What went wrong in the server, in words.
    if failed is not None:
        say(failed)
    if app.state.service.is_at_work:  # torch aborts when Python ends beside it
        os._exit(failed is not None)
    raise typer.Exit(failed is not None)


def _end(number: int, _: FrameType | None) -> None:
    """Before the server has handlers. An exception would be lost where what is being imported catches all."""
    _tell(f"stopped by {signal.Signals(number).name}")
    os._exit(128 + number)


def _tell(message: str) -> None:
    """As `say`, in a signal's handler: stderr may be half written."""
    with suppress(OSError):
        os.write(2, f"regard: {message}\n".encode())


def _imported() -> Any:
    try:
        with status("starting"):
            from regard import serving
    except ImportError as error:
        # Only a package of the extra that is not there; anything else is a fault of ours.
        if (error.name or "").partition(".")[0].replace("_", "-") in _PACKAGES:
            from regard.core.extras import missing

            raise missing("serving needs", error, *_PACKAGES) from error
        raise RegardError(f"the server cannot start: {error}") from error
    return serving


def _named(models: list[str], load: bool) -> dict[str, Any]:
    """Models by the names that requests give; not loaded, the names under which they are found."""
    named: dict[str, Any] = {}
    for model in models:
        # NAME=MODEL; without a name the folder's, or the model's own.
        name, _, where = model.rpartition("=")
        name = name or (Path(where).resolve().name if Path(where).is_dir() else where)
        if name in named:
            raise InputError(f"--model {name!r} is there twice; give one of them another name: NAME={where}.")
        named[name] = load_model(where) if load else where
    return named


def _keys(file: Path) -> tuple[str, ...]:
    try:
        lines = file.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise InputError(f"--api-key-file {str(file)!r} cannot be read ({cause}).") from None
    keys = tuple(line.strip() for line in lines if line.strip())
    if not keys:
        raise InputError(f"--api-key-file {str(file)!r} must hold a key, one a line; it is empty.")
    return keys


def _sizes(words: str | None) -> tuple[int, ...]:
    try:
        return () if words is None else tuple(int(word) for word in words.split(","))
    except ValueError:
        raise InputError(f"--dimensions must be whole numbers with commas; got {words!r}.") from None
