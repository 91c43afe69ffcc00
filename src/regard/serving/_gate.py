"""What every request passes first: the key, the kind and size of the body, and the watch for who leaves."""

import asyncio
import hmac
import logging
import time
import traceback
from hashlib import sha256
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serving._errors import ApiError
from regard.serving._service import Service

log = logging.getLogger("regard.serving")

_LEFT = 499  # what nginx calls a client that has gone


class Gate:
    """ASGI middleware, the outermost.

    Args:
        app: what is behind it.
        service: whose settings and keys count.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service
        self._keys = [sha256(key.encode()).digest() for key in service.settings.keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        visit = _Visit(scope, receive, send)
        try:
            self._check_key(scope)
            if scope["method"] in ("POST", "PUT", "PATCH"):
                await self._with_body(visit)
            else:
                await self._app(scope, receive, visit.send)
        except ApiError as error:
            await error.response()(scope, receive, visit.send)
        except Exception as error:
            log.error("request failed", extra={"told": {"error": type(error).__name__, "at": where(error)}})
            if not visit.status:
                refused = ApiError(500, "the server failed at this request; its log says where.")
                await refused.response()(scope, receive, visit.send)
        finally:
            visit.done(self._service)

    def _check_key(self, scope: Scope) -> None:
        if not self._keys or not scope["path"].startswith("/v1"):
            return
        scheme, _, key = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        came = sha256(key.strip()).digest()
        # All are compared, each in constant time.
        fits = sum(hmac.compare_digest(came, known) for known in self._keys)
        if scheme.lower() != b"bearer" or not fits:
            raise ApiError(
                401,
                "the API key is missing or wrong; send Authorization: Bearer KEY.",
                code="invalid_api_key",
            )

    async def _with_body(self, visit: "_Visit") -> None:
        headers = dict(visit.scope["headers"])
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json" and not (kind.startswith(b"application/") and kind.endswith(b"+json")):
            raise ApiError(415, f"Content-Type must be application/json; got {kind.decode('latin-1')!r}.")
        settings = self._service.settings
        try:
            async with asyncio.timeout(settings.body_timeout):
                body = await _body(visit.receive, headers.get(b"content-length", b""), settings.max_body)
        except TimeoutError:
            raise ApiError(408, f"the body did not arrive in {settings.body_timeout:g} seconds.") from None
        if body is None:
            visit.status = _LEFT
            return
        await visit.watched(self._app, body)


class _Visit:
    """One request on its way through.

    Attributes:
        status: of the answer, once it has begun; else 0.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self.receive, self._send = scope, receive, send
        self.status = 0
        self._started, self._finished = time.perf_counter(), False

    async def send(self, message: Message) -> None:
        """Send, and note the status and the end."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif not message.get("more_body", False):
            self._finished = True
        await self._send(message)

    async def watched(self, app: ASGIApp, body: bytes) -> None:
        """Run the app on a body that is there; cancel it as soon as the client leaves."""
        task = asyncio.current_task()
        assert task is not None, "ASGI runs in tasks"
        gone, left = asyncio.Event(), False
        bodies = [body]

        async def watch() -> None:
            nonlocal left
            while (await self.receive())["type"] != "http.disconnect":
                pass
            gone.set()
            if not self._finished:
                left = True
                task.cancel()

        async def receive() -> Message:
            if bodies:
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        watcher = asyncio.create_task(watch())
        try:
            await app(self.scope, receive, self.send)
        except asyncio.CancelledError:
            if not left:
                raise
            task.uncancel()
            self.status = _LEFT
        finally:
            watcher.cancel()

    def done(self, service: Service) -> None:
        """Count and log it."""


async def _body(receive: Receive, announced: bytes, most: int) -> bytes | None:
    """The body; None where the client has left."""
    refused = ApiError(
        413, f"the body must have at most {most:,} bytes; send less at once.", code="too_large"
    )
    if announced.isdigit() and int(announced) > most:
        raise refused
    chunks: list[bytes] = []
    size = 0
    while True:
        message: dict[str, Any] = dict(await receive())
        if message["type"] == "http.disconnect":
            return None
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > most:
            raise refused
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def where(error: BaseException) -> list[str]:
    """The places that an error came through; not its message, which may quote a text."""
    return [
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)[-5:]
    ]
