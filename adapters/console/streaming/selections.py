"""The lists that can be viewed, each defined by a condition on rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ....projections.approvals import ApprovalRow
from ....projections.projector import RunIndex
from ..listed import ListedRun
from ..queries import COUNTED_MAX, RunQuery, counted

CHANGING = ("status", "worker", "waiting_for", "error_type", "model")
"""The filters on fields that change during a run, so that a run may begin or cease to match them."""


class RunsSelection:
    """The runs that match filters. `counts` are by status, and ignore the status filter."""

    has_totals = True

    def __init__(self, query: RunQuery) -> None:
        self._query = query
        self._lasting = msgspec.structs.replace(query, **dict.fromkeys(CHANGING))

    def changed(
        self, runs: Sequence[ListedRun], approvals: Sequence[ApprovalRow]
    ) -> tuple[dict[str, bytes], list[str]]:
        """Return the changed runs that match, and the ids of those that do not but may have matched before."""
        del approvals
        mine = [row for row in runs if self._query.takes(row)]
        gone = [row.run_id for row in runs if self._lasting.takes(row) and not self._query.takes(row)]
        return {row.run_id: msgspec.json.encode(row) for row in mine}, gone

    async def counts(self, index: RunIndex) -> dict[str, Any]:
        """Return the number of runs by status."""
        found = await index.count_runs(
            COUNTED_MAX + 1, **msgspec.structs.replace(self._query, status=None).filters()
        )
        return counted(found)


class ApprovalsSelection:
    """The pending approvals; an approval is removed when it is decided."""

    has_totals = False

    def changed(
        self, runs: Sequence[ListedRun], approvals: Sequence[ApprovalRow]
    ) -> tuple[dict[str, bytes], list[str]]:
        """Return the pending approvals of the changed runs, and the ids of the decided ones."""
        del runs
        decided = [row.approval_id for row in approvals if row.decision is not None]
        pending = {row.approval_id: msgspec.json.encode(row) for row in approvals if row.decision is None}
        return pending, decided

    async def counts(self, index: RunIndex) -> dict[str, Any]:
        """Return the number of pending approvals."""
        return {"pending": len(await index.approvals())}
