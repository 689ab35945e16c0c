"""The external inputs of a run, each at its logical place: a step, a step boundary, an approval.

    inputs = inputs_of(trace)           the inputs of a recorded run, at places that exist on every executor
    inputs = parse_inputs([{"type": "message", "step": 2, "content": "faster"}], "script.json")

`run` is the place of a run in its family, as the canonical form names it; empty for the root run. A cancel does not
have a place: it may fall anywhere among the events (R24).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.events import (
    OBSERVABLE,
    ApprovalRequested,
    ApprovalResolved,
    CancelRequested,
    Event,
    MessageInjected,
    MessageQueued,
    Status,
    Step,
    Submitted,
    ToolCall,
    WaitEnded,
)
from ...eventlog.parts import Part
from ..canonical.structure import Placed, place
from ..traces.trace import Trace

ROOT = ""
"""The place of the root run."""
EVERY = "*"
"""Instead of a call: every call, in every run, that has no answer of its own."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag="message", tag_field="type", omit_defaults=True):
    """A message that is sent first in the request of `step` (1, 2, ...)."""

    step: int
    content: str
    parts: list[Part] = []
    run: str = ROOT


class Pause(msgspec.Struct, frozen=True, kw_only=True, tag="pause", tag_field="type", omit_defaults=True):
    """A manual pause at the boundary before `step`, and the resumption after it."""

    step: int
    run: str = ROOT


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer", tag_field="type", omit_defaults=True):
    """The answer to the approval `ordinal` of `kind` about `call` (`step.index`, as in `1.0`; empty for a budget).

    In a workflow `call` is the place of the call, or of the question, such as `send/pay#0`.

    With `call="*"` it is the answer to every approval of the kind, in every run, that has none of its own. `timed_out`
    makes the approval expire. `outcome` and `result` are those of a call that a dead worker had started (kind
    `unverifiable`), or that was made by hand. `always` approves the same call for good.
    """

    call: str
    decision: Literal["approved", "rejected", "timed_out"] = "approved"
    kind: str = "tool"
    ordinal: int = 0
    arguments: dict[str, Any] | None = None
    outcome: Literal["retry", "succeeded", "failed"] | None = None
    result: Any = None
    note: str = ""
    always: bool = False
    run: str = ROOT


class WaitEnd(msgspec.Struct, frozen=True, kw_only=True, tag="wait", tag_field="type", omit_defaults=True):
    """The end of the wait `wait` (`signal-paid-0`) of `call` (`step.index`): by a signal, or by its timeout.

    For a wait of a workflow itself, `wait` and `call` are both its place, such as `paid#0`. A workflow's sleep, and
    a wait of it without an input, lasts as long as the workflow says.

    A callback (`callback-scan-0`) is answered with `data`. The signal is sent once the wait is open, whenever it was
    sent in the run that the input is taken from.
    """

    call: str
    wait: str
    data: Any = None
    key: str = ""
    timed_out: bool = False
    run: str = ROOT


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag="cancel", tag_field="type", omit_defaults=True):
    """A cancel of the family, as soon as its log has `after` observable events; the first is `status(starting)`."""

    after: int
    reason: str = ""


Input = Message | Pause | Answer | WaitEnd | Cancel
Inputs = tuple[Input, ...]


def parse_inputs(items: Any, where: str) -> Inputs:
    """Parse inputs from JSON objects with a `type`. Raises `ConfigError`, whose message begins with `where`."""
    try:
        return msgspec.convert(items, Inputs)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: inputs: {error}") from None


def without_cancels(inputs: Iterable[Input]) -> Inputs:
    """Return the inputs that have a place."""
    return tuple(item for item in inputs if not isinstance(item, Cancel))


def features_of(inputs: Iterable[Input]) -> frozenset[str]:
    """Return the capabilities that an executor needs for these inputs (R20)."""
    names = {Message: "inject", Pause: "pause", Answer: "approvals"}
    return frozenset(names[type(item)] for item in inputs if type(item) in names)


# --- from a trace -----------------------------------------------------------------------------------------------------


class ApprovalPlace(msgspec.Struct, frozen=True):
    """The place of an approval: the run, the call, the kind, and the ordinal among those."""

    run: str
    call: str
    kind: str
    ordinal: int

    def answer_in(self, inputs: Iterable[Input]) -> Answer | None:
        """Return the answer to this approval, otherwise the one to all approvals of its kind."""
        given = [item for item in inputs if isinstance(item, Answer) and item.kind == self.kind]
        own = (item for item in given if self._is_of(item))
        return next(own, None) or next((item for item in given if item.call == EVERY), None)

    def _is_of(self, answer: Answer) -> bool:
        return (self.run, self.call, self.ordinal) == (answer.run, answer.call, answer.ordinal)

    def __str__(self) -> str:
        of = f" of {self.run}" if self.run else ""
        return f"approval {self.ordinal} (kind {self.kind}) of call {self.call}{of}"


def inputs_of(trace: Trace | Iterable[Event]) -> Inputs:
    """Return the external inputs of a family, in the order in which they took effect.

    Recovery (approvals of kind unverifiable) is omitted, because it depends on the failures of that execution. A pause
    that was withdrawn had no effect and is omitted, too. A message that no step carried, because the run ended first,
    gets the place of the step that would have carried it. Inputs in the shared history of a fork are not its own.
    """
    events = list(trace.events if isinstance(trace, Trace) else trace)
    family, own = FamilyPlaces(events), _Own()
    found: list[Input] = []
    seen, cancelled = 0, False
    for index, event in enumerate(events):
        if own.has(event):
            found += _input(family, events, index, event)
        if isinstance(event, CancelRequested) and not cancelled:
            cancelled = True
            found.append(Cancel(after=max(seen, 1), reason=event.reason))
        seen += isinstance(event, OBSERVABLE)
    return tuple(found)


class _Own:
    """Tells a run's own inputs from those in the history that a fork shares."""

    def __init__(self) -> None:
        self._shared: dict[str, int] = {}
        self._queued: dict[str, list[tuple[str, list[Part]]]] = {}

    def has(self, event: Event) -> bool:
        """Return whether the next event may stem from an input of the run's own."""
        if isinstance(event, Submitted) and event.fork is not None:
            self._shared[event.run_id] = event.fork.shared
        shared = (event.revision or 0) <= self._shared.get(event.run_id, 0)
        queue = self._queued.setdefault(event.run_id, [])
        match event:
            case MessageQueued() if shared:
                queue.append((event.content, event.parts))
            case MessageInjected() if (event.content, event.parts) in queue:
                queue.remove((event.content, event.parts))
                return False
            case _:
                pass
        return not shared


def _input(family: FamilyPlaces, events: list[Event], index: int, event: Event) -> list[Input]:
    if event.agent_path and family.is_forwarded(event):
        return []
    match event:
        case MessageInjected():
            return [_message(family, events, index, event)]
        case MessageQueued() if _is_left(events, index):
            return [_message(family, events, index, event)]
        case Status(status="paused", reason="manual"):
            return [Pause(step=_next_step(events, index), run=family.place_of(event.run_id))]
        case ApprovalResolved():
            where = family.approval(event.run_id, event.approval_id)
            return [] if where is None or where.kind == "unverifiable" else [_answer(where, event)]
        case WaitEnded(outcome="received" | "timed_out" | "elapsed") if (
            event.place or event.outcome != "elapsed"
        ):
            return [
                WaitEnd(
                    run=family.place_of(event.run_id),
                    call=family.call(event),
                    wait=event.wait_id,
                    data=event.data,
                    key=event.key,
                    timed_out=event.outcome != "received",
                )
            ]
        case _:
            return []


def _message(
    family: FamilyPlaces, events: list[Event], index: int, event: MessageInjected | MessageQueued
) -> Message:
    return Message(
        step=_next_step(events, index),
        content=event.content,
        parts=event.parts,
        run=family.place_of(event.run_id),
    )


def _answer(where: ApprovalPlace, event: ApprovalResolved) -> Answer:
    return Answer(
        run=where.run,
        call=where.call,
        kind=where.kind,
        ordinal=where.ordinal,
        decision=event.decision,
        arguments=event.arguments,
        outcome=event.outcome,
        always=event.always,
        result=event.result,
        note=event.note,
    )


def _next_step(events: list[Event], index: int) -> int:
    """Return the step that begins after an event, or would have begun."""
    run = events[index].run_id
    before = [e.step for e in events[:index] if isinstance(e, Step) and e.run_id == run and e.step]
    return max(before, default=0) + 1


def _is_left(events: list[Event], index: int) -> bool:
    """Return whether no step carried the message queued here; messages are carried in the order of the queue."""
    run = events[index].run_id
    own = [event for event in events if event.run_id == run]
    before = sum(isinstance(event, MessageQueued) and event.run_id == run for event in events[:index])
    return before >= sum(isinstance(event, MessageInjected) for event in own)


class FamilyPlaces:
    """The places of a family's runs, calls and approvals, from its events as read and in log order."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = list(events)
        self._paths: dict[str, str] = {}
        self._placed: list[Placed] = place(self._events)
        for event in self._events:
            self._paths.setdefault(event.run_id, event.agent_path)
        self._root = self._events[0].root_id or self._events[0].run_id if self._events else ""
        self._runs = {
            item.event.run_id: item.run for item in self._placed if not self.is_forwarded(item.event)
        }

    def is_forwarded(self, event: Event) -> bool:
        """Return whether the event was emitted by an inner agent and only forwarded by the run."""
        return len(event.agent_path) > len(self._paths.get(event.run_id, event.agent_path))

    def place_of(self, run_id: str) -> str:
        """Return the place of a run; empty for the root."""
        return ROOT if run_id == self._root else self._runs.get(run_id, "?")

    def approval(self, run_id: str, approval_id: str) -> ApprovalPlace | None:
        """Return the place of an approval; None for an unknown one."""
        requests = [e for e in self._events if isinstance(e, ApprovalRequested) and e.run_id == run_id]
        asked = next((e for e in requests if e.approval_id == approval_id), None)
        if asked is None:
            return None
        same = [
            e
            for e in requests
            if (e.tool_call_id, e.place, e.step, e.kind)
            == (asked.tool_call_id, asked.place, asked.step, asked.kind)
        ]
        return ApprovalPlace(self.place_of(run_id), self.call(asked), asked.kind, same.index(asked))

    def call(self, asked: Event) -> str:
        """Return the place of the call that an event belongs to, as `1.0`; empty for none.

        What a workflow asks for itself has its place in the code, such as `paid#0`.
        """
        if asked.tool_call_id is None:
            return str(getattr(asked, "place", ""))
        labels = [
            item.call_label
            for item in self._placed
            if isinstance(item.event, ToolCall)
            and (item.event.run_id, item.event.tool_call_id) == (asked.run_id, asked.tool_call_id)
        ]
        return labels[-1] or "?" if labels else "?"
