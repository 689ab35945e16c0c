"""The history that the fork of an agent's run shares with its original: the events up to a revision, made consistent.

A revision may be anywhere: within a model's reply, among the calls of a round, at a pause. What was finished there is
copied, in its order; what was open is not, and the fork does it again:

    a model call without a complete reply    is made again, from its first attempt
    a call without a result                  is made again, and nothing else of it is kept; the policy decides
    a final answer without the run's end     ends the fork, unless the fork has a message for it
    an approval of a finished call           is kept; any other is requested again, under an id of the fork's own

Never copied are events of driving (claims, parks, timers), manual pauses, cancels and the end. The children of a call
with a result are shared with it (`family`), those of an open call are not. Pure: no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.events import (
    REPLY_APPROVALS,
    ApprovalRequested,
    ApprovalResolved,
    Budget,
    ChildFinished,
    ChildReturned,
    ChildStarted,
    CutBegun,
    MessageInjected,
    MessageQueued,
    ModelFailed,
    ModelRequested,
    OutputMade,
    Prepared,
    ResultRecorded,
    SignalReceived,
    Status,
    Step,
    StoredEvent,
    Submitted,
    Text,
    ToolAttemptFailed,
    ToolCall,
    ToolResult,
    ToolStarted,
    Unknown,
    Usage,
    is_by_provider,
)
from ...projections.run_state import CallState, RunState
from ..core.approvals import request_approval
from ..core.commands import Inject
from ..core.rules import rules_of_run
from ..core.tool_calls import approval_needed
from ..core.turn import Turn
from .sharing import sharing_of

History = Sequence[StoredEvent | Unknown]
"""All events of a run, as they are stored, from revision 1 on."""

_STATED = frozenset({"succeeded", "failed"})
"""Outcomes of unverifiable calls that a person stated."""
_BOUNDARY = (Budget, CutBegun, MessageInjected, ModelFailed, ModelRequested, OutputMade)
"""Events that the core decides again if the step after them has not begun."""


ChildEvent = ChildFinished | ChildReturned | ChildStarted


class ForkTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a run in a fork, and the agent path that its history was recorded under.

    `children` maps the old ids of its children to the new ones; children that are missing are not shared.
    """

    run: str
    root: str
    path: str
    path_was: str
    children: Mapping[str, str] = MappingProxyType({})

    def turn(self, submitted: Submitted, now: float) -> Turn:
        """Return the turn that opens the run here."""
        state = RunState(run=self.run, root=self.root, path=self.path, submitted_at=now)
        turn = Turn(state, rules_of_run(submitted), now)
        turn.add(submitted, Status(status="starting"))
        return turn

    def rebase(self, event: StoredEvent | Unknown) -> StoredEvent:
        """Return the event with the paths and the children of this family."""
        changes: dict[str, object] = {}
        if event.agent_path:  # a forwarded event: its path begins with the run's
            changes["agent_path"] = self.path + event.agent_path.removeprefix(self.path_was)
        elif isinstance(event, ChildEvent) and event.child_run in self.children:
            changes["child_run"] = self.children[event.child_run]
        return msgspec.structs.replace(event, **changes) if changes else event  # type: ignore[return-value]


def take_over(
    history: History,
    at: int,
    submitted: Submitted,
    target: ForkTarget,
    now: float,
    message: Inject | None = None,
) -> Turn:
    """Return the turn that opens a fork: the events it shares with `history` up to revision `at`, folded.

    `submitted` opens it; its `fork` has the policy for open calls. `message` reaches the model with the next step.
    """
    turn = target.turn(submitted, now)
    if submitted.fork is not None and submitted.fork.tools == "replay":
        turn.add(*results_behind(history, at))
    _Copy(history, at, target).fill(turn)
    if message is not None:
        turn.add(MessageQueued(content=message.content, parts=list(message.parts)))
    return turn


def has_begun(history: History, at: int) -> bool:
    """Return whether a step began in the history up to the revision: a model may have read the run's input."""
    return any(isinstance(event, Step) and not event.agent_path for event in history[:at])


def check(history: History, at: int) -> None:
    """Raise `ConfigError` unless the run can be forked after this revision."""
    if not 1 <= at <= len(history):
        raise ConfigError(f"the run has revisions 1 to {len(history)}, not {at}")
    newer = next((event for event in history[:at] if isinstance(event, Unknown)), None)
    if newer is not None:
        raise ConfigError(
            f"the run has an event {newer.original_type!r} of a newer version: fork it with that version"
        )
    first = history[0]
    if not isinstance(first, Submitted):
        raise ConfigError("the run was cancelled before it began: there is nothing to fork")


def results_behind(history: History, at: int, below: str = "") -> Iterator[ResultRecorded]:
    """Yield the results of the run's calls after the revision, in call order, without those that a person stated.

    `below`: the node that the run was, for a fork of a run above it.
    """
    calls: dict[str, ToolCall] = {}
    results: dict[str, ToolResult] = {}
    stated = set[str]()
    for revision, event in enumerate(history, 1):
        if event.agent_path:
            continue
        call_id = event.tool_call_id or ""
        match event:
            case ToolCall() if not is_by_provider(event):
                calls[call_id] = event
            case ApprovalResolved() if event.decision != "approved" or event.outcome in _STATED:
                stated.add(call_id)
            case ToolResult() if revision > at and call_id not in stated:
                results[call_id] = event
            case _:
                pass
    for call_id, call in calls.items():
        result = results.get(call_id)
        status = result.metadata.get("status") if result is not None else None
        if result is not None and status in {"success", "error", "timed_out"}:
            yield ResultRecorded(
                source=call_id,
                tool_name=result.tool_name,
                arguments=result.metadata.get("edited_arguments", call.arguments),
                status=status,
                result=result.result,
                in_parts=result.in_parts,
                error=result.error,
                below=below,
            )


class Starts:
    """The started attempts in a history."""

    def __init__(self, own: History) -> None:
        self._last = {event.tool_call_id: event for event in own if isinstance(event, ToolStarted)}
        self._failed = {
            (event.tool_call_id, event.attempt) for event in own if isinstance(event, ToolAttemptFailed)
        }

    def is_accounted_for(self, start: ToolStarted) -> bool:
        """Return whether a copy shows how this attempt ended: answers of a person are not shared."""
        return start is self._last[start.tool_call_id] or (start.tool_call_id, start.attempt) in self._failed


def unmarked(event: StoredEvent | Unknown) -> StoredEvent | Unknown:
    """Return the event without the marks of a result that the original had from a run that it was forked from."""
    if isinstance(event, ToolResult) and not event.agent_path and "recorded_from" in event.metadata:
        marks = {"recorded_from", "deduplicated"}
        metadata = {key: value for key, value in event.metadata.items() if key not in marks}
        return msgspec.structs.replace(event, metadata=metadata)
    return event


class _Copy:
    """One history, cut at a revision."""

    def __init__(self, history: History, at: int, target: ForkTarget) -> None:
        self._target = target
        own = [event for event in history[:at] if not event.agent_path]
        self._open_step = _open_step(own)
        next_event = history[at] if at < len(history) else None
        cut = next_event is not None and _is_in_reply(next_event)
        replied = any(isinstance(e, Usage) and e.step == self._open_step for e in own) and not cut
        self._finished = {
            event.tool_call_id for event in own if isinstance(event, ToolResult) and not is_by_provider(event)
        }
        self._starts = Starts(own)
        self._calls_of = {
            event.child_run: event.tool_call_id for event in own if isinstance(event, ChildStarted)
        }
        self._requests = {
            event.tool_call_id: event
            for event in own
            if isinstance(event, ApprovalRequested) and event.kind in REPLY_APPROVALS
        }
        kept = [event for event in history[1:at] if self._is_kept(event, replied=replied)]
        self._kept = kept if self._open_step is not None else _rewound(kept)
        self._last_calls = {
            event.step: event.tool_call_id
            for event in self._kept
            if isinstance(event, ToolCall) and not event.agent_path and not is_by_provider(event)
        }

    def _is_kept(self, event: StoredEvent | Unknown, *, replied: bool) -> bool:
        if event.agent_path:
            return event.tool_call_id in self._finished
        called = event.tool_call_id is None or event.tool_call_id in self._finished or is_by_provider(event)
        match sharing_of(event), event:
            case "driving" | "life", _:
                return False
            case _, ChildStarted() | ChildFinished() | ChildReturned():
                return self._is_child_kept(event)
            case _, ToolStarted():
                return called and self._starts.is_accounted_for(event)
            case _, ApprovalResolved():
                request = self._requests.get(event.tool_call_id)
                return called and request is not None and request.approval_id == event.approval_id
            case "reply", _ if event.step is not None and event.step == self._open_step and not replied:
                return getattr(event, "phase", "") != ""
            case _:
                return (called or isinstance(event, ToolCall)) and not _is_end_of_budget(event)

    def _is_child_kept(self, event: ChildEvent) -> bool:
        """Return whether the child belongs to a finished call, and is shared: its usage always is, with the result."""
        finished = self._calls_of.get(event.child_run) in self._finished
        return finished and (event.child_run in self._target.children or isinstance(event, ChildReturned))

    def fill(self, turn: Turn) -> None:
        """Add what is kept to the turn, with the approvals and the pauses that belong to it."""
        for event in self._kept:
            turn.add(self._rebased(event, turn))
            if event.agent_path:
                continue
            if isinstance(event, ToolCall) and self._last_calls.get(event.step) == event.tool_call_id:
                self._ask(turn)
            elif (
                isinstance(event, ApprovalResolved) and turn.state.paused and not turn.state.pending_approvals
            ):
                turn.add(Status(status="resumed", reason=turn.state.paused))

    def _rebased(self, event: StoredEvent | Unknown, turn: Turn) -> StoredEvent:
        if isinstance(event, Prepared) and not event.agent_path:
            return msgspec.structs.replace(event, model=turn.rules.model)
        return self._target.rebase(unmarked(event))

    def _ask(self, turn: Turn) -> None:
        """Add the approvals of a round after the last call of its reply, and the pause."""
        before = len(turn.state.approvals)
        for call in list(turn.state.calls.values()):
            self._ask_about(turn, call)
        if len(turn.state.approvals) > before:
            turn.add(Status(status="paused", reason="approval"))

    def _ask_about(self, turn: Turn, call: CallState) -> None:
        if call.id in self._finished:
            if call.id in self._requests:
                turn.add(self._requests[call.id])
            return
        needed = approval_needed(turn, call, self._finished)
        if needed is not None:
            request_approval(turn, call, needed.kind, needed.reason)


def _is_end_of_budget(event: StoredEvent | Unknown) -> bool:
    """Return whether it is an exceeded limit, or the message that stopped the run: the fork's budgets decide again."""
    passed = isinstance(event, Budget) and event.kind == "limit"
    return passed or (isinstance(event, Text) and event.step is None)


def _is_in_reply(event: StoredEvent | Unknown) -> bool:
    """Return whether the event cannot be the first one after a complete reply: a call of it, or a provider's result."""
    return not event.agent_path and (isinstance(event, ToolCall) or is_by_provider(event))


def _open_step(own: Sequence[StoredEvent | Unknown]) -> int | None:
    """Return the step that has begun and not ended."""
    step = next((event for event in reversed(own) if isinstance(event, Step)), None)
    return step.step if step is not None and step.status == "started" else None


def _rewound(kept: list[StoredEvent | Unknown]) -> list[StoredEvent | Unknown]:
    """Return the events up to the core's last decision between two steps, plus the messages and signals since."""
    queued: list[StoredEvent | Unknown] = []
    kept = list(kept)
    while kept and isinstance(kept[-1], (*_BOUNDARY, MessageQueued, SignalReceived)):
        last = kept.pop()
        if isinstance(last, (MessageQueued, SignalReceived)):
            queued.append(last)
    end = kept[-1] if kept else None
    called = (
        any(
            isinstance(event, ToolCall) and event.step == end.step and not is_by_provider(event)
            for event in kept
        )
        if end is not None
        else False
    )
    if isinstance(end, Step) and not end.agent_path and not called:
        kept.pop()
    return [*kept, *reversed(queued)]
