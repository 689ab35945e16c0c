"""The history that the fork of a workflow shares with it: the operations that were over at a revision.

    an operation that is over there          is kept, with its outcome, approval and waits
    one that failed, if nothing followed     is done again
    one that is open                         is done again; a child run that is open goes on in the fork
    the code                                 runs again from its beginning, over what is kept

Never copied are events of driving, manual pauses, divergences, cancels and the end. Pure: no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from ...eventlog.events import (
    REPLY_APPROVALS,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalRevoked,
    ChildFinished,
    ChildReturned,
    ChildStarted,
    Chosen,
    Marked,
    Memoized,
    OperationSkipped,
    Prepared,
    ResultRecorded,
    SharedCode,
    SignalDropped,
    SignalReceived,
    Status,
    StoredEvent,
    Submitted,
    ToldAs,
    ToolCall,
    ToolResult,
    ToolStarted,
    Unknown,
    WaitEnded,
    WaitStarted,
)
from ...projections.flow_state import FlowState
from ...projections.fold.operations import code_began_at
from ...projections.run_state import RunState
from ..core.turn import Turn
from .history import ForkTarget, History, Starts, unmarked
from .sharing import sharing_of


def take_over_operations(
    history: History,
    was: RunState,
    submitted: Submitted,
    target: ForkTarget,
    now: float,
    recorded: Iterable[ResultRecorded] = (),
) -> Turn:
    """Return the turn that opens the fork of a workflow: what it shares with `history`, which led to `was`, folded.

    A child that is not among the target's children is not shared, and starts again; `recorded` has results for it.
    """
    kept = _Kept(history, was.flow if was.flow is not None else FlowState(), target)
    turn = target.turn(with_code(submitted, was, kept.ended), now)
    turn.add(*recorded)
    for event in history[1:]:
        if kept.has(event):
            turn.add(target.rebase(unmarked(event)))
            _pause(turn, event)
    return turn


def with_code(submitted: Submitted, was: RunState, ended: Sequence[str]) -> Submitted:
    """Return a fork's submission with what its code is told while it runs over these operations of its original."""
    if submitted.fork is None or was.flow is None or was.submitted is None:
        return submitted
    before = was.submitted.fork.code if was.submitted.fork is not None else None
    kept = set(ended)
    told = [
        ToldAs(run=each.run, session=each.session, ends=sum(p in kept for p in was.flow.order[: each.ends]))
        for each in (before.told if before is not None else ())
    ]
    own = ToldAs(run=was.run, session=was.submitted.session, ends=len(ended))
    times = [code_began_at(was), *(was.flow.ended[place].at for place in ended)]
    link = msgspec.structs.replace(submitted.fork, code=SharedCode(told=[*told, own], times=times))
    return msgspec.structs.replace(submitted, fork=link)


def has_operation(history: History, at: int) -> bool:
    """Return whether the code asked for something up to the revision: it may have read the run's input."""
    return any(asked_place(event) is not None for event in history[:at])


def places_of(history: History) -> dict[str, str]:
    """Return the places of the children that a workflow itself started, by their runs."""
    return {e.child_run: e.place for e in history if isinstance(e, ChildStarted) and e.place}


def asked_place(event: StoredEvent | Unknown) -> str | None:
    """Return the place of the operation, choice or value that this event records; null for any other event."""
    if event.agent_path:
        return None
    match event:
        case ToolCall():
            return event.tool_call_id
        case Chosen() | Marked() | OperationSkipped():
            return event.place
        case WaitStarted() | ApprovalRequested() | ChildStarted():
            return event.place or None
        case _:
            return None


class _Kept:
    """The events of a workflow's history that a fork shares."""

    def __init__(self, history: History, flow: FlowState, target: ForkTarget) -> None:
        self._flow, self._target = flow, target
        self._places = places_of(history)
        failed = set(_failed_last(history, flow, self._places))
        self.ended = [place for place in flow.order if place not in failed]
        """The operations that are kept, in the order of their ends."""
        self._over = set(self.ended)
        self._failed = failed
        own = [event for event in history if not event.agent_path]
        self._starts = Starts(own)
        self._requests = {
            event.approval_id
            for event in own
            if isinstance(event, ApprovalRequested) and self._is_answered(event)
        }
        self._calls_of = {
            event.child_run: event.tool_call_id for event in own if isinstance(event, ChildStarted)
        }

    def _is_answered(self, event: ApprovalRequested) -> bool:
        """Return whether it is a question that is answered, or an approval before a call that is over."""
        if event.place:
            return event.place in self._over
        return event.kind in REPLY_APPROVALS and event.tool_call_id in self._over

    def has(self, event: StoredEvent | Unknown) -> bool:
        """Return whether the fork shares the event."""
        if event.agent_path:
            return event.tool_call_id in self._over
        match event:
            case Prepared() | Chosen() | Marked():
                return True
            case OperationSkipped():
                return event.place not in self._failed
            case SignalReceived() | SignalDropped():
                return event.tool_call_id is None or event.tool_call_id in self._over
            case ApprovalRequested() | ApprovalResolved() | ApprovalRevoked():
                return event.approval_id in self._requests
            case ChildStarted() | ChildReturned() | ChildFinished():
                return self._has_child(event)
            case ToolStarted():
                return event.tool_call_id in self._over and self._starts.is_accounted_for(event)
            case WaitStarted() | WaitEnded():
                return (event.tool_call_id or event.place) in self._over
            case _:
                shared = sharing_of(event) in {"history", "reply"}
                return shared and event.tool_call_id in self._over

    def _has_child(self, event: ChildStarted | ChildReturned | ChildFinished) -> bool:
        """Return whether the child is shared: with its call if it has one; a workflow's own also while it is open."""
        call, shared = self._calls_of.get(event.child_run), event.child_run in self._target.children
        if call is not None:
            return call in self._over and (shared or isinstance(event, ChildReturned))
        over = self._places.get(event.child_run, "") in self._over
        return shared and (over or isinstance(event, ChildStarted))


def _pause(turn: Turn, event: StoredEvent | Unknown) -> None:
    """Add the pause that an approval makes, or its end with the last answer."""
    if event.agent_path:
        return
    match event:
        case ApprovalRequested() if turn.state.paused is None:
            turn.add(Status(status="paused", reason="approval"))
        case ApprovalResolved() | ApprovalRevoked() if turn.state.paused and not turn.state.pending_approvals:
            turn.add(Status(status="resumed", reason=turn.state.paused))
        case _:
            pass


def _failed_last(history: History, flow: FlowState, places: Mapping[str, str]) -> Iterator[str]:
    """Yield the operations that failed and that nothing followed: with them the code of the fork can go on."""
    later: list[str] = []
    for event in reversed(history):
        place = _failed_place(event, places)
        if (
            place is not None
            and not flow.has_lost(place)
            and not any(_follows(each, place) for each in later)
        ):
            yield place
        asked = asked_place(event)
        if asked is None and isinstance(event, Memoized) and not event.agent_path and not event.error:
            is_own = event.tool_call_id in flow.asked and flow.asked[event.tool_call_id].kind == "memo"
            asked = event.tool_call_id if is_own else None
        if asked is not None and not (isinstance(event, OperationSkipped) and event.failed):
            later.append(asked)


def _failed_place(event: StoredEvent | Unknown, places: Mapping[str, str]) -> str | None:
    """Return the operation that failed with the event."""
    if event.agent_path:
        return None
    match event:
        case ToolResult() if not event.success:
            return event.tool_call_id
        case Memoized() if event.error:
            return event.tool_call_id
        case ChildFinished() if event.status != "completed":
            return places.get(event.child_run)
        case WaitEnded(outcome="cancelled"):
            return event.place or None
        case OperationSkipped(failed=True):
            return event.place
        case _:
            return None


def _follows(later: str, place: str) -> bool:
    """Return whether the outcome of `place` may have led to the operation `later`: not from a sibling branch.

    The steps of a table are no branches.
    """
    first, second = _branches(later), _branches(place)
    shared = min(len(first), len(second))
    return first[:shared] == second[:shared]


def _branches(place: str) -> list[str]:
    return [part for part in place.split("/")[:-1] if "#" in part]
