"""The process: a socket, uvicorn on it, and an end in which nothing that was accepted is lost."""

import asyncio
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from regard.core.arguments import whole
from regard.core.errors import InputError
from regard.serving._operations import log_to_stderr
from regard.serving._service import Service

_MOST: Final = 2**16  # bytes of a request's first line and headers; the least that a client takes in a time


def listen(host: str, port: int) -> socket.socket:
    """A socket to serve on."""
    whole("port", port, least=0, most=2**16 - 1)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # A name with a colon can only be an address of IPv6.
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        # A name that is not found has a negative number, and its words are in the error.
        cause = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise InputError(f"port {port} of {host} cannot be used ({cause}); choose another.") from None


def serve(
    app: FastAPI,
    on: socket.socket,
    *,
    drain_delay: float,
    drain: float,
    started: Callable[[], object],
    stopping: Callable[[str], object],
) -> str | None:
    """Serve until a signal ends it, or a model's thread dies.

    Args:
        app: as `app_of` makes it.
        on: where, as `listen` gives it.
        drain_delay: seconds after SIGTERM in which readiness has fallen and requests are still accepted.
        drain: seconds after that in which requests that were accepted are answered.
        started: called once requests are answered.
        stopping: called in a signal's handler, with what happens now.

    Returns:
        What went wrong; None after a signal, and all that was accepted has its answer.
    """
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(drain),
        backlog=2048,
        # Longer than clients keep theirs: who sends on one that is just being closed gets an error.
        timeout_keep_alive=75,
    )
    service: Service = app.state.service
    log_to_stderr()
    try:
        _Server(config, drain_delay, started, stopping).run(sockets=[on])
    except OSError as error:
        return f"the server cannot go on: {error}"
    # uvicorn exits where the start fails.
    except SystemExit:
        return "the server cannot start; the lines above say why"
    # What ended it: a thread that died, requests that were cut off, or a signal.
    if (dead := service.check()) is not None:
        return f"a model's thread has ended: {type(dead).__name__}: {dead}"
    if service.cut_off:
        return f"{service.cut_off:,} accepted request{'s' * (service.cut_off > 1)} got no answer"
    return None


class _Server(uvicorn.Server):
    """uvicorn's, which on SIGTERM says first that it is not ready, and watches the models' threads."""

    def __init__(self, config: uvicorn.Config, delay: float, *told: Callable[..., object]) -> None:
        super().__init__(config)
        self.service: Service = config.app.state.service  # type: ignore[union-attr]
        self._delay, self._ends = delay, math.inf
        # Called at the two ends, with what is to be said.
        self._started, self._stopping = told

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._started()

    async def on_tick(self, counter: int) -> bool:
        """Every tenth of a second; True ends it."""
        # After a signal the time to be not ready has passed; or a thread is dead.
        if time.monotonic() >= self._ends or self.service.check() is not None:
            return True
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal: the first begins the end, the second does not wait."""
        # Ctrl-C does not wait: nobody balances load between terminals.
        name, delay = signal.Signals(sig).name, 0.0 if sig == signal.SIGINT else self._delay
        # A second signal: at once.
        if self.service.draining:
            self.force_exit = self.should_exit = True
            self._stopping(f"{name} again: it stops at once")
            return
        # From now on readiness fails, and requests are still accepted.
        self.service.draining = True
        self._ends = time.monotonic() + delay
        more = f"new requests are taken for {delay:g} s, and " if delay else ""
        self._stopping(f"{name}: {more}what was accepted is answered; then it stops")


class _Protocol(HttpToolsProtocol):
    """uvicorn's protocol waits for clients for ever; this one cuts them off, in the seconds that a body has:

    * where the headers are too long, or have not arrived;
    * where the body of a request that has its answer, such as 401, still has not arrived;
    * where a client takes too little of what waits for it, again and again, or leaves any of it at the end.
    """

    def __init__(self, config: Any, *arguments: Any, **named: Any) -> None:
        super().__init__(config, *arguments, **named)
        self._seconds: float = config.app.state.service.settings.body_timeout
        # Bytes since the last end of headers.
        self._head = 0
        # Two clocks: until headers or a body have come, and until the client has taken what was sent.
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            # Else the kernel keeps megabytes, and what a client takes is seen long after it has taken it.
            on: socket.socket = transport.get_extra_info("socket")
            on.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MOST // 4)
        # The clock for the first headers starts with the connection.
        self.on_message_begin(first=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_watching()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what comes before the end of the headers."""
        super().data_received(data)
        if self._timer is not None:
            self._head += len(data)
            # Headers without an end.
            if self._head > _MOST:
                self._stop_waiting()
                self.send_400_response(f"the headers must have at most {_MOST:,} bytes.")

    def on_message_begin(self, first: bool = False) -> None:
        """The first byte of a request; the wait for the first one began with the connection."""
        if not first:
            super().on_message_begin()
        # The next request of a connection that is kept open.
        if self._timer is None:
            self._head = 0
            self._timer = self.loop.call_later(self._seconds, self.timeout_keep_alive_handler)

    def on_headers_complete(self) -> None:
        """The body is for the gate to bound."""
        self._stop_waiting()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The end of a body; of one that was answered early, too."""
        self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The last byte of an answer has been handed over."""
        super().on_response_complete()
        # Closing: what is left to send must be taken in time.
        if self.transport.is_closing():
            self._watch()
        # Answered early (401, 413), and the body still comes: not for ever.
        elif self.cycle.response_complete and self.cycle.more_body:
            self._head = -sys.maxsize  # what comes is no header
            self._timer = self.loop.call_later(self._seconds, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, and see that the client takes what it has been sent."""
        self.transport.close()
        self._watch()

    def pause_writing(self) -> None:
        """More waits than the client has taken."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """The client has taken it."""
        # Full again at once would be no progress: `_watch` compares.
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_watching()

    def _stop_watching(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _watch(self, before: float = math.inf) -> None:
        self._stop_watching()
        left = self.transport.get_write_buffer_size()
        # Less than _MOST was taken since the last look: the client is too slow.
        if left > before - _MOST:
            if self.cycle is not None:
                # What still wants to write should hear of it before the connection is gone.
                self.cycle.disconnected = True
            self.transport.abort()
        else:
            self._reading = self.loop.call_later(self._seconds, self._watch, left)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
