"""The filters of runs in requests: applied to the list as a query, and to single rows as they change."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...projections.projector import RunFilters
from ...projections.run_list import RunListStatus, RunRow

COUNTED_MAX = 10_000


class RunQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The filters of runs. `q` is part of the input's first line or of the id.

    `children=0` leaves out child runs, `forks=0` forks; `damaged=1` leaves only runs whose logs are damaged.
    """

    status: RunListStatus | None = None
    agent: str | None = None
    kind: str | None = None
    session: str | None = None
    user: str | None = None
    executor: str | None = None
    worker: str | None = None
    waiting_for: str | None = None
    error_type: str | None = None
    model: str | None = None
    root: str | None = None
    parent: str | None = None
    forked_from: str | None = None
    job: str | None = None
    since: float | None = msgspec.field(default=None, name="from")
    until: float | None = msgspec.field(default=None, name="to")
    q: str | None = None
    children: bool = True
    forks: bool = True
    damaged: bool = False

    def filters(self) -> RunFilters:
        """Return the filters as arguments of the projection's query."""
        return RunFilters(
            status=self.status,
            agent=self.agent,
            kind=self.kind,
            session=self.session,
            user=self.user,
            executor=self.executor,
            worker=self.worker,
            waiting_for=self.waiting_for,
            error_type=self.error_type,
            model=self.model,
            root_id=self.root,
            parent=self.parent,
            forked_from=self.forked_from,
            job_id=self.job,
            since=self.since,
            until=self.until,
            text=self.q or None,
            children=self.children,
            forks=self.forks,
            damaged=self.damaged,
        )

    def takes(self, row: RunRow) -> bool:
        """Return whether a row matches the filters."""
        equal = {
            "root_id": self.root,
            "job_id": self.job,
            **{name: getattr(self, name) for name in _EQUAL},
        }
        return (
            all(wanted is None or getattr(row, name) == wanted for name, wanted in equal.items())
            and (self.since is None or row.submitted_at >= self.since)
            and (self.until is None or row.submitted_at < self.until)
            and (not self.q or self.q in row.input or self.q in row.run_id)
            and (self.children or row.parent is None)
            and (self.forks or row.forked_from is None)
            and (not self.damaged or row.damage is not None)
        )


_EQUAL = (
    "status",
    "agent",
    "kind",
    "session",
    "user",
    "executor",
    "worker",
    "waiting_for",
    "error_type",
    "model",
    "parent",
    "forked_from",
)


def counted(counts: Mapping[str, int]) -> dict[str, int | str]:
    """Return counts for display: a number above 10,000 becomes the text "10000+"."""
    return {name: f"{COUNTED_MAX}+" if count > COUNTED_MAX else count for name, count in counts.items()}
