"""What Prometheus and autoscalers read."""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

_SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_PARTS: Final = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


class Metrics:
    """The metrics of a server, in a registry of their own. Nothing is padded, so no metric tells how much."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "regard_requests", "Requests, by their answer", ["route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "regard_request_seconds", "Until answered", ["route"], buckets=_SECONDS, registry=registry
        )
        self.answered = cache(
            lambda route, status: (self.requests.labels(route, status), self.seconds.labels(route))
        )
        of_model: dict[str, Any] = {"labelnames": ["model"], "registry": registry}
        self.queue = Gauge("regard_queue_tokens", "Tokens that wait or are being computed", **of_model)
        self.tokens = Counter("regard_tokens", "Tokens embedded", **of_model)
        self.truncated = Counter("regard_truncated_texts", "Texts that were cut off, as asked", **of_model)
        self.fill = Histogram("regard_batch_fill", "How full a turn was", buckets=_PARTS, **of_model)
        self.wait = Histogram("regard_wait_seconds", "Until the first turn", buckets=_SECONDS, **of_model)
        self.compute = Histogram("regard_compute_seconds", "Of a turn", buckets=_SECONDS, **of_model)

    def of(self, model: str, queued: Callable[[], float]) -> "ModelMetrics":
        """Those of one model; `queued` is asked when somebody reads, so the gauge is never late."""
        self.queue.labels(model).set_function(queued)
        return ModelMetrics(self, model)

    def text(self) -> bytes:
        """As Prometheus reads it."""
        return generate_latest(self._registry)


class ModelMetrics:
    """The metrics of one model."""

    def __init__(self, all: Metrics, model: str) -> None:
        self.tokens, self.truncated = all.tokens.labels(model), all.truncated.labels(model)
        self.fill, self.wait, self.compute = (
            each.labels(model) for each in (all.fill, all.wait, all.compute)
        )
