"""Metrics for Prometheus: counters and durations from finished spans, gauges from the run list.

Counters begin at zero with each process, as Prometheus expects; `docs/how-to/telemetry.md` lists names and labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...eventlog.clock import Clock
from ...eventlog.errors import ConfigError
from ...projections.run_list import OPEN
from . import conventions as names
from .records import DURATIONS_S, Record
from .spans import Span
from .subscriber import Told

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from ...projections.projector import RunIndex

COUNT_MAX = 100_000
"""The largest number of open runs that is reported; larger ones are reported as this."""


class Metrics:
    """A sink that holds the metrics of a namespace. `rules` are the ids of the ordering rules.

    Raises `ConfigError` if the extra is not installed.
    """

    def __init__(self, namespace: str, rules: Iterable[str] = ()) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
        except ImportError:
            raise ConfigError("metrics need prometheus-client: pip install 'foldlog[otel]'") from None
        self.registry: CollectorRegistry = CollectorRegistry()
        self._namespace = namespace

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(name, what, ("namespace", *labels), registry=self.registry)

        def gauge(name: str, what: str, *labels: str) -> Gauge:
            return Gauge(name, what, ("namespace", *labels), registry=self.registry)

        def duration(name: str, what: str, *labels: str) -> Histogram:
            return Histogram(name, what, ("namespace", *labels), buckets=DURATIONS_S, registry=self.registry)

        self._runs_ended = counter("foldlog_runs_ended_total", "Runs that have ended.", "agent", "status")
        self._run_s = duration("foldlog_run_duration_seconds", "From submission to end.", "agent")
        self._takeovers = counter("foldlog_takeovers_total", "Claims that ended one which held.", "agent")
        self._model_calls = counter(
            "foldlog_model_calls_total",
            "Attempts of model calls; error is empty for a reply.",
            "model",
            "error",
        )
        self._model_s = duration("foldlog_model_duration_seconds", "One attempt of a model call.", "model")
        self._tokens = counter("foldlog_tokens_total", "Tokens of model calls.", "model", "direction")
        self._cost = counter("foldlog_cost_usd_total", "US dollars, of calls with a known price.", "model")
        self._unpriced = counter("foldlog_unpriced_calls_total", "Replies whose price is unknown.", "model")
        self._tool_calls = counter(
            "foldlog_tool_calls_total", "Tool calls; error is empty for a success.", "tool", "error"
        )
        self._tool_s = duration("foldlog_tool_duration_seconds", "A tool call, its waits included.", "tool")
        self._violations = counter("foldlog_violations_total", "Events that break an ordering rule.", "rule")
        for rule in rules:  # Prometheus sees no increase in a counter that first appears at 1
            self._violations.labels(namespace, rule)
        self._runs = gauge("foldlog_runs", "Open runs now.", "status")
        self._damaged = gauge("foldlog_runs_damaged", "Runs whose logs are damaged.")
        self._waiting = gauge("foldlog_runs_waiting", "Open runs by what they wait for.", "waiting_for")
        self._approvals = gauge("foldlog_approvals_pending", "Approvals that wait for a decision.")
        self._approval_age = gauge(
            "foldlog_approval_oldest_seconds", "How long the oldest pending approval has waited."
        )
        self._stuck = gauge(
            "foldlog_run_idle_seconds", "Time since the last commit of the run that is idle longest."
        )
        self._lag = gauge("foldlog_telemetry_lag_seconds", "Age of the newest event when it was counted.")
        self._waits_told: set[str] = set()

    async def send(self, told: Told) -> None:
        """Count the finished spans and the violations."""
        for span in told.spans:
            self._count(span)
        self._judged(told.records)

    def _judged(self, records: Sequence[Record]) -> None:
        for record in records:
            if record.name == names.VIOLATION:
                self._violations.labels(self._namespace, str(record.attributes[names.RULE])).inc()

    def _count(self, span: Span) -> None:
        known, took_s = span.attributes, span.ended_at - span.started_at
        operation, where = known.get(names.OPERATION), self._namespace
        if operation in {names.INVOKE_AGENT, names.INVOKE_WORKFLOW}:
            agent = str(known.get(names.AGENT, ""))
            self._runs_ended.labels(where, agent, str(known.get(names.STATUS, ""))).inc()
            self._run_s.labels(where, agent).observe(took_s)
            taken = sum(note.name == "foldlog.takeover" for note in span.notes)
            self._takeovers.labels(where, agent).inc(taken)
        elif operation == names.EXECUTE_TOOL:
            tool = str(known.get(names.TOOL_NAME, ""))
            self._tool_calls.labels(where, tool, span.error).inc()
            self._tool_s.labels(where, tool).observe(took_s)
        else:
            self._count_model(span, took_s)

    def _count_model(self, span: Span, took_s: float) -> None:
        known, where = span.attributes, self._namespace
        model = ":".join(str(known[name]) for name in (names.PROVIDER, names.REQUEST_MODEL) if name in known)
        self._model_calls.labels(where, model, span.error).inc()
        self._model_s.labels(where, model).observe(took_s)
        for name, direction in ((names.INPUT_TOKENS, "input"), (names.OUTPUT_TOKENS, "output")):
            tokens = known.get(name, 0)
            if isinstance(tokens, int):
                self._tokens.labels(where, model, direction).inc(tokens)
        cost = known.get(names.COST_USD)
        if isinstance(cost, str):
            self._cost.labels(where, model).inc(float(cost))
        elif not span.error:
            self._unpriced.labels(where, model).inc()

    def told(self, at: float, now: float) -> None:
        """Set the lag: `at` is the time of the newest event counted, `now` the present (Unix seconds)."""
        self._lag.labels(self._namespace).set(max(0.0, now - at))

    async def look(self, index: RunIndex, clock: Clock) -> None:
        """Set the gauges from the run list and the approvals. Raises the errors of the index."""
        where, now = self._namespace, clock.now()
        for status in OPEN:
            counts = await index.count_runs(COUNT_MAX, status=status)
            self._runs.labels(where, status).set(counts[status])
        self._damaged.labels(where).set(await index.count_damaged())
        waits = await index.count_waits()
        for waiting_for in self._waits_told | set(waits):
            self._waiting.labels(where, waiting_for).set(waits.get(waiting_for, 0))
        self._waits_told |= set(waits)
        pending = await index.approvals()
        self._approvals.labels(where).set(len(pending))
        oldest = min((approval.requested_at for approval in pending), default=now)
        self._approval_age.labels(where).set(max(0.0, now - oldest))
        idle = await index.idle_since()
        self._stuck.labels(where).set(0.0 if idle is None else max(0.0, now - idle))

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)
