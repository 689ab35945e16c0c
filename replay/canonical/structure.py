"""Places instead of ids: the events of a trace named by structure, so that two traces can be compared.

A root run is named by its path; a child by its parent's name, the call or node that started it and its ordinal there; a
call by (step, index in the reply); an approval by (its call, kind, ordinal). Engine events are dropped, and so are the
pauses that approvals imply, recovery (approvals of kind unverifiable, with their pauses) and volatile fields. The
pieces of a step's text are joined (R23).

There are two passes, because names can depend on later events: the place of a swarm's node is known only when its flow
has run. The first pass collects calls, children and approvals; the second places each event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, Literal

import msgspec

from ...eventlog.events import (
    OBSERVABLE,
    ApprovalRequested,
    ApprovalResolved,
    Budget,
    ChildFinished,
    ChildReturned,
    ChildStarted,
    Custom,
    Evaluated,
    Event,
    EventFields,
    McpProgress,
    ModelRequested,
    OutputMade,
    Reasoning,
    Status,
    Step,
    Submitted,
    Text,
    ToolCall,
    ToolPartial,
    ToolResult,
    Usage,
    WaitEnded,
    WaitStarted,
)
from ...eventlog.schema import VOLATILE
from ...projections.fold import apply
from ...projections.run_state import RunState
from ...runtime.agents.subagents import PARALLEL
from ...runtime.core.swarm.coordinator import node_places

ENVELOPE = frozenset(EventFields.__struct_fields__)
"""Fields that only locate an event; its place replaces them."""

JOINED = frozenset({"offset"})
"""Fields that have no meaning for joined text."""

IMPLIED_PAUSES = frozenset({"approval", "unverifiable", "wait"})
"""Pauses that the canonical form leaves out: approvals and waits imply them, or they are recovery."""

CallPlace = tuple[int | None, str]
"""A call within its run: its step and its index in the reply. A node counts as a call, with its name as the index.

The children of a call that runs several at once count as calls within it: `0/2` is the third child of call 0.
"""

Ignored = Literal["cached-tokens", "usage"]
"""Counts in which a provider may differ each time: the cached part of a prompt, or all tokens. Values that follow from
them are ignored too: costs, and the amounts used in budgets."""

IGNORABLE: tuple[Ignored, ...] = ("cached-tokens", "usage")

Strand = tuple[tuple[str, int | str], ...]
"""The position of an event within its run, outermost part first: members ("|") of something that runs in parallel, such
as the calls of a step, stages (">") of a sequence, and operations ("=") of one branch of a workflow, which depend on
what the branch asks for and not on each other. Two events are concurrent if their strands first differ at two members,
or at two operations.
"""

_ENGINE = (ChildReturned, Evaluated, ModelRequested, OutputMade, Submitted)
"""Engine events that are read for the canonical form, but are not part of it."""
_OF_NODES = (ChildFinished, ChildReturned, ChildStarted, Evaluated, Submitted)

CALL_FAMILIES = (
    ApprovalRequested,
    ApprovalResolved,
    WaitStarted,
    WaitEnded,
    McpProgress,
    Custom,
    ToolPartial,
    ToolResult,
)
"""Events that belong to the tool call that they name, if any; so do forwarded and child events."""
_CHILD_FAMILIES = (ChildStarted, ChildFinished)
_ADDED = frozenset({"always", "asked", "executed_by", "in_parts", "parts", "place", "policy", "rules"})
"""Fields that were added to events. An unset one is omitted, so that the digests of older runs do not change."""
_KEPT: dict[type[EventFields], tuple[str, ...]] = {
    cls: tuple(name for name in cls.__struct_fields__ if name not in ENVELOPE | VOLATILE | JOINED)
    for cls in OBSERVABLE
}


class Placed(msgspec.Struct):
    """An observable event at its place. `call` is the call it belongs to, None for events of the run as a whole.

    `strand` is its strand among the calls of its step or the nodes of its swarm (R23); None if it depends on everything
    in its run. `names_run` is the place of the child run that the event starts or ends, `request` the R12 digest of the
    step that it starts, and `revisions` are those of the events joined into it.
    """

    event: Event
    run: str
    call: CallPlace | None
    strand: Strand | None
    payload: dict[str, Any]
    revisions: list[int]
    names_run: str | None = None
    request: str = ""

    @property
    def call_label(self) -> str | None:
        """The call as text: `1.0` for the first call of step 1."""
        return None if self.call is None else _label(self.call)


def _label(call: CallPlace) -> str:
    step, index = call
    return index if step is None else f"{step}.{index}"


class _Run:
    """The names of one run's calls, children and approvals."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.calls: dict[tuple[int | None, str], CallPlace] = {}
        self.latest: dict[str, CallPlace] = {}
        self.calls_in_step: Counter[tuple[int | None, str]] = Counter()
        self.approvals: dict[str, tuple[str, str]] = {}
        self.questions: dict[str, str] = {}
        """The place of each question that a workflow itself asks, by its approval."""
        self.ordinals: Counter[tuple[str, str]] = Counter()
        self.forks: set[CallPlace] = set()
        """Calls that run their children in parallel."""
        self.pauses: list[str] = []
        self.texts: dict[str, Placed] = {}
        self.requested: dict[int | None, str] = {}
        self.steps: dict[int | None, Placed] = {}
        self.output: str | None = None
        self.swarm: RunState | None = None
        self.is_workflow = False
        self.nodes: dict[str, Strand] = {}
        """The strands of a swarm's child runs within its flow."""
        self.after: dict[str, list[str]] = {}
        """The direct predecessors of each node; levels alone cannot tell `(a | b)*2` from `((a*2) | (b*2))`."""

    def next_call(self, event: ToolCall) -> CallPlace:
        """Return the place of the next call; calls of native tools are counted separately."""
        by = f"{event.executed_by}-" if event.executed_by else ""
        index = self.calls_in_step[event.step, by]
        self.calls_in_step[event.step, by] += 1
        return event.step, f"{by}{index}"

    def forwarded(self, event: Event) -> bool:
        return len(event.agent_path) > len(self.path)

    def call_of(self, event: Event) -> CallPlace | None:
        """Return the call that an event belongs to, None for an event of the run as a whole."""
        place: str = getattr(event, "place", "")
        if isinstance(event, ApprovalResolved):
            place = self.questions.get(event.approval_id, "")
        if self.is_workflow and (place or event.tool_call_id is not None):
            return None, place or event.tool_call_id or ""
        if event.tool_call_id is None:
            return (event.step, event.name) if isinstance(event, ChildStarted) else None
        exact = self.calls.get((event.step, event.tool_call_id))
        return exact or self.latest.get(event.tool_call_id) or (event.step, "?")

    def strand_of(self, event: Event) -> Strand | None:
        """Return the strand of the event, None if it depends on everything in the run."""
        if isinstance(event, _CHILD_FAMILIES) and event.tool_call_id is None and not self.is_workflow:
            return self.nodes.get(event.child_run)
        call = self.call_of(event)
        if self.is_workflow and call is not None:
            return _in_workflow(call[1], asks=asks_for(event) is not None)
        if call is None or not (
            isinstance(event, (*CALL_FAMILIES, *_CHILD_FAMILIES)) or self.forwarded(event)
        ):
            return None
        return _strand(call)

    def coordinate(self, event: Event) -> None:
        """Fold an event that shows the progress of a swarm."""
        if isinstance(event, Submitted) and event.kind == "swarm":
            self.swarm = RunState(path=self.path)
        if isinstance(event, Submitted):
            self.is_workflow = event.kind == "workflow"
        if self.swarm is not None:
            apply(self.swarm, msgspec.structs.replace(event, agent_path=""), 0.0)  # type: ignore[arg-type] # stored

    def place_nodes(self) -> None:
        """Locate the nodes within the flow, after all events were seen."""
        if self.swarm is None:
            return
        places = node_places(self.swarm)
        before: list[tuple[Strand, str]] = []
        for node in self.swarm.nodes:
            place = places.get((node.name, node.ordinal))
            if place is None:
                continue
            last: list[tuple[Strand, str]] = []
            for other in reversed(before):
                if not are_concurrent(place, other[0]) and all(are_concurrent(other[0], x) for x, _ in last):
                    last.append(other)
            self.nodes[node.child_run] = place
            self.after[node.child_run] = sorted(name for _, name in last)
            before.append((place, f"{node.name}#{node.ordinal}"))


def are_concurrent(one: Strand, other: Strand) -> bool:
    """Return whether two strands first differ at two parallel members; a call and a child within it do not."""
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            return mine[0] == theirs[0] and mine[0] != ">"
    return False


class _Names:
    """The names of all runs of a family."""

    def __init__(self) -> None:
        self.runs: dict[str, _Run] = {}
        self.parents: dict[str, tuple[str, CallPlace, int, str]] = {}
        self._names: dict[str, str] = {}

    def run_of(self, event: Event) -> _Run:
        run = self.runs.get(event.run_id)
        if run is None:
            run = self.runs[event.run_id] = _Run(event.agent_path)
        return run

    def learn(self, event: Event) -> None:
        """Assign ordinals to calls, children and approvals (first pass)."""
        run = self.run_of(event)
        if run.forwarded(event):
            return
        if isinstance(event, _OF_NODES):
            run.coordinate(event)
        match event:
            case ToolCall() if run.is_workflow:
                pass
            case ToolCall():
                place = run.next_call(event)
                if event.tool_name == PARALLEL:
                    run.forks.add(place)
                run.calls[event.step, event.tool_call_id or ""] = run.latest[event.tool_call_id or ""] = place
            case ChildStarted():
                call = run.call_of(event) or (event.step, event.name)
                self.parents.setdefault(
                    event.child_run, (event.run_id, call, _next(run, call, "child"), event.name)
                )
            case ApprovalRequested():
                call = run.call_of(event) or (event.step, "")
                if event.place:
                    run.questions[event.approval_id] = event.place
                name = f"{_label(call)}:{event.kind}#{_next(run, call, event.kind)}"
                run.approvals.setdefault(event.approval_id, (name, event.kind))
            case _:
                pass

    def name(self, run_id: str) -> str:
        """Return the structural name of a run."""
        known = self._names.get(run_id)
        if known is None:
            known = self._names[run_id] = self._make_name(run_id)
        return known

    def _make_name(self, run_id: str) -> str:
        parent = self.parents.get(run_id)
        if parent is None:
            run = self.runs.get(run_id)
            return run.path if run is not None else "?"
        parent_id, call, ordinal, name = parent
        at = "" if call[1] == name else f"@{_label(call)}"
        return f"{self.name(parent_id)}/{name}{at}#{ordinal}"


def _in_workflow(place: str, *, asks: bool) -> Strand | None:
    """Return the strand of an operation's event: its branch's if it starts the operation, else its own (R28).

    Operations that the workflow starts outside of every branch depend on everything in the run.
    """
    *branch, name = place.split("/")
    strand: Strand = tuple(("|", part) for part in branch)
    if not asks:
        return (*strand, ("=", name))
    return strand or None


def asks_for(event: Event) -> str | None:
    """Return the place of the operation that a workflow starts with this event; None for any other event."""
    match event:
        case ToolCall():
            return event.tool_call_id
        case WaitStarted() | ApprovalRequested() | ChildStarted():
            return event.place or None
        case _:
            return None


def _strand(call: CallPlace) -> Strand:
    return tuple(("|", part) for part in call[1].split("/"))


def _next(run: _Run, call: CallPlace, kind: str) -> int:
    key = (_label(call), kind)
    run.ordinals[key] += 1
    return run.ordinals[key] - 1


def place(events: Iterable[Event], ignore: Collection[Ignored] = ()) -> list[Placed]:
    """Place the events of a family, given as read in log order with the engine events. Keeps their order."""
    kept = [event for event in events if isinstance(event, (*OBSERVABLE, *_ENGINE))]
    places = _Names()
    for event in kept:
        places.learn(event)
    for run in places.runs.values():
        run.place_nodes()
    placed: list[Placed] = []
    for event in kept:
        item = _place(places, places.run_of(event), event, ignore)
        if item is not None:
            placed.append(item)
    return placed


def _place(places: _Names, run: _Run, event: Event, ignore: Collection[Ignored]) -> Placed | None:
    """Place one event (second pass); None if it is dropped or was joined to an earlier one."""
    forwarded = run.forwarded(event)
    if isinstance(event, _ENGINE):
        _learn_late(run, event)
        return None
    if not forwarded and (_is_implied(run, event) or _joined(run, event)):
        return None
    item = Placed(
        event=event,
        run=places.name(event.run_id),
        call=run.call_of(event),
        strand=run.strand_of(event),
        payload=_without(ignore, event, _payload(event)) if ignore else _payload(event),
        revisions=[event.revision or 0],
    )
    if forwarded:
        _forget_ids(item.payload)
    else:
        _replace_ids(places, run, item)
        _remember(run, item)
    return item


def _learn_late(run: _Run, event: Event) -> None:
    match event:
        case ModelRequested(phase=""):
            run.requested[event.step] = event.digest
        case OutputMade():
            run.output = event.output
        case _:
            pass


def _payload(event: Event) -> dict[str, Any]:
    payload = {
        name: value for name in _KEPT[type(event)] if (value := getattr(event, name)) or name not in _ADDED
    }
    if isinstance(event, ToolResult):
        payload["metadata"] = {k: v for k, v in event.metadata.items() if k not in VOLATILE}
    return payload


_UNCACHED: dict[str, Any] = {
    "cached_input_tokens": 0,
    "cache_writes": msgspec.UNSET,
    "cache_writes_1h": msgspec.UNSET,
}
"""The counts of a usage that depend on what the provider's cache held."""
_COUNTED = {"cached-tokens": frozenset({"cost"}), "usage": frozenset({"context", "tokens", "cost"})}
"""The scopes of the budgets whose amounts depend on these counts."""


def _without(ignore: Collection[Ignored], event: Event, payload: dict[str, Any]) -> dict[str, Any]:
    match event:
        case Usage():
            kept = payload | {"cost_usd": None}
            if "usage" in ignore:
                return kept | {"usage": None, "source": None}
            return kept | {"usage": msgspec.structs.replace(event.usage, **_UNCACHED)}
        case Budget() if any(event.scope in _COUNTED[each] for each in ignore):
            return payload | {"used": None, "message": None}
        case _:
            return payload


def _is_implied(run: _Run, event: Event) -> bool:
    """Return whether the canonical form leaves the event out."""
    match event:
        case Status(status="paused"):
            run.pauses.append(event.reason)
            return event.reason in IMPLIED_PAUSES
        case Status(status="resumed"):
            reason = event.reason or (run.pauses[-1] if run.pauses else "")
            return reason in IMPLIED_PAUSES
        case ApprovalRequested() | ApprovalResolved():
            return run.approvals.get(event.approval_id, ("", ""))[1] == "unverifiable"
        case _:
            return False


def _joined(run: _Run, event: Event) -> bool:
    """Join a piece of text to the first of its step if only text and reasoning came between; return whether it was."""
    if not isinstance(event, Text | Reasoning):
        run.texts.clear()
        return False
    first = run.texts.get(event.type)
    if first is None or first.event.step != event.step:
        return False
    first.payload["text"] += event.text
    first.revisions.append(event.revision or 0)
    return True


def _replace_ids(places: _Names, run: _Run, item: Placed) -> None:
    event, payload = item.event, item.payload
    match event:
        case ApprovalRequested() | ApprovalResolved():
            payload["approval_id"] = run.approvals.get(event.approval_id, ("?", ""))[0]
        case ToolResult() if "approval_id" in payload["metadata"]:
            approval = run.approvals.get(payload["metadata"]["approval_id"], ("?", ""))[0]
            payload["metadata"] = {**payload["metadata"], "approval_id": approval}
        case ChildStarted() | ChildFinished():
            item.names_run = payload["child_run"] = places.name(event.child_run)
            if event.child_run in places.parents:
                _, call, ordinal, _ = places.parents[event.child_run]
                item.call = (call[0], f"{call[1]}/{ordinal}") if call in run.forks else call
                if run.is_workflow:
                    item.strand = _in_workflow(call[1], asks=isinstance(event, ChildStarted))
                    return
                item.strand = run.strand_of(event) if event.tool_call_id is None else _strand(item.call)
            if isinstance(event, ChildStarted) and event.child_run in run.after:
                payload["after"] = run.after[event.child_run]
        case Status(status="completed") if run.output is not None:
            payload["output"] = run.output
        case _:
            pass


def _forget_ids(payload: dict[str, Any]) -> None:
    """Remove the ids of a forwarded event, which have a meaning only within its own agent."""
    for name in ("approval_id", "child_run"):
        payload.pop(name, None)
    if "metadata" in payload:
        payload["metadata"] = {k: v for k, v in payload["metadata"].items() if k != "approval_id"}


def _remember(run: _Run, item: Placed) -> None:
    match item.event:
        case Text() | Reasoning():
            run.texts[item.event.type] = item
        case Step(status="started"):
            run.steps[item.event.step] = item
        case Usage() if item.event.step in run.steps:
            run.steps[item.event.step].request = run.requested.get(item.event.step, "")
        case _:
            pass
