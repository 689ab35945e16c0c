"""Jobs: a root run and its retries are one unit of work, which is in the state of its last run."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..eventlog.events import Trigger
from .run_list import RunRow


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job. `status` is that of its last run, `trigger` what started the first; `runs` are its attempts in order.

    `rollbacks` are the runs that undo one of them; each is a job of its own.
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


def job_of(runs: Iterable[RunRow], rollbacks: Iterable[RunRow] = ()) -> Job:
    """Return the job of at least one root run, and of the runs that roll its runs back, in any order."""
    attempts = sorted(runs, key=_submitted)
    first, last = attempts[0], attempts[-1]
    return Job(
        job_id=first.job_id,
        agent=first.agent,
        status=last.status,
        trigger=first.trigger,
        session=first.session,
        user=first.user,
        submitted_at=first.submitted_at,
        updated_at=last.updated_at,
        runs=tuple(attempts),
        rollbacks=tuple(sorted(rollbacks, key=_submitted)),
    )


def _submitted(row: RunRow) -> tuple[float, str]:
    return row.submitted_at, row.run_id
