"""The pauses of a family that are open, folded from its commits: of a run and of all runs below it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..eventlog.events import (
    TERMINAL_STATUSES,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalRevoked,
    CancelRequested,
    Event,
    Offloaded,
    Status,
    WaitEnded,
    WaitStarted,
)
from ..eventlog.offload import outline_of

_ENDED_BY_ANSWERS = frozenset({"approval", "unverifiable", "wait", "budget"})


class _Paused(msgspec.Struct):
    """The reason of a run's open pause (None without one), its pending approvals, and its waits for signals."""

    reason: str | None = None
    approvals: set[str] = msgspec.field(default_factory=set)
    waits: set[str | None] = msgspec.field(default_factory=set)

    @property
    def needs_somebody(self) -> bool:
        if self.reason in _ENDED_BY_ANSWERS:
            return bool(self.approvals or self.waits)
        return self.reason is not None


class Pauses:
    """The open pauses that only another party ends: an answer, a signal, or a resume; not a time that passes."""

    def __init__(self) -> None:
        self._runs: dict[str, _Paused] = {}

    @property
    def open(self) -> bool:
        """True if a run is in such a pause."""
        return any(run.needs_somebody for run in self._runs.values())

    def feed(self, run: str, events: Iterable[Event]) -> None:
        """Fold events of one commit of the run."""
        paused = self._runs.setdefault(run, _Paused())
        for event in events:
            if not event.agent_path:  # else it was forwarded from an inner agent
                _fold(paused, event)
        if paused == _Paused():
            del self._runs[run]


def _fold(run: _Paused, event: Event) -> None:  # noqa: C901 - one case each
    match event:
        case Status(status="paused"):
            run.reason = event.reason
        case Status(status="resumed"):
            run.reason = None
        case Status() if event.status in TERMINAL_STATUSES:
            _end(run)
        case CancelRequested():
            _end(run)
        case ApprovalRequested():
            run.approvals.add(event.approval_id)
        case ApprovalResolved() | ApprovalRevoked():
            run.approvals.discard(event.approval_id)
        case WaitStarted(kind="sleep"):
            pass
        case WaitStarted():
            run.waits.add(event.tool_call_id)
        case WaitEnded():
            run.waits.discard(event.tool_call_id)
        case Offloaded():
            _fold(run, outline_of(event))
        case _:
            pass


def _end(run: _Paused) -> None:
    run.reason = None
    run.approvals.clear()
    run.waits.clear()
