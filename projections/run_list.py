"""The run list: one row for each run of a namespace, with everything that a list shows."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..eventlog.commits import Recorded
from ..eventlog.events import (
    TERMINAL_STATUSES,
    ApprovalResolved,
    CancelRequested,
    Claimed,
    Error,
    LateOutcome,
    LeftToOthers,
    ModelFailed,
    Offloaded,
    Parked,
    PlannerReplied,
    Status,
    Step,
    StoredEvent,
    Submitted,
    SummaryMade,
    TimerFired,
    TokenUsage,
    Trigger,
    Unknown,
    Usage,
)
from ..eventlog.offload import outline_of
from .money import plus_cost
from .projection import Value

RunListStatus = Literal["queued", "running", "paused", "completed", "error", "cancelled"]
"""`queued` until the first claim, then `running`; the others as in `status` events."""

WORKER = "worker"
"""The value of `waiting_for` if no worker so far was able to drive the run."""


BACKWARDS = "backwards"
"""The column with the reversed run id, so that runs can be found by the end of their ids."""


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the run list. Times are Unix seconds.

    - `metadata` is that of the submission; `user` that of a root run, or the `user_id` in its
      `metadata["memory"]["scope"]`.
    - `reason` is that of the pause, the completion or the cancel, or why the last worker left the run to others.
    - `waiting_for` is approval, unverifiable, timer, manual, budget, child, worker (one with the agent and tools that
      the run was prepared with), cancel (the end of its descendants), or None.
    - `error` and `error_type` are those of a failed run.
    - `steps` counts completed ones; `usage` and `cost_usd` (a decimal; None once the price of a model call is unknown)
      cover the run without its children.
    - `worker` and `epoch` are those of the last claim.
    - `revision`, `digest` and `position` are those of the last folded commit.
    - `trigger` is what started the run.
    - `forked_from` and `forked_at` are the run and revision from which a fork was made; its shared history counts as
      its own.
    """

    run_id: str
    root_id: str
    parent: str | None = None
    forked_from: str | None = None
    forked_at: int | None = None
    trigger: Trigger | None = None
    shard: int
    kind: str = ""
    agent: str
    agent_path: str
    session: str | None = None
    user: str | None = None
    metadata: dict[str, Any] = {}
    status: RunListStatus = "queued"
    reason: str = ""
    waiting_for: str | None = None
    executor: str = ""
    submitted_at: float
    updated_at: float
    steps: int = 0
    usage: TokenUsage = TokenUsage()
    cost_usd: str | None = "0"
    error: str = ""
    error_type: str = ""
    worker: str = ""
    epoch: int = 0
    revision: int = 0
    digest: str = ""
    position: int = 0

    @property
    def over(self) -> bool:
        """True if the run has its terminal status."""
        return self.status in TERMINAL_STATUSES


class RunList:
    """The projection for the run list."""

    name = "runs"
    version = 7
    row = RunRow
    columns = (
        "root_id",
        "status",
        "session",
        "user",
        "agent",
        "submitted_at",
        "error_type",
        BACKWARDS,
    )

    def evolve(self, row: RunRow | None, recorded: Recorded) -> RunRow:
        """Fold a run's next commit."""
        commit = recorded.commit
        after = row or RunRow(
            run_id=commit.run,
            root_id=commit.root,
            shard=recorded.subject.shard,
            agent=commit.path.rpartition("/")[2],
            agent_path=commit.path,
            submitted_at=commit.at,
            updated_at=commit.at,
        )
        for event in commit.events:
            if not event.agent_path:  # else it was forwarded from an inner agent, and changes nothing here
                after = _evolve(after, event)
        return msgspec.structs.replace(
            after,
            updated_at=commit.at,
            revision=recorded.last_rev,
            digest=recorded.digest,
            position=recorded.position,
        )

    def index(self, row: RunRow) -> tuple[Value, ...]:
        """Return the values of `columns`."""
        columns = row.root_id, row.status, row.session, row.user, row.agent, row.submitted_at, row.error_type
        return *columns, row.run_id[::-1]


def _evolve(row: RunRow, event: StoredEvent | Unknown) -> RunRow:  # noqa: C901, PLR0912 - one case each
    replace = msgspec.structs.replace
    match event:
        case Submitted():
            parent = event.parent.run if event.parent is not None else None
            return replace(
                row,
                kind=event.kind,
                session=event.session,
                user=_user(event),
                metadata=event.metadata,
                executor=event.executor,
                parent=parent,
                forked_from=event.fork.run if event.fork is not None else None,
                forked_at=event.fork.revision if event.fork is not None else None,
                trigger=event.trigger,
            )
        case Claimed():
            status = "running" if row.status == "queued" else row.status
            reason = "" if row.waiting_for == WORKER else row.reason
            return replace(
                row, status=status, worker=event.worker, epoch=event.epoch, waiting_for=None, reason=reason
            )
        case LeftToOthers():
            return replace(row, waiting_for=WORKER, reason=event.reason)
        case Parked():
            return replace(row, waiting_for=event.reason)
        case TimerFired():
            return replace(row, waiting_for=None)
        case ApprovalResolved() if row.waiting_for in {"approval", "unverifiable", "budget"}:
            return replace(row, waiting_for=None)
        case Status():
            return _on_status(row, event)
        case Step(status="completed"):
            return replace(row, steps=row.steps + 1)
        case Usage() | PlannerReplied() | SummaryMade():
            return replace(
                row, usage=row.usage + event.usage, cost_usd=plus_cost(row.cost_usd, event.cost_usd)
            )
        case ModelFailed() | LateOutcome():
            if event.usage is None:
                return row
            return replace(
                row, usage=row.usage + event.usage, cost_usd=plus_cost(row.cost_usd, event.cost_usd)
            )
        case Error():
            return replace(row, error=event.error, error_type=event.error_type)
        case CancelRequested():
            return replace(
                row, status="running" if row.status == "paused" else row.status, waiting_for="cancel"
            )
        case Offloaded():
            return _evolve(row, outline_of(event))
        case _:
            return row


def _user(event: Submitted) -> str | None:
    """Return the user of a root run: its `user`, otherwise its `metadata["memory"]["scope"]["user_id"]`.

    A fork has none: memories would have the same turn twice.
    """
    if event.parent is not None or event.fork is not None:
        return None
    if event.user is not None:
        return event.user
    found: object = event.metadata
    for key in ("memory", "scope", "user_id"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else None


def _on_status(row: RunRow, event: Status) -> RunRow:
    match event.status:
        case "paused":
            return msgspec.structs.replace(row, status="paused", reason=event.reason)
        case "resumed":
            return msgspec.structs.replace(row, status="running", reason="", waiting_for=None)
        case "completed" | "error" | "cancelled":
            return msgspec.structs.replace(row, status=event.status, reason=event.reason, waiting_for=None)
        case "starting" | "running" | "waiting_for_tool":
            return row
