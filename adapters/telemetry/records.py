"""Log records of runs, and cumulative counts of finished spans and violations.

The `log.record.uid` of a record is derived from its place in the log, so a record sent twice can be recognized. The
counts are stored with the cursor, so a restart neither loses nor doubles any.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Literal

import msgspec

from ...eventlog.events import Event
from . import conventions as names
from .spans import Note, Span, Value

DURATIONS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 86400)
"""The upper bounds of the buckets of durations, in seconds: from a cached answer to a day of waiting."""
Severity = Literal["INFO", "WARN", "ERROR"]
_SEVERITIES: dict[str, Severity] = {
    "foldlog.takeover": "WARN",
    "foldlog.left_to_others": "WARN",
    "foldlog.attempt_failed": "WARN",
    "foldlog.failed": "ERROR",
    "foldlog.call_failed": "WARN",
}


class Violated(msgspec.Struct, frozen=True, kw_only=True):
    """A violation of an ordering rule: the rule's id, and a message."""

    rule: str
    message: str


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A log record. `at` is Unix seconds; the ids are those of its span, empty if it has none."""

    name: str
    at: float
    uid: str
    severity: Severity = "INFO"
    text: str
    trace_id: str = ""
    span_id: str = ""
    attributes: dict[str, Value] = {}


def record_of(note: Note) -> Record:
    """Convert a note of the fold into a log record."""
    told = {name: value for name, value in note.attributes.items() if value not in {None, ""}}
    words = " ".join(f"{name}={value}" for name, value in told.items() if name != names.RUN_ID)
    return Record(
        name=note.name,
        at=note.at,
        uid=note.uid,
        severity=_SEVERITIES.get(note.name, "INFO"),
        text=f"{note.name.removeprefix('foldlog.')} {words}".strip(),
        trace_id=note.trace_id,
        span_id=note.span_id,
        attributes=told,
    )


def record_of_violation(event: Event, found: Violated, number: int) -> Record:
    """Return the record for a violation by an event; `number` distinguishes violations by the same event."""
    return Record(
        name=names.VIOLATION,
        at=event.at,
        uid=f"{event.run_id}/{event.revision}/{found.rule}/{number}",
        severity="ERROR",
        text=f"violation of {found.rule}: {found.message}",
        attributes={names.RULE: found.rule, names.RUN_ID: event.run_id},
    )


class Spread(msgspec.Struct, kw_only=True):
    """A histogram of durations in seconds: count, sum, extremes, and counts of the buckets, the last one unbounded."""

    count: int = 0
    total: float = 0.0
    least: float = 0.0
    most: float = 0.0
    buckets: list[int] = msgspec.field(default_factory=lambda: [0] * (len(DURATIONS_S) + 1))

    def add(self, took_s: float) -> None:
        """Count a duration."""
        self.least = min(self.least, took_s) if self.count else took_s
        self.most = max(self.most, took_s)
        self.count += 1
        self.total += took_s
        self.buckets[bisect_left(DURATIONS_S, took_s)] += 1


class Counts(msgspec.Struct, kw_only=True):
    """Cumulative counts since `since` (Unix seconds): by name, then by attributes as a JSON object with sorted keys."""

    since: float = 0.0
    sums: dict[str, dict[str, float]] = {}
    durations: dict[str, dict[str, Spread]] = {}

    def feed(self, spans: Iterable[Span], records: Iterable[Record]) -> None:
        """Count the finished spans and the violations."""
        for span in spans:
            self._span(span)
        for record in records:
            if record.name == names.VIOLATION:
                self._add(names.VIOLATIONS, 1, {names.RULE: record.attributes[names.RULE]})

    def _span(self, span: Span) -> None:
        known, took_s = span.attributes, span.ended_at - span.started_at
        operation = known.get(names.OPERATION)
        by: dict[str, Value | None] = {names.OPERATION: operation, names.ERROR_TYPE: span.error or None}
        if operation in {names.INVOKE_AGENT, names.INVOKE_WORKFLOW}:
            agent = {names.AGENT: known.get(names.AGENT)}
            name = names.AGENT_DURATION if operation == names.INVOKE_AGENT else names.WORKFLOW_DURATION
            self._took(name, took_s, {**by, **agent, names.STATUS: known.get(names.STATUS)})
            taken = sum(note.name == "foldlog.takeover" for note in span.notes)
            if taken:
                self._add(names.TAKEOVERS, taken, agent)
        elif operation == names.EXECUTE_TOOL:
            self._took(names.TOOL_DURATION, took_s, {**by, names.TOOL_NAME: known.get(names.TOOL_NAME)})
        else:
            model = {name: known.get(name) for name in (names.PROVIDER, names.REQUEST_MODEL)}
            self._took(names.MODEL_DURATION, took_s, {**by, **model})
            for name, kind in ((names.INPUT_TOKENS, "input"), (names.OUTPUT_TOKENS, "output")):
                tokens = known.get(name)
                if isinstance(tokens, int):
                    self._add(names.TOKENS, tokens, {**model, names.TOKEN_TYPE: kind})
            cost = known.get(names.COST_USD)
            if isinstance(cost, str):
                self._add(names.COST, float(cost), model)

    def _add(self, name: str, value: float, by: dict[str, Value | None]) -> None:
        of = self.sums.setdefault(name, {})
        key = _key(by)
        of[key] = of.get(key, 0.0) + value

    def _took(self, name: str, took_s: float, by: dict[str, Value | None]) -> None:
        self.durations.setdefault(name, {}).setdefault(_key(by), Spread()).add(took_s)


def _key(by: dict[str, Value | None]) -> str:
    known = {name: value for name, value in by.items() if value is not None}
    return msgspec.json.encode(known, order="sorted").decode()
