"""Send spans to an OpenTelemetry collector over OTLP and HTTP, with the SDK's own exporter."""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...eventlog.errors import ConfigError
from .spans import Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

RETRY_S = 1.0
RETRY_MAX_S = 30.0
"""The wait between two attempts to reach the collector: doubled each time, up to this."""
BATCH_MAX = 512
TIMEOUT_S = 10.0

logger = logging.getLogger("foldlog.telemetry")


class OtlpExporter:
    """Sends spans to a collector. `endpoint` is its base URL (`http://127.0.0.1:4318`), or that of its traces.

    Headers and other settings are those of the variables `OTEL_EXPORTER_OTLP_*`, resource attributes those of
    `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME`. Raises `ConfigError` if the extra is not installed.
    """

    def __init__(self, endpoint: str, namespace: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        except ImportError:
            raise ConfigError("telemetry needs OpenTelemetry: pip install 'foldlog[otel]'") from None
        if not endpoint.startswith(("http://", "https://")):
            raise ConfigError(f"--otlp takes the http(s) address of a collector, not {endpoint!r:.80}")
        base = endpoint.rstrip("/")
        url = base if base.endswith("/v1/traces") else f"{base}/v1/traces"
        self._exporter = OTLPSpanExporter(endpoint=url, timeout=TIMEOUT_S)
        resource = Resource.create({"service.namespace": namespace})
        if str(resource.attributes["service.name"]).startswith("unknown_service"):  # no variable names one
            resource = resource.merge(Resource({"service.name": "foldlog"}))
        self._resource = resource
        self._scope = InstrumentationScope("foldlog", importlib.metadata.version("foldlog"))
        self.endpoint = url

    async def send(self, spans: Sequence[Span]) -> None:
        """Send spans, and try again until the collector has them."""
        for first in range(0, len(spans), BATCH_MAX):
            batch = [self._readable(span) for span in spans[first : first + BATCH_MAX]]
            await self._send(batch)

    async def _send(self, batch: Sequence[ReadableSpan]) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        wait_s, lost = RETRY_S, False
        while True:
            result = await asyncio.to_thread(self._exporter.export, batch)
            if result is SpanExportResult.SUCCESS:
                if lost:
                    logger.warning("the collector at %s is back", self.endpoint)
                return
            if not lost:
                logger.warning(
                    "the collector at %s takes no spans; trying again until it does", self.endpoint
                )
            lost = True
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, RETRY_MAX_S)

    async def aclose(self) -> None:
        """Close the connection."""
        await asyncio.to_thread(self._exporter.shutdown)

    def _readable(self, span: Span) -> ReadableSpan:
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

        def context(trace_id: str, span_id: str, *, remote: bool) -> SpanContext:
            return SpanContext(int(trace_id, 16), int(span_id, 16), remote, TraceFlags(TraceFlags.SAMPLED))

        def attributes(of: Any) -> dict[str, Any]:
            return dict(of)

        return ReadableSpan(
            name=span.name,
            context=context(span.trace_id, span.span_id, remote=False),
            parent=context(span.trace_id, span.parent_id, remote=span.remote) if span.parent_id else None,
            resource=self._resource,
            attributes=attributes(span.attributes),
            events=[Event(note.name, attributes(note.attributes), _ns(note.at)) for note in span.notes],
            links=[
                Link(context(link.trace_id, link.span_id, remote=True), attributes(link.attributes))
                for link in span.links
            ],
            kind=SpanKind.CLIENT if span.kind == "client" else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
            start_time=_ns(span.started_at),
            end_time=_ns(span.ended_at),
            instrumentation_scope=self._scope,
        )


def _ns(at: float) -> int:
    return round(at * 1e6) * 1000
