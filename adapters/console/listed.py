"""A run as lists show it: its row, with the totals of its family."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...projections.family_totals import FamilyTotals
from ...projections.projector import RunIndex
from ...projections.run_list import RunRow


class ListedRun(RunRow, frozen=True, kw_only=True):
    """The row of a run. `family` has the totals of the run and all runs below it."""

    family: FamilyTotals


async def listed_runs(index: RunIndex, rows: Sequence[RunRow]) -> list[ListedRun]:
    """Return the rows with the totals of their families."""
    totals = await index.totals(rows)
    return [ListedRun(**msgspec.structs.asdict(row), family=totals[row.run_id]) for row in rows]
