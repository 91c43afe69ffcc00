"""What a server tells a collector of OpenTelemetry: a span for each request, and nothing of its content."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from integration.forked import wait_for
from integration.served import command, tiny

KEY = "a-key-of-the-tests"
TEXT = "w1 w2 w3 unheard"


class Collector(ThreadingHTTPServer):
    """Of this machine; keeps what it is sent, by path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Keep)
        self.sent: list[tuple[str, bytes]] = []

    def spans(self) -> list[Span]:
        told = [
            ExportTraceServiceRequest.FromString(body) for path, body in self.sent if path == "/v1/traces"
        ]
        resources = [resource for each in told for resource in each.resource_spans]
        return [span for resource in resources for scope in resource.scope_spans for span in scope.spans]


class _Keep(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.sent.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        thread = Thread(target=collector.serve_forever)
        thread.start()
        yield collector
        collector.shutdown()
        thread.join()


def test_a_span_for_each_request_without_texts_and_keys(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").write_text(KEY, "utf-8")
    (tmp_path / "tiny").mkdir()
    endpoint = f"http://127.0.0.1:{collector.server_port}"
    for name, value in {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "50"}.items():
        monkeypatch.setenv(name, value)
    model = f"tiny={tiny(tmp_path / 'tiny')}"
    settings = ["-m", model, "--api-key-file", tmp_path / "keys", "--drain-delay", "0", "--no-access-log"]
    wanted = (
        ({"input": TEXT}, KEY, 200),
        ({"input": [TEXT, ""]}, KEY, 400),
        ({"input": TEXT, "model": TEXT}, KEY, 404),
        ({"input": TEXT, TEXT: 1}, KEY, 400),
        ({"input": TEXT}, f"not {KEY}", 401),
    )
    with command(*settings) as (process, url), httpx.Client(base_url=url) as client:
        for body, key, status in wanted:
            headers = {"Authorization": f"Bearer {key}"}
            assert client.post("/v1/embeddings", json=body, headers=headers).status_code == status
        wait_for(lambda: len(collector.spans()) >= len(wanted))
        process.send_signal(signal.SIGTERM)
        code, _, told = process.end()
        assert (code, told[:15]) == (0, "regard: SIGTERM")
    # Who has no key is turned away before the path is looked at.
    assert [span.name for span in collector.spans()] == ["POST /v1/embeddings"] * 4 + ["POST"]
    statuses = [
        each.value.int_value
        for span in collector.spans()
        for each in span.attributes
        if each.key == "http.response.status_code"
    ]
    assert statuses == [status for _, _, status in wanted]
    assert {path for path, _ in collector.sent} == {"/v1/traces", "/v1/metrics"}
    for _, body in collector.sent:
        assert KEY.encode() not in body
        assert b"unheard" not in body
