"""The pending work of a live run, according to its log: for consoles and operators."""

from __future__ import annotations

import msgspec

from ..eventlog.events import ApprovalRequested, ToolsRefreshRequested, WaitKind
from .operating.why import Why
from .run_state import RunState


class PendingCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call without a result. `attempt` counts from 1; `retry_at` is set while it waits for a retry.

    `slot` is the slot that the call waits for, if it does.
    """

    tool_call_id: str
    tool_name: str
    attempt: int
    retry_at: float | None = None
    children: tuple[str, ...] = ()
    slot: str | None = None


class PendingWait(msgspec.Struct, frozen=True, kw_only=True):
    """A wait of a tool call, for a time or for a signal of this name. `until` is in Unix seconds, null for no limit."""

    tool_call_id: str
    tool_name: str
    kind: WaitKind
    name: str = ""
    until: float | None = None


class PendingModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model call without a reply. `phase` is empty for the call of a step."""

    model: str
    attempt: int
    phase: str = ""
    retry_at: float | None = None


class PendingSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A slot that the run waits for: `place` 1 in the queue is the next one, `holders` are the runs that have slots.

    `limit` is the name of the limit in `[limits]`, empty for that of the agent; for a `provider:NAME` its model
    call waits.
    """

    agent: str
    place: int
    runs_max: int
    holders: tuple[str, ...] = ()
    limit: str = ""


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is pending in a run, at `revision`. Empty for a run that is over."""

    revision: int
    status: str
    step: int
    paused: str | None = None
    """The reason of an open pause."""
    pause_requested: bool = False
    model: PendingModel | None = None
    calls: tuple[PendingCall, ...] = ()
    approvals: tuple[ApprovalRequested, ...] = ()
    waits: tuple[PendingWait, ...] = ()
    unread: tuple[str, ...] = ()
    """The names of the signals that no wait has taken, oldest first."""
    children: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    """Queued messages, in the order in which they will be injected."""
    refresh: ToolsRefreshRequested | None = None
    slot: PendingSlot | None = None
    """The slot that it waits for: the limit of its agent, or one of the namespace, is reached."""
    behind: tuple[str, ...] = ()
    """The runs of its session that come before it, the current one first."""
    unclaimed: bool = False
    """True if it could be driven, but no worker has claimed it."""
    unserved: bool = False
    """True if it is unclaimed, and no running worker serves its agent."""
    why: Why | None = None
    """Why it waits, in one sentence, and what can be done about it; null if it is driven, or over."""
    left: tuple[str, ...] = ()
    """Reasons why workers could not drive the run (a missing or changed agent or tool), the latest first."""


def pending_of(state: RunState) -> Pending:
    """Return everything that is pending in a run."""
    if state.over:
        return Pending(revision=state.head.rev, status=state.status, step=state.step)
    model = state.model
    asked = model.requested or model.retry_at is not None
    return Pending(
        revision=state.head.rev,
        status=state.status,
        step=state.step,
        paused=state.paused,
        pause_requested=state.pause_requested,
        model=PendingModel(
            model=model.model, attempt=model.attempt, phase=model.phase, retry_at=model.retry_at
        )
        if asked
        else None,
        calls=tuple(
            PendingCall(
                tool_call_id=call.id,
                tool_name=call.name,
                attempt=call.attempt,
                retry_at=call.retry_at,
                children=tuple(child for child in call.children if child in state.open_children),
            )
            for call in state.calls.values()
            if call.result is None and state.step_open
        ),
        approvals=tuple(approval.request for approval in state.pending_approvals),
        waits=tuple(
            PendingWait(
                tool_call_id=call.id, tool_name=call.name, kind=wait.kind, name=wait.name, until=wait.until
            )
            for call in state.waiting_calls
            if (wait := call.open_wait) is not None
        ),
        unread=tuple(signal.event.name for signal in state.signals),
        children=tuple(state.open_children),
        messages=state.queued_texts,
        refresh=state.refresh,
        left=tuple(state.left),
    )
