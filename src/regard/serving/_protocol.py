"""HTTP as uvicorn speaks it, with a bound on what a client may send before its request has begun."""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MOST: Final = 2**16  # bytes of a request's first line and headers


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol collects headers for ever, and waits for them for ever; this one does neither.

    A client whose headers are too long, or have not arrived in the seconds that a body has, is cut off.
    """

    def __init__(self, config: Any, *arguments: Any, **named: Any) -> None:
        super().__init__(config, *arguments, **named)
        self._seconds: float = config.app.state.service.settings.body_timeout
        self._head = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client may say nothing for a while only."""
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what comes before the end of the headers."""
        super().data_received(data)
        if self._timer is not None:
            self._head += len(data)
            if self._head > _MOST:
                self._stop_waiting()
                self.send_400_response(f"the headers must have at most {_MOST:,} bytes.")

    def on_message_begin(self) -> None:
        """The first byte of a request: of the first one on this connection, or of a later one."""
        super().on_message_begin()
        if self._timer is None:
            self._wait_for_head()

    def on_headers_complete(self) -> None:
        """The body is for the gate to bound."""
        self._stop_waiting()
        super().on_headers_complete()

    def _wait_for_head(self) -> None:
        self._head = 0
        self._timer = self.loop.call_later(self._seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self.transport.close()
