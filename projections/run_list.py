"""The run list: one row for each run of a namespace, with everything that a list shows."""

from __future__ import annotations

import contextlib
from typing import Any, Literal, get_args

import msgspec

from ..eventlog.commits import Recorded, tombstone_in
from ..eventlog.events import (
    PROGRAM,
    TERMINAL_STATUSES,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalRevoked,
    Buried,
    CancelRequested,
    Claimed,
    Error,
    LateOutcome,
    LeftToOthers,
    ModelFailed,
    ModelRequested,
    Offloaded,
    Parked,
    ParkedFor,
    PlannerReplied,
    Released,
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
from ..eventlog.ports import Subject
from ..eventlog.priorities import Priority
from ..eventlog.sealing.keyring import user_in
from .money import plus_cost
from .operating.waits import RunWaits, fold_waits
from .projection import Damage, Value

RunListStatus = Literal["queued", "running", "paused", "completed", "error", "cancelled"]
"""`queued` until the first claim, then `running`; the others as in `status` events."""
OPEN: tuple[RunListStatus, ...] = ("queued", "running", "paused")
"""The statuses of a run that is not over."""

WORKER = "worker"
"""The value of `waiting_for` if no worker so far was able to drive the run."""
WAITING_FOR: tuple[str, ...] = (*get_args(ParkedFor), WORKER, "cancel")
"""The things that a run may wait for."""


SEALED = "(sealed)"
"""The input of a run whose content is sealed: lists hold no words of such a run."""
INPUT_MAX = 200
"""Maximum length of an input in the list, in characters."""

_ENDED_BY_ANSWERS = frozenset({"approval", "unverifiable", "budget"})

DAMAGED = "damaged"
"""The column that is 1 for a run whose log is damaged, otherwise None."""
BACKWARDS = "backwards"
"""The column with the reversed run id, so that runs can be found by the end of their ids."""


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that ended an earlier claim which still held: `by` took the run over from `worker`.

    `at` is Unix seconds; `silent_s` is how long the run had stored nothing.
    """

    worker: str
    by: str
    at: float
    silent_s: float


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the run list. Times are Unix seconds.

    - `lane` is the queue that the run waits in, as stored: `session:ada`, `lane:mail:ada`.
    - `metadata` is that of the submission; `user` that of a root run, or the `user_id` in its
      `metadata["memory"]["scope"]`.
    - `reason` is that of the pause, the completion or the cancel, or why the last worker left the run to others.
    - `waiting_for` is approval, unverifiable, timer, manual, budget, child, worker (one with the agent and tools that
      the run was prepared with), cancel (the end of its descendants), or None.
    - `error` and `error_type` are those of a failed run.
    - `steps` counts completed ones; `usage` and `cost_usd` (a decimal; None once the price of a model call is unknown)
      cover the run without its children.
    - `input` is the first line of the input, cut to 200 characters.
    - `ended_at` is set once the run is over.
    - `model` is that of the last model call.
    - `approvals` counts the pending ones.
    - `worker` and `epoch` are those of the last claim, which holds while `driven`: until it is released, the run parks
      or ends. `takeovers` counts claims that ended an earlier claim which still held; `takeover` is the last one.
    - `revision`, `digest` and `position` are those of the last folded commit.
    - `trigger` is what started the run; `job_id` is the run itself, or the first run of the job that it is a retry of;
      empty for a child.
    - `waits` is what it waits for, as far as its own log says.
    - `buried` is empty, or how the family was erased: deleted, or archived at `url`. Such a row has the totals of its
      family, and no texts.
    - `damage` is set if the log of the run is damaged: the row says what is before that. If nothing is, it has neither
      an agent nor times.
    - `forked_from` and `forked_at` are the run and revision from which a fork was made; its shared history counts as
      its own.
    """

    run_id: str
    root_id: str
    parent: str | None = None
    forked_from: str | None = None
    forked_at: int | None = None
    trigger: Trigger | None = None
    job_id: str = ""
    shard: int
    kind: str = ""
    agent: str
    agent_path: str
    session: str | None = None
    lane: str | None = None
    priority: Priority = "normal"
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
    input: str = ""
    ended_at: float | None = None
    model: str = ""
    approvals: int = 0
    worker: str = ""
    epoch: int = 0
    driven: bool = False
    takeovers: int = 0
    takeover: Takeover | None = None
    waits: RunWaits = RunWaits()
    revision: int = 0
    digest: str = ""
    position: int = 0
    buried: Literal["", "deleted", "archived"] = ""
    url: str = ""
    damage: Damage | None = None

    @property
    def over(self) -> bool:
        """True if the run has its terminal status."""
        return self.status in TERMINAL_STATUSES

    @property
    def rolls_back(self) -> str | None:
        """The run that this run rolls back."""
        return self.trigger.key if self.trigger is not None and self.trigger.kind == "rollback" else None


class RunList:
    """The projection for the run list."""

    name = "runs"
    version = 14
    row = RunRow
    columns = (
        "root_id",
        "parent",
        "forked_from",
        "kind",
        "status",
        "waiting_for",
        "session",
        "user",
        "agent",
        "executor",
        "worker",
        "model",
        "error_type",
        "submitted_at",
        "updated_at",
        "input",
        "buried",
        "job_id",
        "rolls_back",
        "taken_at",
        DAMAGED,
        BACKWARDS,
    )
    indexes = (
        ("root_id",),
        ("forked_from",),
        (
            "submitted_at",
            "key",
            "input",
        ),  # with the texts, so that a search reads no rows that it does not find
        ("updated_at",),
        ("status", "submitted_at", "key", "input"),
        ("status", "updated_at"),
        ("waiting_for", "submitted_at"),
        ("session", "submitted_at"),
        ("user", "submitted_at"),
        ("agent", "submitted_at"),
        ("agent", "status", "submitted_at"),
        ("executor", "submitted_at"),
        ("executor", "status", "submitted_at"),
        ("model", "submitted_at"),
        ("model", "status", "submitted_at"),
        ("worker", "submitted_at"),
        ("error_type", "submitted_at"),
        ("job_id",),
        ("rolls_back",),
        ("taken_at",),
        (DAMAGED,),
        (BACKWARDS,),
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
        tombstone = tombstone_in(commit)
        if tombstone is not None:
            return tombstone_row(after, tombstone, recorded)
        for event in commit.events:
            if not event.agent_path:  # else it was forwarded from an inner agent, and changes nothing here
                if isinstance(event, Claimed) and after.driven:
                    after = msgspec.structs.replace(after, takeover=_takeover(after, event, commit.at))
                after = _evolve(after, event)
                waits = fold_waits(after.waits, outline_of(event), commit.at)
                if waits is not after.waits:
                    after = msgspec.structs.replace(after, waits=waits)
        return msgspec.structs.replace(
            after,
            updated_at=commit.at,
            ended_at=after.ended_at or (commit.at if after.over else None),
            revision=recorded.last_rev,
            digest=recorded.digest,
            position=recorded.position,
        )

    def damaged(self, row: RunRow | None, subject: Subject, damage: Damage) -> RunRow:
        """Return the row with its first damage."""
        before = row or RunRow(
            run_id=subject.id,
            root_id=subject.root,
            shard=subject.shard,
            agent="",
            agent_path="",
            submitted_at=0.0,
            updated_at=0.0,
        )
        return before if before.damage is not None else msgspec.structs.replace(before, damage=damage)

    def index(self, row: RunRow) -> tuple[Value, ...]:
        """Return the values of `columns`."""
        taken_at = row.takeover.at if row.takeover is not None else None
        damaged = 1 if row.damage is not None else None
        return *(getattr(row, name) for name in self.columns[:-3]), taken_at, damaged, row.run_id[::-1]


def _takeover(row: RunRow, event: Claimed, at: float) -> Takeover:
    return Takeover(worker=row.worker, by=event.worker, at=at, silent_s=max(0.0, at - row.updated_at))


def usual_row(row: RunRow) -> RunRow:
    """Return a row of the same run of which nothing is known: what a tombstone leaves out is as it is here."""
    return RunRow(
        run_id=row.run_id,
        root_id=row.root_id,
        job_id=row.run_id,
        shard=row.shard,
        agent=row.agent,
        agent_path=row.agent_path,
        submitted_at=row.submitted_at,
        updated_at=row.updated_at,
    )


def tombstone_row(row: RunRow, event: Buried, recorded: Recorded) -> RunRow:
    """Return the row that a tombstone holds, or what is left of the row without texts if it holds none."""
    if event.row:
        with contextlib.suppress(msgspec.ValidationError):
            row = msgspec.convert({**msgspec.to_builtins(usual_row(row)), **event.row}, RunRow)
    return msgspec.structs.replace(
        row,
        input="",
        metadata={},
        error="",
        reason=event.how,
        waiting_for=None,
        waits=RunWaits(),
        revision=recorded.last_rev,
        digest=recorded.digest,
        position=recorded.position,
        buried=event.how,
        url=event.url,
        damage=None,
    )


def _evolve(row: RunRow, event: StoredEvent | Unknown) -> RunRow:  # noqa: C901, PLR0912 - one case each
    replace = msgspec.structs.replace
    match event:
        case Submitted():
            parent = event.parent.run if event.parent is not None else None
            return replace(
                row,
                kind=event.kind,
                input=SEALED if event.sealed else event.input.strip().partition("\n")[0][:INPUT_MAX],
                session=event.session,
                lane=event.lane,
                priority=event.priority,
                user=_user(event),
                metadata=event.metadata,
                executor=event.executor,
                parent=parent,
                forked_from=event.fork.run if event.fork is not None else None,
                forked_at=event.fork.revision if event.fork is not None else None,
                trigger=event.trigger or (PROGRAM if event.parent is None else None),
                job_id="" if event.parent is not None else job_of(event, row.run_id),
            )
        case Claimed():
            status = "running" if row.status == "queued" else row.status
            reason = "" if row.waiting_for == WORKER else row.reason
            return replace(
                row,
                status=status,
                worker=event.worker,
                epoch=event.epoch,
                driven=True,
                takeovers=row.takeovers + row.driven,
                waiting_for=None,
                reason=reason,
            )
        case Released():
            return replace(row, driven=False)
        case LeftToOthers():
            return replace(row, waiting_for=WORKER, reason=event.reason)
        case Parked(reason="timer") if (row.status, row.reason) == ("paused", "budget"):
            return replace(row, waiting_for="budget", driven=False)
        case Parked():
            return replace(row, waiting_for=event.reason, driven=False)
        case TimerFired():
            return replace(row, waiting_for=None)
        case ApprovalRequested():
            return replace(row, approvals=row.approvals + 1)
        case ApprovalResolved() | ApprovalRevoked():
            freed = isinstance(event, ApprovalResolved) and row.waiting_for in _ENDED_BY_ANSWERS
            waiting_for = None if freed else row.waiting_for
            return replace(row, approvals=max(0, row.approvals - 1), waiting_for=waiting_for)
        case ModelRequested():
            return replace(row, model=event.model)
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


def is_meant(
    row: RunRow, action: Literal["cancel", "pause", "resume", "retry"], status: RunListStatus | str | None
) -> bool:
    """Return whether a command to all runs of a selection is for this one. `status` is the one that it names, if any.

    Completed runs are retried only if they are asked for by their status, and child runs with their roots.
    """
    if action == "retry":
        return row.over and row.parent is None and (status is not None or row.status != "completed")
    if action == "resume":
        return row.status == "paused"
    return not row.over and not (action == "pause" and row.status == "paused")


def job_of(event: Submitted, run_id: str) -> str:
    """Return the job of a root run: itself, or the first run of the job that it tries again."""
    trigger = event.trigger
    return trigger.key if trigger is not None and trigger.kind == "retry" and trigger.key else run_id


def _user(event: Submitted) -> str | None:
    """Return the user of a root run: its `user`, otherwise its `metadata["memory"]["scope"]["user_id"]`.

    A fork has none: memories would have the same turn twice.
    """
    if event.parent is not None or event.fork is not None:
        return None
    return user_in(event)


def _on_status(row: RunRow, event: Status) -> RunRow:
    match event.status:
        case "paused":
            return msgspec.structs.replace(row, status="paused", reason=event.reason)
        case "resumed":
            return msgspec.structs.replace(row, status="running", reason="", waiting_for=None)
        case "completed" | "error" | "cancelled":
            return msgspec.structs.replace(
                row,
                status=event.status,
                reason=event.reason,
                waiting_for=None,
                approvals=0,
                driven=False,
            )
        case "starting" | "running" | "waiting_for_tool":
            return row
