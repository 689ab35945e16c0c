"""Jobs: a root run and its retries are one unit of work, which is in the state of its last run."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..eventlog.events import Trigger
from .run_list import RunRow


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job. `status` is that of its last run, `trigger` what started the first; `runs` are its attempts in order.

    `rollbacks` are the runs that undo one of them, if they are among the rows; each is a job of its own.
    """

    job_id: str
    agent: str
    status: str
    trigger: Trigger | None
    session: str | None
    user: str | None
    submitted_at: float
    updated_at: float
    runs: tuple[RunRow, ...]
    rollbacks: tuple[RunRow, ...] = ()


def jobs_of(rows: Iterable[RunRow]) -> list[Job]:
    """Return the jobs of root runs, that of the newest run first. Child runs belong to the job of their root."""
    found: dict[str, list[RunRow]] = {}
    undoing: dict[str, list[RunRow]] = {}
    for row in sorted(rows, key=lambda row: (row.submitted_at, row.run_id)):
        if row.job_id:
            found.setdefault(row.job_id, []).append(row)
        if row.trigger is not None and row.trigger.kind == "rollback":
            undoing.setdefault(row.trigger.key, []).append(row)
    jobs = [
        _job(job_id, runs, [each for run in runs for each in undoing.get(run.run_id, ())])
        for job_id, runs in found.items()
    ]
    return sorted(jobs, key=lambda job: (job.runs[-1].submitted_at, job.job_id), reverse=True)


def _job(job_id: str, runs: list[RunRow], rollbacks: list[RunRow]) -> Job:
    first, last = runs[0], runs[-1]
    return Job(
        job_id=job_id,
        agent=first.agent,
        status=last.status,
        trigger=first.trigger,
        session=first.session,
        user=first.user,
        submitted_at=first.submitted_at,
        updated_at=last.updated_at,
        runs=tuple(runs),
        rollbacks=tuple(rollbacks),
    )
