"""Telemetry from the log: traces, logs and metrics over OTLP, and Prometheus metrics, by a subscriber beside the runs.

Nothing of this runs in the loop that drives a run: a finished span is a fold over stored events, so a trace is the same
whenever it is made. Needs the extra `foldlog[otel]`, except for the fold.
"""

from __future__ import annotations

from .records import Counts, Record, Violated
from .spans import Span, SpanFold, SpanLink, SpanNote
from .subscriber import Told, subscribe

__all__ = ["Counts", "Record", "Span", "SpanFold", "SpanLink", "SpanNote", "Told", "Violated", "subscribe"]
