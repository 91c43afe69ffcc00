"""The application: routes, errors in one form, and the gate that every request passes first."""

import asyncio
import hmac
import os
import re
import secrets
import time
import traceback
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence, Set
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from itertools import count
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard._version import __version__
from regard.api import Model
from regard.core.errors import InputError
from regard.serving import _chat, _completions, _operations, _pages, _traces, _usages, _vectors
from regard.serving._limits import ApiError, Settings
from regard.serving._operations import log
from regard.serving._service import Service
from regard.serving._vectors import BUSIEST, EmbeddingsBody, embedded

# Ids of requests: a mark of this process, and a number within it.
_PROCESS: Final = secrets.token_hex(4)
_numbers: Final = count(1)
_KEYED: Final = ("/v1", "/tokenize")  # the paths that ask for a key
_ID: Final = re.compile(rb"[\w.:/+=-]{1,128}")  # of a client's own X-Request-Id
# What metrics and logs have for a client that has gone; the number is nginx's.
_LEFT: Final = 499


def app_of(
    models: Sequence[Model] | Mapping[str, Model | str], *, settings: Settings | None = None
) -> FastAPI:
    """An ASGI application that serves models: what `regard serve` runs.

    Args:
        models: by the names that requests give, or under their own; the first is that of requests that
            name none. A name or folder in place of a model is loaded when it is asked for.
        settings: limits, keys and choices.

    Returns:
        The application; its engines start with its lifespan, or with the first request.

    Example:
        >>> from regard.serving import app_of
        >>> import regard
        >>> from starlette.testclient import TestClient
        >>> with TestClient(app_of([regard.load()])) as client:
        ...     answer = client.post("/v1/embeddings", json={"input": "a river bank"}).json()
        >>> len(answer["data"][0]["embedding"]), answer["usage"]["prompt_tokens"]
        (384, 5)
    """
    settings = settings or Settings()
    named = models if isinstance(models, Mapping) else {model.name: model for model in models}
    service = Service(named, settings)
    # FastAPI's spans cost time: only where somebody collects them.
    exported = "OTEL_EXPORTER_OTLP_ENDPOINT" in os.environ
    app = FastAPI(
        title="regard",
        version=__version__,
        description="Embeddings, attention and the concordance of transformers. Errors are OpenAI's.",
        lifespan=_lifespan,
        # Swagger's and ReDoc's pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        # Spans and metrics go where the environment says, if it does; of what is validated nothing is told.
        telemetry={
            "auto_configure": exported,
            "tracing": exported,
            "metrics": exported,
            "logs": False,
            "operation_spans": False,
        },
    )
    app.state.service = service
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(HTTPException)(_plain)
    for routes in (_vectors, _completions, _chat, _operations, _traces, _usages, _pages):
        app.include_router(routes.router)
    # The API as it is: FastAPI would promise 422 where the answer is 400, and knows of no key.
    schema = app.openapi()
    schema["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path, methods in schema["paths"].items():
        for operation in methods.values():
            # FastAPI would promise 422 where the answer is 400.
            operation["responses"].pop("422", None)
            if path.startswith(_KEYED):
                # A key, or none: the description does not know how the server was started.
                operation["security"] = [{"key": []}, {}]
    # Bodies are read by the gate for these paths alone.
    posts = {path for path, methods in schema["paths"].items() if "post" in methods}
    # Middleware that is added last is outermost: CORS is before the gate, so that refusals have its
    # headers, too.
    app.add_middleware(Gate, service=service, posts=posts)
    if settings.origins:
        told_of = ["Retry-After", "X-Regard-Page", "X-Request-Id"]
        how: dict[str, Any] = {"allow_methods": ["GET", "POST"], "allow_headers": ["*"]}
        app.add_middleware(CORSMiddleware, allow_origins=settings.origins, expose_headers=told_of, **how)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    service.start()
    yield
    # The log first: what comes next may take seconds.
    service.requests_log.flush()
    for engine in service.engines.values():
        await asyncio.to_thread(engine.stop)


# Starlette would call plain functions on threads of a pool, where refusals wait for each other.


async def _invalid(request: Request, error: Any) -> Response:
    """What a schema says, of the first field that is wrong, without what came, which may be long."""
    # The first error: one at a time can be put right.
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return _no_json(first["ctx"]["error"])
    path = [str(part) for part in first["loc"] if part != "body"]
    # What OpenAI has and this server has not may only be nothing: null, 0, or empty.
    kind, most = first["type"], first.get("ctx", {})
    is_absent = kind in ("extra_forbidden", "none_required") or 0 in (most.get("max_length"), most.get("le"))
    said = "not supported by this server; leave it out" if is_absent else first["msg"]
    # OpenAI's `param` is a field of the body's top.
    message = f"{'.'.join(path) or 'the body'}: {said}."
    return ApiError(400, message, param=path[0] if path else None, code="invalid_body").response()


def _no_json(why: object) -> Response:
    return ApiError(400, f"the body must be JSON in UTF-8; {why}.", code="invalid_json").response()


async def _plain(request: Request, error: Any) -> Response:
    # FastAPI says nothing of these: bytes that are no UTF-8, also packed ones, and brackets without end.
    if isinstance(error.__cause__, UnicodeDecodeError | RecursionError):
        return _no_json(error.__cause__)
    told = ApiError(error.status_code, f"{request.method} {request.url.path}: {error.detail}.").response()
    told.headers.update(error.headers or {})
    return told


class Gate:
    """The middleware before all others: host, key, the body of what is posted, and clients that leave."""

    def __init__(self, app: ASGIApp, service: Service, posts: Set[str]) -> None:
        self._app, self._service, self._posts = app, service, posts
        self._host = None if (hosts := service.settings.hosts) is None else _names(hosts)
        # Only hashes of keys are kept in memory.
        self._keys = [sha256(key.encode()).digest() for key in service.settings.keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The lifespan, and web sockets, which there are none of.
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        visit = _Visit(scope, receive, send)
        # From the cheapest check on; a body is read only after all of them.
        try:
            self._check_host(scope)
            self._check_key(scope)
            # Only these have a body, and work that is worth ending when the client leaves.
            if scope["method"] == "POST" and scope["path"] in self._posts:
                await visit.watched(self._answered(visit, await self._body(visit)))
            else:
                await self._app(scope, receive, visit.send)
        except (ApiError, InputError) as error:
            # InputError that no route has put into words of its own.
            refusal = error if isinstance(error, ApiError) else ApiError(400, str(error))
            await refusal.response()(scope, receive, visit.send)
        except _Left:
            visit.status = _LEFT
        # The server stops before the answer: counted, so that `serve` can say so.
        except asyncio.CancelledError:
            self._service.cut_off += 1
            raise
        except Exception as error:
            # Not its message, which may quote a text.
            places = traceback.extract_tb(error.__traceback__)[-5:]
            at = [f"{place.filename.rpartition('/')[2]}:{place.lineno}" for place in places]
            log.error("failed", extra={"told": {"id": visit.id, "error": type(error).__name__, "at": at}})
            # Nothing has been sent yet: the client can be told.
            if not visit.status:
                message = f"the server failed at this request; its log has more under the id {visit.id}."
                await ApiError(500, message).response()(scope, receive, visit.send)
        finally:
            visit.count(self._service)

    async def _answered(self, visit: "_Visit", body: bytes) -> None:
        """Let the application answer; embeddings are answered here: FastAPI costs as much as all else."""
        scope, asked = visit.scope, None
        if scope["path"] == BUSIEST and scope["method"] == "POST":
            # With one model the name in the body does not matter.
            if len(self._service.engines) == 1:
                # Refused before it is parsed and checked, which costs more than to read it.
                next(iter(self._service.engines.values())).check_room(1)
            # Telemetry wants FastAPI to answer, as spans have its names of routes.
            if "fastapi.telemetry" not in scope:
                # A wrong body goes to FastAPI, which says what is wrong.
                with suppress(ValidationError):
                    asked = EmbeddingsBody.model_validate_json(body)
        if asked is None:
            await self._app(scope, visit.replayed(body), visit.send)
        else:
            await (await embedded(asked, self._service))(scope, visit.receive, visit.send)

    def _check_host(self, scope: Scope) -> None:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        # A page of another site can make its name lead here: then Host has that name.
        if self._host is not None and not all(map(self._host.fullmatch, hosts)):
            told = f"Host must be localhost, an address or a name of --allow-host; got {hosts[0][:100]!r}."
            raise ApiError(400, told, code="unknown_host")

    def _check_key(self, scope: Scope) -> None:
        if not self._keys or not scope["path"].startswith(_KEYED):
            return
        # A header twice: the last counts.
        scheme, _, key = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        came = sha256(key.strip()).digest()
        # All are compared, each in constant time.
        fits = sum(hmac.compare_digest(came, known) for known in self._keys)
        if scheme.lower() != b"bearer" or not fits:
            message = "the API key is missing or wrong; send the header Authorization: Bearer KEY."
            raise ApiError(401, message, code="invalid_api_key")

    async def _body(self, visit: "_Visit") -> bytes:
        headers, settings = dict(visit.scope["headers"]), self._service.settings
        # What follows ";" is the character set, which is always UTF-8 in JSON.
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            raise ApiError(415, f"Content-Type must be application/json; got {kind.decode('latin-1')!r}.")
        # What is announced is refused before it is read; without an announcement, as soon as it is too
        # long.
        announced = headers.get(b"content-length", b"")
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(settings.body_timeout):
                while more and max(len(body), int(announced or 0)) <= settings.max_body:
                    message = await visit.receive()
                    # A client that goes while it sends needs no answer.
                    if message["type"] == "http.disconnect":
                        raise _Left
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
        except TimeoutError:
            raise ApiError(408, f"the body must be here in {settings.body_timeout:g} seconds.") from None
        if more or len(body) > settings.max_body:
            too_large = f"the body must have at most {settings.max_body:,} bytes; send less at once."
            raise ApiError(413, too_large, code="body_too_large")
        return bytes(body)


def _names(hosts: Sequence[str]) -> re.Pattern[str]:
    """A Host header that calls the server by a name of its own, or by an address in numbers."""
    names = "|".join(map(re.escape, ("localhost", *hosts)))
    return re.compile(rf"({names}|\d+(\.\d+){{3}}|\[[\da-f:.]+\])(:\d*)?", re.ASCII | re.IGNORECASE)


class _Left(Exception):
    """The client has gone."""


class _Visit:
    """One request on its way through; `id` is in its answer and the log, `status` is 0 before its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self.receive, self._send = scope, receive, send
        # Ids count up within the process; a client's own is taken over where it is harmless.
        self.id, self.status = f"{_PROCESS}-{next(_numbers)}", 0
        if _ID.fullmatch(given := dict(scope["headers"]).get(b"x-request-id", b"")):
            self.id = given.decode()
        self._begun, self._ended, self._gone = time.perf_counter(), False, asyncio.Event()

    async def send(self, message: Message) -> None:
        """Send, and note the status and the end."""
        # The answer's head, with the id; then the body, whose last part ends it.
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", self.id.encode())]
        elif not message.get("more_body", False):
            self._ended = True
        await self._send(message)

    def replayed(self, body: bytes) -> Receive:
        """The body, for the application; then nothing, until the client leaves."""
        bodies = [body]

        async def receive() -> Message:
            if bodies:
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}
            # ASGI promises that receive waits until something happens.
            await self._gone.wait()
            return {"type": "http.disconnect"}

        return receive

    async def watched(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work; it is cancelled as soon as the client leaves, which raises _Left."""
        task = asyncio.current_task()
        assert task is not None, "ASGI runs in tasks"

        async def watch() -> None:
            # Whatever else comes after the body is passed over until the client leaves.
            while (await self.receive())["type"] != "http.disconnect":
                pass
            if not self._ended:
                self._gone.set()
                task.cancel()

        watcher = asyncio.create_task(watch())
        try:
            await work
        except asyncio.CancelledError:
            if not self._gone.is_set():
                raise
            # The cancellation was ours: the task may go on after it.
            task.uncancel()
            raise _Left from None
        finally:
            watcher.cancel()

    def count(self, service: Service) -> None:
        """Count and log it."""
        path = self.scope["path"]
        # Unknown paths share one name: metrics must not grow with what strangers ask for.
        route = getattr(self.scope.get("route"), "path", path if path == BUSIEST else "other")
        seconds = time.perf_counter() - self._begun
        requests, durations = service.metrics.answered(route, self.status)
        requests.inc()
        durations.observe(seconds)
        if service.settings.access_log:
            entry = {"id": self.id, "route": route, "status": self.status, "ms": round(seconds * 1000, 1)}
            service.requests_log.add({"method": self.scope["method"]} | entry)
