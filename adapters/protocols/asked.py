"""Track the open approvals of a run and of the runs below it, from the events of its stream."""

from __future__ import annotations

from ...eventlog.events import ApprovalRequested, ApprovalResolved, ChildFinished, Event


class Asked:
    """Open approvals by id, oldest first. Feed it every event of a detailed stream."""

    def __init__(self) -> None:
        self.open: dict[str, ApprovalRequested] = {}

    def feed(self, event: Event) -> None:
        """Fold one event."""
        match event:
            case ApprovalRequested():
                self.open[event.approval_id] = event
            case ApprovalResolved():
                self.open.pop(event.approval_id, None)
            case ChildFinished():  # the end of a run revokes its open approvals
                self.open = {key: each for key, each in self.open.items() if each.run_id != event.child_run}
            case _:
                pass
