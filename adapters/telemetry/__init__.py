"""Telemetry from the log: traces, logs and metrics over OTLP, and Prometheus metrics, by a separate subscriber.

None of this code runs in the loop that drives a run. Spans are a fold over stored events, so a trace is the same
whenever it is computed. Everything but the fold needs the extra `foldlog[otel]`.
"""

from __future__ import annotations

from .records import Counts, Record, Violated
from .spans import Span, SpanFold, SpanLink, SpanNote
from .subscriber import Told, subscribe

__all__ = ["Counts", "Record", "Span", "SpanFold", "SpanLink", "SpanNote", "Told", "Violated", "subscribe"]
