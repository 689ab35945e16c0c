"""The approvals of a run and of the runs below it that are open, as far as its stream has told."""

from __future__ import annotations

from ...eventlog.events import ApprovalRequested, ApprovalResolved, ChildFinished, Event


class Asked:
    """Open approvals by id, oldest first. Feed it every event of a detailed stream."""

    def __init__(self) -> None:
        self.open: dict[str, ApprovalRequested] = {}

    def feed(self, event: Event) -> None:
        """Take one event."""
        match event:
            case ApprovalRequested():
                self.open[event.approval_id] = event
            case ApprovalResolved():
                self.open.pop(event.approval_id, None)
            case ChildFinished():  # which revokes what it still asked
                self.open = {key: each for key, each in self.open.items() if each.run_id != event.child_run}
            case _:
                pass
