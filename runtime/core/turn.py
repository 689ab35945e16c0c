"""One turn at a run: decided events are folded in place and collected, so that one append stores them all."""

from __future__ import annotations

from ...eventlog.events import (
    NOBODY,
    Actor,
    ApprovalRevoked,
    CancelRequested,
    Error,
    OutputMade,
    PolicyRuling,
    Status,
    StoredEvent,
)
from ...projections.fold import apply
from ...projections.run_state import RunState
from .policy import Call, ruling_on
from .rules import Rules


class Turn:
    """The state, the rules and the time of a turn, and the events decided so far."""

    def __init__(self, state: RunState, rules: Rules, now: float) -> None:
        self.state, self.rules, self.now = state, rules, now
        self.events: list[StoredEvent] = []

    def add(self, *events: StoredEvent) -> None:
        """Fold these events and collect them for the append."""
        for event in events:
            apply(self.state, event, self.now)
            self.events.append(event)

    def ruling(self, call: Call) -> PolicyRuling:
        """Return the policy's ruling on a call. Raises `ConfigError` if the extra for its conditions is missing."""
        return ruling_on(self.rules.policy, call)

    def complete(self, output: str) -> None:
        """End a swarm or loop as completed."""
        self.add(OutputMade(output=output), Status(status="completed"))

    def fence(self, reason: str, actor: Actor = NOBODY) -> None:
        """Request the end as cancelled, which alone may follow; pending approvals become void in the same commit."""
        self._revoke_approvals()
        self.add(CancelRequested(reason=reason, **actor.fields))

    def cancel(self, reason: str, actor: Actor = NOBODY) -> None:
        """End the run as cancelled; the reason of its fence wins, if it has one."""
        if not self.state.cancelling:
            self.fence(reason, actor)
        self.add(Status(status="cancelled", reason=self.state.cancel_reason or ""))

    def fail(self, error_type: str, message: str, *, recoverable: bool, step: int | None) -> None:
        """End the run with an error."""
        self._revoke_approvals()
        self.add(
            Error(step=step, error=message, error_type=error_type, recoverable=recoverable),
            Status(status="error", message=message),
        )

    def _revoke_approvals(self) -> None:
        self.add(*[ApprovalRevoked(approval_id=a.request.approval_id) for a in self.state.pending_approvals])
