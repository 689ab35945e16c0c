"""What the fork of an agent's run shares with the run that it leaves: that run's events up to a revision, made whole.

A revision may stand anywhere: within a model's answer, among the calls of a round, at a pause. Taken over is what was
finished there, in its order; what was open is not, and is done again by the fork:

    a model call without its whole answer    is asked again, from its first attempt
    a call without a result                  is asked for again, and nothing else of it is known; the policy decides
    a final answer without the run's end     ends the fork, unless there is a message for it
    an approval of a finished call           stays; every other one is asked for again, under an id of the fork's own

Never taken over are the driving (claims, parks, timers), pauses by people, cancels and the end. The children of a call
with a result are shared with it (`shared_family`), those of an open call are not. Pure: no clock, no I/O.
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
    ApprovalRevoked,
    Budget,
    CancelRequested,
    ChildFinished,
    ChildReady,
    ChildReturned,
    ChildStarted,
    Claimed,
    CutBegun,
    Error,
    FileMade,
    LateOutcome,
    MessageInjected,
    MessageQueued,
    ModelFailed,
    ModelRequested,
    OutputMade,
    Parked,
    PauseRequested,
    Prepared,
    Reasoning,
    Released,
    ReplyState,
    ResultRecorded,
    Status,
    Step,
    StoredEvent,
    Submitted,
    Text,
    TimerFired,
    TokenIssued,
    TokenRevoked,
    ToolAttemptFailed,
    ToolCall,
    ToolResult,
    ToolStarted,
    Unknown,
    Usage,
)
from ...projections.run_state import CallState, RunState
from ..core.approvals import request_approval
from ..core.rules import rules_of_run
from ..core.tool_calls import approval_needed
from ..core.turn import Turn

History = Sequence[StoredEvent | Unknown]
"""All events of a run, as they are stored, revision 1 first."""

_DRIVING = (
    ApprovalRevoked,
    CancelRequested,
    ChildReady,
    Claimed,
    Error,
    LateOutcome,
    Parked,
    PauseRequested,
    Released,
    ResultRecorded,
    Status,
    TimerFired,
    TokenIssued,
    TokenRevoked,
)
_REPLY = (ModelFailed, ModelRequested, Reasoning, Text, FileMade, ReplyState, Usage, ToolCall)
_TOLD = frozenset({"succeeded", "failed"})
"""Outcomes of unverifiable calls that people told."""
_BOUNDARY = (Budget, CutBegun, MessageInjected, ModelFailed, ModelRequested, OutputMade)
"""What the core decides again where a step has not begun."""


ChildEvent = ChildFinished | ChildReturned | ChildStarted


class ForkTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run of a fork lives, and the agent path that its history was recorded under.

    `children` are the ids that its children get, by those they had; who is not among them is not shared.
    """

    run: str
    root: str
    path: str
    path_was: str
    children: Mapping[str, str] = MappingProxyType({})

    def turn(self, submitted: Submitted, now: float) -> Turn:
        """The turn that opens the run here."""
        state = RunState(run=self.run, root=self.root, path=self.path, submitted_at=now)
        turn = Turn(state, rules_of_run(submitted), now)
        turn.add(submitted, Status(status="starting"))
        return turn

    def rebase(self, event: StoredEvent | Unknown) -> StoredEvent:
        """The event as it reads here: with the paths and the children of this family."""
        changes: dict[str, object] = {}
        if event.agent_path:  # forwarded: its path begins with that of the run
            changes["agent_path"] = self.path + event.agent_path.removeprefix(self.path_was)
        elif isinstance(event, ChildEvent) and event.child_run in self.children:
            changes["child_run"] = self.children[event.child_run]
        return msgspec.structs.replace(event, **changes) if changes else event  # type: ignore[return-value]


def take_over(
    history: History, at: int, submitted: Submitted, home: ForkTarget, now: float, message: str | None = None
) -> Turn:
    """The turn that opens a fork: the events it shares with `history` up to revision `at`, made whole, and folded.

    `submitted` opens it; its `fork` says by which policy open calls are asked for. `message` reaches the model with the
    next step.
    """
    turn = home.turn(submitted, now)
    if submitted.fork is not None and submitted.fork.tools == "replay":
        turn.add(*results_behind(history, at))
    _Copy(history, at, home).fill(turn)
    if message is not None:
        turn.add(MessageQueued(content=message))
    return turn


def has_begun(history: History, at: int) -> bool:
    """Return whether a step stands in the history up to the revision: a model may have seen the run's input."""
    return any(isinstance(event, Step) and not event.agent_path for event in history[:at])


def check(history: History, at: int) -> None:
    """Raise `ConfigError` unless the run can be forked behind this revision."""
    if not 1 <= at <= len(history):
        raise ConfigError(f"the run has revisions 1 to {len(history)}, not {at}")
    newer = next((event for event in history[:at] if isinstance(event, Unknown)), None)
    if newer is not None:
        raise ConfigError(
            f"the run holds an event {newer.original_type!r} of a newer version: fork it with that"
        )
    first = history[0]
    if not isinstance(first, Submitted):
        raise ConfigError("the run was cancelled before it began: there is nothing to fork")


def results_behind(history: History, at: int, below: str = "") -> Iterator[ResultRecorded]:
    """The results that the run's calls came to behind the revision, in call order, but for those that people gave.

    `below`: the node that the run was, for a fork of a run above it.
    """
    calls: dict[str, ToolCall] = {}
    results: dict[str, ToolResult] = {}
    told = set[str]()
    for revision, event in enumerate(history, 1):
        if event.agent_path:
            continue
        call_id = event.tool_call_id or ""
        match event:
            case ToolCall():
                calls[call_id] = event
            case ApprovalResolved() if event.decision != "approved" or event.outcome in _TOLD:
                told.add(call_id)
            case ToolResult() if revision > at and call_id not in told:
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


class _Copy:
    """One history, cut at a revision."""

    def __init__(self, history: History, at: int, home: ForkTarget) -> None:
        self._home = home
        own = [event for event in history[:at] if not event.agent_path]
        self._open_step = _open_step(own)
        behind = history[at] if at < len(history) else None
        cut = isinstance(behind, ToolCall) and not behind.agent_path
        replied = any(isinstance(e, Usage) and e.step == self._open_step for e in own) and not cut
        self._finished = {event.tool_call_id for event in own if isinstance(event, ToolResult)}
        self._last_starts = {event.tool_call_id: event for event in own if isinstance(event, ToolStarted)}
        self._failed_attempts = {
            (event.tool_call_id, event.attempt) for event in own if isinstance(event, ToolAttemptFailed)
        }
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
            if isinstance(event, ToolCall) and not event.agent_path
        }

    def _is_kept(self, event: StoredEvent | Unknown, *, replied: bool) -> bool:
        if event.agent_path:
            return event.tool_call_id in self._finished
        if isinstance(event, (*_DRIVING, ApprovalRequested)) or _is_end_of_budget(event):
            return False
        if isinstance(event, ChildEvent):  # what a call's children used counts, as its result does
            finished = self._calls_of.get(event.child_run) in self._finished
            shared = event.child_run in self._home.children or isinstance(event, ChildReturned)
            return finished and shared
        if isinstance(event, ToolStarted) and not self._is_accounted_for(event):
            return False
        if isinstance(event, ApprovalResolved):
            request = self._requests.get(event.tool_call_id)
            same = request is not None and request.approval_id == event.approval_id
            return same and event.tool_call_id in self._finished
        if (
            event.step is not None
            and event.step == self._open_step
            and not replied
            and isinstance(event, _REPLY)
        ):
            return getattr(event, "phase", "") != ""
        called = event.tool_call_id is None or isinstance(event, ToolCall)
        return called or event.tool_call_id in self._finished

    def _is_accounted_for(self, start: ToolStarted) -> bool:
        """Return whether the copy tells how this attempt ended: what people said of one is not shared."""
        is_last = start is self._last_starts[start.tool_call_id]
        return is_last or (start.tool_call_id, start.attempt) in self._failed_attempts

    def fill(self, turn: Turn) -> None:
        """Take over what is kept, with the approvals and the pauses that belong to it."""
        for event in self._kept:
            turn.add(self._at_home(event, turn))
            if event.agent_path:
                continue
            if isinstance(event, ToolCall) and self._last_calls.get(event.step) == event.tool_call_id:
                self._ask(turn)
            elif (
                isinstance(event, ApprovalResolved) and turn.state.paused and not turn.state.pending_approvals
            ):
                turn.add(Status(status="resumed", reason=turn.state.paused))

    def _at_home(self, event: StoredEvent | Unknown, turn: Turn) -> StoredEvent:
        if isinstance(event, Prepared) and not event.agent_path:
            return msgspec.structs.replace(event, model=turn.rules.model)
        if isinstance(event, ToolResult) and not event.agent_path and "recorded_from" in event.metadata:
            told = {"recorded_from", "deduplicated"}
            metadata = {k: v for k, v in event.metadata.items() if k not in told}
            return msgspec.structs.replace(event, metadata=metadata)
        return self._home.rebase(event)

    def _ask(self, turn: Turn) -> None:
        """Behind the last call of a reply: the approvals of the round, and the pause."""
        asked = len(turn.state.approvals)
        for call in list(turn.state.calls.values()):
            self._ask_about(turn, call)
        if len(turn.state.approvals) > asked:
            turn.add(Status(status="paused", reason="approval"))

    def _ask_about(self, turn: Turn, call: CallState) -> None:
        if call.id in self._finished:
            if call.id in self._requests:
                turn.add(self._requests[call.id])
            return
        asks = approval_needed(turn, call, self._finished)
        if asks is not None:
            request_approval(turn, call, asks.kind, asks.reason)


def _is_end_of_budget(event: StoredEvent | Unknown) -> bool:
    """A limit that was passed, and the message that stopped a run: decided again by the budgets of the fork."""
    passed = isinstance(event, Budget) and event.kind == "limit"
    return passed or (isinstance(event, Text) and event.step is None)


def _open_step(own: Sequence[StoredEvent | Unknown]) -> int | None:
    """The step that has begun and not ended."""
    step = next((event for event in reversed(own) if isinstance(event, Step)), None)
    return step.step if step is not None and step.status == "started" else None


def _rewound(kept: list[StoredEvent | Unknown]) -> list[StoredEvent | Unknown]:
    """Back to where the core decided how to go on between two steps; what it was told meanwhile stays."""
    told: list[StoredEvent | Unknown] = []
    kept = list(kept)
    while kept and isinstance(kept[-1], (*_BOUNDARY, MessageQueued)):
        last = kept.pop()
        if isinstance(last, MessageQueued):
            told.append(last)
    end = kept[-1] if kept else None
    called = (
        any(isinstance(event, ToolCall) and event.step == end.step for event in kept)
        if end is not None
        else False
    )
    if isinstance(end, Step) and not end.agent_path and not called:
        kept.pop()
    return [*kept, *reversed(told)]
