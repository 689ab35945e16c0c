"""Jobs: a run with its retries as one unit of work."""

from __future__ import annotations

from ....projections.jobs import Job
from ..paging import Rows, parse_place, place_of
from ..routing import Call, Nothing, Page, Route


class JobsQuery(Page, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The filters of jobs, by their newest runs, and the page of the list."""

    status: str | None = None
    agent: str | None = None
    session: str | None = None
    user: str | None = None


async def list_jobs(call: Call[JobsQuery, Nothing]) -> Rows[Job]:
    """List jobs, that of the newest run first. A job is in the state of its last run."""
    query = call.query
    filters = {name: getattr(query, name) for name in ("status", "agent", "session", "user")}
    jobs = await call.runtime.operations.jobs(query.limit + 1, before=parse_place(query.before), **filters)
    page = jobs[: query.limit]
    newest = page[-1].runs[-1] if len(jobs) > query.limit else None
    return Rows(page, None if newest is None else place_of(newest.submitted_at, newest.run_id))


async def show_job(call: Call[Nothing, Nothing]) -> Job:
    """Show a job, by any of its runs: its attempts in order, and the runs that roll them back."""
    return await call.runtime.operations.job(call.path("job"))


ROUTES = (
    Route(method="GET", path="/jobs", role="viewer", endpoint=list_jobs, answer=Rows[Job], query=JobsQuery),
    Route(method="GET", path="/jobs/{job}", role="viewer", endpoint=show_job, answer=Job),
)
