"""A local double of an OpenTelemetry collector: takes traces by OTLP (http/protobuf), keeps them, or hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from tests.doubles.answering_http import QuietHandler, answering

PATIENCE_S = 60.0


class Collector:
    """`status` is its answer; `hang` makes it take requests and answer none."""

    def __init__(self) -> None:
        self.spans: list[Any] = []  # Any: protobuf
        self.resources: list[dict[str, Any]] = []  # Any: attribute values
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.hang = threading.Event()
        self.freed = threading.Event()  # hanging requests end
        self.n_asked = 0
        self.url = ""

    def take(self, body: bytes, headers: dict[str, str]) -> int:
        """One request's status."""
        self.n_asked += 1
        if self.hang.is_set():
            self.freed.wait(60)
            return 503
        if self.status == 200:
            request = ExportTraceServiceRequest.FromString(body)
            self.headers.append(headers)
            for resource in request.resource_spans:
                self.resources.append(attributes(resource.resource))
                self.spans.extend(span for scope in resource.scope_spans for span in scope.spans)
        return self.status

    def named(self, name: str, n: int = 1) -> list[Any]:  # Any: protobuf
        """Wait for `n` spans of this name."""
        ends_at = time.monotonic() + PATIENCE_S
        while len(found := [span for span in list(self.spans) if span.name == name]) < n:
            assert time.monotonic() < ends_at, f"{len(found)} spans named {name}; there are {sorted(span.name for span in self.spans)}"
            time.sleep(0.02)
        return found


def attributes(holder: Any) -> dict[str, Any]:  # Any: protobuf, and attribute values
    """The attributes of a span, an event or a resource."""
    return {each.key: _value(each.value) for each in holder.attributes}


def _value(value: AnyValue) -> Any:  # Any: what it holds
    return getattr(value, value.WhichOneof("value") or "string_value")


@contextmanager
def collector() -> Iterator[Collector]:
    """A running collector on 127.0.0.1."""
    double = Collector()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            status = double.take(self.rfile.read(int(self.headers["content-length"])), dict(self.headers))
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

    with answering(Handler, double.freed) as address:
        double.url = f"{address}/v1/traces"
        yield double
