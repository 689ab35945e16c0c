"""The canonical form of a family's trace: the Foata normal form of its events (R23).

A log stores the events of a run in one order, but only part of that order has a meaning: the results of two parallel
calls may come in either order. Two events of one run are dependent unless they belong to different calls of one step,
or to nodes that the flow of a swarm runs in parallel; events of two runs are dependent only if one of them starts or
ends the other's run. Level n holds the events whose longest chain of dependent predecessors has n - 1 links, sorted.
So two traces that differ only in the order of independent events have the same form, and equal forms mean equal runs.

The form is built in one pass. For each run, a front holds the last events on which a new one may depend: that of the
run as a whole, and since then one for each strand (a call, a node). An event's level is one more than the highest of
those it depends on. Its `cause` is a hash over itself and their causes, and so over everything that must precede it.
That makes prefixes easy to recognise: a set of events is one, closed under predecessors, exactly if its causes are all
among those of the trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.events import (
    ApprovalRequested,
    ApprovalResolved,
    ChildFinished,
    ChildStarted,
    Event,
    McpProgress,
    MessageInjected,
    Reasoning,
    Status,
    Step,
    Text,
    ToolCall,
    ToolPartial,
    ToolResult,
)
from ...projections.call_texts import result_text
from ..traces.trace import Trace
from .structure import IGNORABLE, Ignored, Placed, Strand, are_concurrent, place

LABEL_TEXT_MAX = 40


class Boundary(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the canonical form.

    Compared are `type`, `agent_path`, `run` (its place in the family), `step`, `call` (`step.index` of the call it
    belongs to), `digest` (of the payload, SHA-256) and `request` (the R12 digest of the step that it starts, if a reply
    was stored). The rest is not compared: `label` is for display, `payload` is the canonical JSON of which `digest` is
    the hash, and `run_id`, `revisions` and `cursor` locate the event in the log.
    """

    type: str
    agent_path: str
    run: str
    step: int | None
    call: str | None
    digest: str
    request: str
    cause: str
    label: str
    payload: bytes
    run_id: str
    revisions: tuple[int, ...]
    cursor: str | None

    @property
    def place(self) -> tuple[str, str, str, int, str]:
        """The place regardless of the content: (run, agent path, type, step, call); -1 and "" for none."""
        return self.run, self.agent_path, self.type, -1 if self.step is None else self.step, self.call or ""

    @property
    def key(self) -> tuple[str, str, str, int, str, str, str]:
        """Everything that is compared."""
        return (*self.place, self.digest, self.request)


Level = tuple[Boundary, ...]


class Canonical(msgspec.Struct, frozen=True):
    """The normal form: levels in order, each with its boundaries sorted; a digest (hex) of each level and of all."""

    levels: tuple[Level, ...]
    level_digests: tuple[str, ...]
    digest: str

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        """All boundaries in canonical order."""
        return tuple(boundary for level in self.levels for boundary in level)

    @property
    def size(self) -> int:
        """The number of boundaries."""
        return sum(map(len, self.levels))

    @property
    def requests(self) -> dict[tuple[str, int], str]:
        """The R12 digest of each step whose reply was stored, by (run, step)."""
        return {(b.run, b.step): b.request for b in self.boundaries if b.request and b.step is not None}


_ENCODER = msgspec.json.Encoder(order="sorted")


def canonical(trace: Trace | Iterable[Event], *, ignore: Collection[Ignored] = ()) -> Canonical:
    """Compute the canonical form of a family from its trace, or from its events as read in log order, in linear time.

    `ignore` leaves out counts in which a provider may differ each time. Raises `ConfigError` for an unknown name in it.
    """
    unknown = sorted(set(ignore) - set(IGNORABLE))
    if unknown:
        raise ConfigError(f"{unknown[0]!r} cannot be ignored; choose from {', '.join(IGNORABLE)}")
    events = trace.events if isinstance(trace, Trace) else trace
    levels: list[list[Boundary]] = []
    fronts = _Fronts()
    for item in place(events, ignore):
        payload = _ENCODER.encode(item.payload)
        boundary = _boundary(item, payload)
        level, cause = fronts.put(item, _ENCODER.encode(boundary.key[:-1]))
        if level == len(levels):
            levels.append([])
        levels[level].append(msgspec.structs.replace(boundary, cause=cause))
    return _form(levels)


def _form(levels: Iterable[list[Boundary]]) -> Canonical:
    ordered = tuple(tuple(sorted(level, key=lambda boundary: boundary.key)) for level in levels)
    digests = tuple(_sha256(_ENCODER.encode([boundary.key for boundary in level])) for level in ordered)
    return Canonical(ordered, digests, _sha256("".join(digests).encode()))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


Rank = tuple[int, str]
"""The level of an event (0, 1, ...; -1 for none) and its cause."""

_NOTHING: Rank = (-1, "")


class _Front:
    """The last events of a run that a new one may depend on: that of the whole run, and since then one per strand."""

    def __init__(self) -> None:
        self.run: Rank = _NOTHING
        self.strands: dict[int | None, dict[Strand, Rank]] = {}

    def all(self) -> list[Rank]:
        return [self.run, *(last for strands in self.strands.values() for last in strands.values())]

    def before(self, step: int | None, strand: Strand) -> list[Rank]:
        others = (strands.values() for other, strands in self.strands.items() if other != step)
        own = [
            last for other, last in self.strands.get(step, {}).items() if not are_concurrent(other, strand)
        ]
        return [self.run, *own, *(last for strands in others for last in strands)]

    def settle(self, rank: Rank) -> None:
        """Make this the only front: it depends on everything so far, and everything later depends on it."""
        self.run = rank
        self.strands.clear()


class _Fronts:
    """The fronts of a family's runs, by the places of the runs."""

    def __init__(self) -> None:
        self._fronts: dict[str, _Front] = {}

    def _of(self, run: str) -> _Front:
        front = self._fronts.get(run)
        if front is None:
            front = self._fronts[run] = _Front()
        return front

    def put(self, item: Placed, key: bytes) -> Rank:
        """Place the next event after everything it depends on, and return its level and cause."""
        front = self._of(item.run)
        step, strand = item.call[0] if item.call is not None else None, item.strand
        before = front.all() if strand is None else front.before(step, strand)
        if item.names_run is not None:
            before += self._of(item.names_run).all()
        rank = 1 + max(level for level, _ in before), _cause(key, before)
        if strand is None:
            front.settle(rank)
        else:
            front.strands.setdefault(step, {})[strand] = rank
        if item.names_run is not None:
            self._of(item.names_run).settle(rank)
        return rank


def _cause(key: bytes, before: list[Rank]) -> str:
    causes = sorted({cause for _, cause in before if cause})
    return _sha256(b"\n".join((key, *(cause.encode() for cause in causes))))


def _boundary(item: Placed, payload: bytes) -> Boundary:
    event = item.event
    return Boundary(
        type=event.type,
        agent_path=event.agent_path,
        run=item.run,
        step=event.step,
        call=item.call_label,
        digest=_sha256(payload),
        request=item.request,
        cause="",
        label=label_of(event),
        payload=payload,
        run_id=event.run_id,
        revisions=tuple(item.revisions),
        cursor=event.cursor,
    )


def label_of(event: Event) -> str:
    """Return the event in a few words, in the notation of the contract: `step(1, started)`."""
    words = _words(event)
    return f"{event.type}({words})" if words else event.type


def _words(event: Event) -> str:  # noqa: C901, PLR0912 - one line for each family
    match event:
        case Status():
            return ", ".join(filter(None, (event.status, event.reason)))
        case Step():
            return f"{event.step}, {event.status}"
        case Text() | Reasoning():
            return label_text(event.text)
        case MessageInjected():
            return label_text(event.content)
        case ToolCall():
            return event.tool_name
        case McpProgress():
            return f"{event.progress}/{event.total}" if event.total is not None else f"{event.progress}"
        case ToolPartial():
            return label_text(result_text(event.value))
        case ToolResult():
            return str(event.metadata.get("status", "success" if event.success else "error"))
        case ApprovalRequested():
            return ", ".join(filter(None, (event.kind, event.tool_name)))
        case ApprovalResolved():
            return event.decision
        case ChildStarted():
            return event.name
        case ChildFinished():
            return event.status
        case _:
            return _other_words(event)


def label_text(text: str) -> str:
    """Return a text as labels show it: quoted, and cut if it is long."""
    short = text if len(text) <= LABEL_TEXT_MAX else text[: LABEL_TEXT_MAX - 1] + "…"
    return _ENCODER.encode(short).decode()


_NAMING_FIELDS = ("action", "error_type", "name", "iteration", "stop_type", "scope", "status")


def _other_words(event: Event) -> str:
    fields = [str(getattr(event, name)) for name in _NAMING_FIELDS if hasattr(event, name)]
    return ", ".join(fields) or str(event.step or "")


def payload_of(boundary: Boundary) -> dict[str, Any]:
    """Return the payload fields of which `digest` is the hash."""
    fields: dict[str, Any] = msgspec.json.decode(boundary.payload)
    return fields
