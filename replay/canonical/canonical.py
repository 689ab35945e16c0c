"""The canonical form of a family's trace: the Foata normal form of its events (R23).

Two events of one run are dependent unless both belong to calls of one step and the calls differ, or to nodes that the
flow of a swarm runs in parallel; events of two runs only if one of them starts or ends the other's run. Level n holds
the events whose longest chain of dependent predecessors has n - 1 links. Two traces are equal when their forms are; in
which order the log happened to hold independent events is gone.

Beside its place each event has a `cause`: a hash over itself and all that must stand before it. A set of events is a
prefix of a trace, closed downwards, exactly if its causes are among those of the trace.
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
    ToolResult,
)
from ..traces.trace import Trace
from .structure import IGNORABLE, Ignored, Placed, Strand, are_concurrent, place

LABEL_TEXT_MAX = 40


class Boundary(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the canonical form.

    Compared are `type`, `agent_path`, `run` (its place in the family), `step`, `call` (`step.index` of the call it
    tells of), `digest` (of the payload, SHA-256) and `request` (the R12 digest of the step that it starts, where a
    reply was stored). `label` is for people, `payload` the canonical JSON behind `digest`; `run_id`, `revisions` and
    `cursor` say where the log holds it.
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
        """What the boundary is about, whatever it says: (run, agent path, type, step, call); -1 and "" for none."""
        return self.run, self.agent_path, self.type, -1 if self.step is None else self.step, self.call or ""

    @property
    def key(self) -> tuple[str, str, str, int, str, str, str]:
        """All that is compared."""
        return (*self.place, self.digest, self.request)


Level = tuple[Boundary, ...]


class Canonical(msgspec.Struct, frozen=True):
    """The normal form: levels in order, the boundaries of each sorted; a digest (hex) for each level and for all."""

    levels: tuple[Level, ...]
    level_digests: tuple[str, ...]
    digest: str

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        """All boundaries in canonical order."""
        return tuple(boundary for level in self.levels for boundary in level)

    @property
    def size(self) -> int:
        """How many boundaries there are."""
        return sum(map(len, self.levels))

    @property
    def requests(self) -> dict[tuple[str, int], str]:
        """The R12 digest of each step whose reply was stored, by (run, step)."""
        return {(b.run, b.step): b.request for b in self.boundaries if b.request and b.step is not None}


_ENCODER = msgspec.json.Encoder(order="sorted")


def canonical(trace: Trace | Iterable[Event], *, ignore: Collection[Ignored] = ()) -> Canonical:
    """The canonical form of a family, from its trace or from its events as read, in log order. Linear in its length.

    `ignore` leaves out what a provider may count differently each time. Raises `ConfigError` for another word there.
    """
    unknown = sorted(set(ignore) - set(IGNORABLE))
    if unknown:
        raise ConfigError(f"{unknown[0]!r} cannot be ignored; what can: {', '.join(IGNORABLE)}")
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


Standing = tuple[int, str]
"""The level of an event (0, 1, ...; -1 for none) and its cause."""

_NOTHING: Standing = (-1, "")


class _Front:
    """The last events of a run that another may depend on: of the run as a whole, and of each strand since then."""

    def __init__(self) -> None:
        self.run: Standing = _NOTHING
        self.strands: dict[int | None, dict[Strand, Standing]] = {}

    def all(self) -> list[Standing]:
        return [self.run, *(last for strands in self.strands.values() for last in strands.values())]

    def before(self, step: int | None, strand: Strand) -> list[Standing]:
        others = (strands.values() for other, strands in self.strands.items() if other != step)
        own = [
            last for other, last in self.strands.get(step, {}).items() if not are_concurrent(other, strand)
        ]
        return [self.run, *own, *(last for strands in others for last in strands)]

    def settle(self, standing: Standing) -> None:
        """Everything that follows depends on this one, which depends on everything so far."""
        self.run = standing
        self.strands.clear()


class _Fronts:
    """The fronts of a family's runs, by the runs' places."""

    def __init__(self) -> None:
        self._fronts: dict[str, _Front] = {}

    def _of(self, run: str) -> _Front:
        front = self._fronts.get(run)
        if front is None:
            front = self._fronts[run] = _Front()
        return front

    def put(self, item: Placed, key: bytes) -> Standing:
        """Put the next event behind all it depends on; its level and its cause."""
        front = self._of(item.run)
        step, strand = item.call[0] if item.call is not None else None, item.strand
        before = front.all() if strand is None else front.before(step, strand)
        if item.names_run is not None:
            before += self._of(item.names_run).all()
        standing = 1 + max(level for level, _ in before), _cause(key, before)
        if strand is None:
            front.settle(standing)
        else:
            front.strands.setdefault(step, {})[strand] = standing
        if item.names_run is not None:
            self._of(item.names_run).settle(standing)
        return standing


def _cause(key: bytes, before: list[Standing]) -> str:
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
    """The event in a few words, as the contract writes the canonical trace: `step(1, started)`."""
    words = _words(event)
    return f"{event.type}({words})" if words else event.type


def _words(event: Event) -> str:  # noqa: C901 - one line for each family
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
    """A text as labels have it: quoted, and cut if it is long."""
    short = text if len(text) <= LABEL_TEXT_MAX else text[: LABEL_TEXT_MAX - 1] + "…"
    return _ENCODER.encode(short).decode()


_NAMING_FIELDS = ("action", "error_type", "name", "iteration", "stop_type", "scope", "status")


def _other_words(event: Event) -> str:
    fields = [str(getattr(event, name)) for name in _NAMING_FIELDS if hasattr(event, name)]
    return ", ".join(fields) or str(event.step or "")


def payload_of(boundary: Boundary) -> dict[str, Any]:
    """The fields behind the payload digest."""
    fields: dict[str, Any] = msgspec.json.decode(boundary.payload)
    return fields
