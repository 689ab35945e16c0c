"""The lists that can be viewed, each as a condition on changed rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ....projections.approvals import ApprovalRow
from ....projections.projector import RunIndex
from ....projections.run_list import RunRow
from ..queries import COUNTED_MAX, RunQuery, counted

CHANGING = ("status", "worker", "waiting_for", "error_type", "model")
"""The filters that a run may meet and later not, or the other way round."""


class RunsSelection:
    """The runs that meet filters. `counts` are those by status, without the filter for it."""

    def __init__(self, query: RunQuery) -> None:
        self._query = query
        self._lasting = msgspec.structs.replace(query, **dict.fromkeys(CHANGING))

    def changed(
        self, runs: Sequence[RunRow], approvals: Sequence[ApprovalRow]
    ) -> tuple[dict[str, bytes], list[str]]:
        """Return the changed runs of the list, and those that may have been in it before."""
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
    """The pending approvals; `removes` has the ids of those that are decided."""

    def changed(
        self, runs: Sequence[RunRow], approvals: Sequence[ApprovalRow]
    ) -> tuple[dict[str, bytes], list[str]]:
        """Return the approvals of the changed runs."""
        del runs
        decided = [row.approval_id for row in approvals if row.decision is not None]
        pending = {row.approval_id: msgspec.json.encode(row) for row in approvals if row.decision is None}
        return pending, decided

    async def counts(self, index: RunIndex) -> dict[str, Any]:
        """Return the number of pending ones."""
        return {"pending": len(await index.approvals())}
