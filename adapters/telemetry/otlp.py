"""Send spans, log records and metrics to a collector with OTLP over HTTP, by the SDK's own exporters."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...eventlog.errors import ConfigError
from . import conventions as names
from .records import DURATIONS_S, Counts, Record
from .spans import Span
from .subscriber import Told

if TYPE_CHECKING:
    from opentelemetry.sdk._logs import ReadableLogRecord
    from opentelemetry.sdk.metrics.export import Metric, MetricsData
    from opentelemetry.sdk.trace import ReadableSpan

RETRY_S = 1.0
RETRY_MAX_S = 30.0
"""The longest wait between two attempts to reach the collector; the wait doubles each time."""
BATCH_MAX = 512
TIMEOUT_S = 10.0

logger = logging.getLogger("foldlog.telemetry")


class OtlpExporter:
    """A sink that sends to a collector. `endpoint` is its base URL (`http://127.0.0.1:4318`).

    If the endpoint is a URL for traces (`.../v1/traces`), only spans are sent. Headers and other options come from the
    variables `OTEL_EXPORTER_OTLP_*`, resource attributes from `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME`.
    Raises `ConfigError` for an invalid endpoint, or if the extra is not installed.
    """

    def __init__(self, endpoint: str, namespace: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        except ImportError:
            raise ConfigError("telemetry needs OpenTelemetry: pip install 'foldlog[otel]'") from None
        if not endpoint.startswith(("http://", "https://")):
            raise ConfigError(f"--otlp takes the http(s) address of a collector, not {endpoint!r:.80}")
        base = endpoint.rstrip("/")
        only_spans = base.endswith("/v1/traces")
        url = base if only_spans else f"{base}/v1/traces"
        self._exporter = OTLPSpanExporter(endpoint=url, timeout=TIMEOUT_S)
        self._logs = None if only_spans else OTLPLogExporter(endpoint=f"{base}/v1/logs", timeout=TIMEOUT_S)
        self._metrics = (
            None if only_spans else OTLPMetricExporter(endpoint=f"{base}/v1/metrics", timeout=TIMEOUT_S)
        )
        resource = Resource.create({"service.namespace": namespace})
        if str(resource.attributes["service.name"]).startswith("unknown_service"):  # no variable names one
            resource = resource.merge(Resource({"service.name": "foldlog"}))
        self._resource = resource
        self._scope = InstrumentationScope("foldlog", importlib.metadata.version("foldlog"))
        self.endpoint = url

    async def send(self, told: Told) -> None:
        """Send everything, retrying until the collector has accepted it."""
        for first in range(0, len(told.spans), BATCH_MAX):
            spans = [self._readable(span) for span in told.spans[first : first + BATCH_MAX]]
            await self._send("spans", self._exporter.export, spans)
        if self._logs is not None:
            for first in range(0, len(told.records), BATCH_MAX):
                records = [self._record(each) for each in told.records[first : first + BATCH_MAX]]
                await self._send("log records", self._logs.export, records)
        if self._metrics is not None and (told.counts.sums or told.counts.durations):
            await self._send("metrics", self._metrics.export, self._counted(told.counts, told.at))

    async def _send(self, what: str, export: Callable[[Any], Any], batch: Any) -> None:
        wait_s, lost = RETRY_S, False
        while True:
            result = await asyncio.to_thread(export, batch)
            if result.name == "SUCCESS":  # each signal has its own enumeration of results
                if lost:
                    logger.warning("the collector at %s is back", self.endpoint)
                return
            if not lost:
                logger.warning(
                    "the collector at %s takes no %s; trying again until it does", self.endpoint, what
                )
            lost = True
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, RETRY_MAX_S)

    async def aclose(self) -> None:
        """Close the connections."""
        for exporter in (self._exporter, self._logs, self._metrics):
            if exporter is not None:
                await asyncio.to_thread(exporter.shutdown)

    def _record(self, record: Record) -> ReadableLogRecord:
        from opentelemetry._logs import LogRecord, SeverityNumber
        from opentelemetry.context import Context
        from opentelemetry.sdk._logs import ReadableLogRecord
        from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

        sampled, context = TraceFlags(TraceFlags.SAMPLED), Context()
        if record.trace_id:
            ids = int(record.trace_id, 16), int(record.span_id, 16)
            place = SpanContext(*ids, is_remote=False, trace_flags=sampled)
            context = set_span_in_context(NonRecordingSpan(place), context)
        return ReadableLogRecord(
            LogRecord(
                timestamp=_ns(record.at),
                observed_timestamp=_ns(record.at),
                context=context,
                severity_text=record.severity,
                severity_number=SeverityNumber[record.severity],
                body=record.text,
                attributes={**record.attributes, names.RECORD_UID: record.uid},
                event_name=record.name,
            ),
            self._resource,
            self._scope,
        )

    def _counted(self, counts: Counts, at: float) -> MetricsData:
        """Return the counts as cumulative metrics, which may be sent more than once without counting twice."""
        from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics

        scope = ScopeMetrics(self._scope, [*_metrics(counts, _ns(counts.since), _ns(at))], "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

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


def _metrics(counts: Counts, since: int, at: int) -> Iterator[Metric]:
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Histogram,
        HistogramDataPoint,
        Metric,
        NumberDataPoint,
        Sum,
    )

    cumulative = AggregationTemporality.CUMULATIVE
    for name, by in counts.sums.items():
        numbers = [NumberDataPoint(json.loads(key), since, at, value) for key, value in by.items()]
        yield Metric(name, "", names.UNITS[name], Sum(numbers, cumulative, is_monotonic=True))
    for name, spreads in counts.durations.items():
        points = [
            HistogramDataPoint(
                attributes=json.loads(key),
                start_time_unix_nano=since,
                time_unix_nano=at,
                count=spread.count,
                sum=spread.total,
                bucket_counts=spread.buckets,
                explicit_bounds=DURATIONS_S,
                min=spread.least,
                max=spread.most,
            )
            for key, spread in spreads.items()
        ]
        yield Metric(name, "", "s", Histogram(points, cumulative))
