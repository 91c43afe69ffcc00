"""For those who operate it: what there is, liveness, readiness, metrics, and logs without texts and keys."""

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

import orjson
import prometheus_client
from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram

from regard.serving._limits import ApiError, answers

router = APIRouter()

# Bounds of histograms: seconds from a millisecond to a minute.
_SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
# Bounds of how full a turn was.
_PARTS: Final = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
# Lines of a log are written together when they come within this time.
_TOGETHER_S: Final = 0.05
# Work that was done within this time shows that a model computes.
_LATELY_S: Final = 5.0

log: Final = logging.getLogger("regard.serving")


class Metrics:
    """The metrics of a server, in a registry of their own. Nothing is padded, so no metric tells how much."""

    def __init__(self) -> None:
        # Not the global registry: several servers may be in one process, as in tests.
        all: dict[str, Any] = {"registry": prometheus_client.CollectorRegistry()}
        prometheus_client.ProcessCollector(**all)
        requests = Counter("regard_requests", "Requests, by their answer", ["route", "status"], **all)
        seconds = Histogram("regard_request_seconds", "Until answered", ["route"], buckets=_SECONDS, **all)
        # Labelled once for each route and status: looking labels up costs more than counting.
        self.answered = cache(lambda route, status: (requests.labels(route, status), seconds.labels(route)))
        self.text: Callable[[], bytes] = lambda: prometheus_client.generate_latest(all["registry"])
        # All that follows is by model.
        all["labelnames"] = ["model"]
        self._queue = Gauge("regard_queue_tokens", "Tokens that wait or are being computed", **all)
        self._of_model = ModelMetrics(
            Counter("regard_tokens", "Tokens embedded", **all),
            Counter("regard_truncated_texts", "Texts that were cut off, as asked", **all),
            Histogram("regard_batch_fill", "How full a turn was", buckets=_PARTS, **all),
            Histogram("regard_wait_seconds", "Until the first turn", buckets=_SECONDS, **all),
            Histogram("regard_compute_seconds", "Of a turn", buckets=_SECONDS, **all),
        )

    def of_model(self, model: str, queued: Callable[[], float]) -> "ModelMetrics":
        """Those of one model; `queued` is asked when somebody reads, so the gauge is never late."""
        self._queue.labels(model).set_function(queued)
        return ModelMetrics._make(each.labels(model) for each in self._of_model)


class ModelMetrics(NamedTuple):
    """The metrics of one model."""

    tokens: Counter
    truncated: Counter
    fill: Histogram
    wait: Histogram
    compute: Histogram


class RequestsLog:
    """A line for each request, written with those of a moment: one by one costs a tenth of a request."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, told: dict[str, Any]) -> None:
        """Write it, soon."""
        if not self._lines:
            # The first line of a moment sets the clock.
            asyncio.get_running_loop().call_later(_TOGETHER_S, self.flush)
        head = {"time": round(time.time(), 3), "level": "info", "event": "request"}
        self._lines.append(orjson.dumps(head | told).decode())

    def flush(self) -> None:
        """Write what waits, now."""
        if self._lines:
            log.info("\n".join(self._lines), extra={"is_json": True})
            self._lines = []


class Line(logging.Formatter):
    """Writes a record as a line of JSON; of an error its kind, not its message, which may quote a text."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging."""
        # Already JSON, from `RequestsLog`.
        if hasattr(record, "is_json"):
            return record.getMessage()
        entry: dict[str, Any] = {"time": round(record.created, 3), "level": record.levelname.lower()}
        # uvicorn tells of a start that failed by a whole traceback, whose last line says why.
        event = record.getMessage().strip().rpartition("\n")[2]
        entry |= {"event": event} | getattr(record, "told", {})
        # The kind of an error alone: its message may quote a text.
        if record.exc_info and record.exc_info[0] is not None:
            entry["error"] = record.exc_info[0].__name__
        return orjson.dumps(entry).decode()


def log_to_stderr() -> None:
    """Write the server's log, and uvicorn's, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Line())
    for name, level in ((log.name, logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        # Not passed on to other handlers, which would write it again.
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


@router.get("/health", tags=["operations"])
@router.get("/health/live", tags=["operations"])
async def live() -> dict[str, Any]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/health/ready", responses=answers(), tags=["operations"])
async def ready(request: Request) -> dict[str, Any]:
    """Every model in memory computes: shown by work that was done lately, else by running it."""
    service = request.app.state.service
    if service.draining:
        raise ApiError(503, "the server is stopping.", code="draining")
    # Threads that hang count as dead from here on.
    service.check()
    for engine in service.engines.values():
        if engine.dead is not None:
            raise ApiError(503, f"{engine.name} has ended.", code="engine_dead")
        if engine.is_started and not engine.is_loaded:
            raise ApiError(503, f"{engine.name} is being loaded.", code="loading")
        # An idle model has to show that it still computes.
        if engine.is_idle and time.monotonic() - engine.worked > _LATELY_S:
            await engine.embed(["ready"])
    return {"status": "ok"}


@router.get("/metrics", response_class=PlainTextResponse, tags=["operations"])
async def metrics(request: Request) -> PlainTextResponse:
    """What Prometheus reads."""
    text = request.app.state.service.metrics.text()
    return PlainTextResponse(text, media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/models", tags=["OpenAI"])
async def models(request: Request) -> dict[str, Any]:
    """List the models; the first is that of requests that name none."""
    return {"object": "list", "data": [_told(each) for each in request.app.state.service.engines.values()]}


@router.get("/v1/models/{name:path}", responses=answers(), tags=["OpenAI"])
async def model(name: str, request: Request) -> dict[str, Any]:
    """Describe one model."""
    return _told(request.app.state.service.engine(name))


def _told(engine: Any) -> dict[str, Any]:
    told = {"id": engine.name, "object": "model", "created": 0, "owned_by": "regard"}
    if engine.is_loaded:
        told |= {"max_tokens": engine.embedder.limit, "computed": str(engine.embedder.computed)}
        # What is only known once it is loaded.
        told |= {"dimensions": engine.width, "all_dimensions": engine.dimensions}
    return told
