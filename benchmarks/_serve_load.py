"""Load on a server of this machine: clients that wait for their answers, and arrivals that do not."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


class Connection(asyncio.Protocol):
    """A connection that is kept: one request at a time, its answer as bytes."""

    def __init__(self) -> None:
        self._read = bytearray()
        self._end = 0
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    @classmethod
    async def to(cls, port: int) -> "Connection":
        """Open one."""
        _, made = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what is written to."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """The status and the body."""
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        """Wait until the whole body is there."""
        self._read += data
        if not self._end:
            head = self._read.find(b"\r\n\r\n")
            if head < 0:
                return
            [length] = [
                int(line.split(b":")[1])
                for line in bytes(self._read[:head]).lower().split(b"\r\n")
                if line.startswith(b"content-length:")
            ]
            self._body, self._end = head + 4, head + 4 + length
        if len(self._read) >= self._end and self._answer is not None:
            answer, self._answer = self._answer, None
            status, body = int(self._read[9:12]), bytes(self._read[self._body : self._end])
            self._read.clear()
            self._end = 0
            answer.set_result((status, body))

    def connection_lost(self, error: Exception | None) -> None:
        """Whoever waits is told."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError("the server closed the connection"))


@dataclass
class Seen:
    """What came back: the seconds that each answer took, by its status."""

    seconds: dict[int, list[float]] = field(default_factory=dict)
    lasted: float = 0.0

    def add(self, status: int, seconds: float) -> None:
        """One answer."""
        self.seconds.setdefault(status, []).append(seconds)

    @property
    def rate(self) -> float:
        """Answers with 200 a second."""
        return len(self.seconds.get(200, ())) / self.lasted

    def percentile(self, percent: float, status: int = 200) -> float:
        """Of the milliseconds of the answers with a status."""
        return float(np.percentile(self.seconds[status], percent)) * 1000


def request(body: bytes, path: str = "/v1/embeddings") -> bytes:
    """The bytes of a request."""
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def closed(port: int, requests: Sequence[bytes], clients: int, seconds: float) -> Seen:
    """Clients that each send the next request when they have the answer to the last."""
    seen, turn = Seen(), iter(range(10**9))
    connections = [await Connection.to(port) for _ in range(clients)]
    begun = time.perf_counter()

    async def client(connection: Connection) -> None:
        while (start := time.perf_counter()) < begun + seconds:
            status, _ = await connection.ask(requests[next(turn) % len(requests)])
            seen.add(status, time.perf_counter() - start)

    await asyncio.gather(*map(client, connections))
    seen.lasted = time.perf_counter() - begun
    for connection in connections:
        connection.transport.close()
    return seen


async def arrivals(port: int, requests: Sequence[bytes], rate: float, seconds: float) -> Seen:
    """Requests that come at random moments, so many a second, whether or not others are answered.

    An answer's time counts from the moment at which its request was due: a late client hides no wait.
    """
    seen, idle, tasks = Seen(), [], []
    gaps = np.random.default_rng(0).exponential(1 / rate, int(rate * seconds))
    begun = time.perf_counter()

    async def one(due: float, wanted: bytes) -> None:
        connection = idle.pop() if idle else await Connection.to(port)
        status, _ = await connection.ask(wanted)
        seen.add(status, time.perf_counter() - due)
        idle.append(connection)

    for number, due in enumerate(begun + np.cumsum(gaps)):
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.create_task(one(float(due), requests[number % len(requests)])))
    await asyncio.gather(*tasks)
    seen.lasted = time.perf_counter() - begun
    for connection in idle:
        connection.transport.close()
    return seen
