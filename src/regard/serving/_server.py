"""The process: a socket, uvicorn on it, and an end in which nothing that was accepted is lost."""

import math
import os
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from regard.core.arguments import whole
from regard.core.errors import InputError
from regard.serving._logs import log_to_stderr
from regard.serving._protocol import BoundedProtocol
from regard.serving._service import Service


def listen(host: str, port: int) -> socket.socket:
    """A socket to serve on.

    Raises:
        InputError: the port is taken, or the host is none of this machine's.
    """
    whole("port", port, least=0, most=2**16 - 1)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        # Of a name that is not found the number is negative, and the words are there.
        told = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise InputError(f"port {port} of {host} cannot be used ({told}); choose another.") from None


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
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(drain),
        backlog=2048,
        # Longer than clients keep theirs: who sends on one that is just being closed gets an error.
        timeout_keep_alive=75,
    )
    service: Service = app.state.service
    log_to_stderr()
    try:
        _Server(config, service, drain_delay, started, stopping).run(sockets=[on])
    except OSError as error:
        return f"the server cannot go on: {error}"
    except SystemExit:
        return "the server cannot start; the lines above say why"
    if (dead := service.check()) is not None:
        return f"a model's thread has ended: {type(dead).__name__}: {dead}"
    if service.cut_off:
        return f"{service.cut_off:,} accepted request{'s' * (service.cut_off > 1)} got no answer"
    return None


class _Server(uvicorn.Server):
    """uvicorn's, which on SIGTERM says first that it is not ready, and watches the models' threads."""

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        delay: float,
        started: Callable[[], object],
        stopping: Callable[[str], object],
    ) -> None:
        super().__init__(config)
        self.service, self._delay, self._told, self._stopping = service, delay, started, stopping
        self._ends = math.inf

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        await super().startup(sockets)
        if self.started:
            self._told()

    async def on_tick(self, counter: int) -> bool:
        """See uvicorn: every tenth of a second; True ends it."""
        if time.monotonic() >= self._ends or self.service.check() is not None:
            return True
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal: the first begins the end, the second does not wait."""
        name, delay = signal.Signals(sig).name, 0.0 if sig == signal.SIGINT else self._delay
        if self.service.draining:
            self.force_exit = self.should_exit = True
            self._stopping(f"{name} again: it stops at once")
            return
        self.service.draining = True
        self._ends = time.monotonic() + delay
        more = f"new requests are taken for {delay:g} s, and " if delay else ""
        self._stopping(f"{name}: {more}what was accepted is answered; then it stops")
