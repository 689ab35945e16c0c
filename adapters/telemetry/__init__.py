"""Telemetry from the log: traces over OTLP and metrics for Prometheus, by a subscriber beside the runs.

Nothing of this runs in the loop that drives a run: a finished span is a fold over stored events, so a trace is the same
whenever it is made. Needs the extra `foldlog[otel]`, except for the fold.
"""

from __future__ import annotations

from .spans import Span, SpanFold, SpanLink, SpanNote
from .subscriber import subscribe

__all__ = ["Span", "SpanFold", "SpanLink", "SpanNote", "subscribe"]
