"""The totals of a run and its descendants: sums over the rows of its family."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..eventlog.events import TokenUsage
from .money import plus_cost
from .run_list import RunRow


class FamilyTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The totals of a run and its descendants: runs, completed steps, tokens and cost (a decimal; None if unknown)."""

    runs: int = 0
    steps: int = 0
    usage: TokenUsage = TokenUsage()
    cost_usd: str | None = "0"

    def plus(self, row: RunRow) -> FamilyTotals:
        """Return the totals with one more run."""
        return FamilyTotals(
            runs=self.runs + 1,
            steps=self.steps + row.steps,
            usage=self.usage + row.usage,
            cost_usd=plus_cost(self.cost_usd, row.cost_usd),
        )


def family_totals(rows: Iterable[RunRow]) -> dict[str, FamilyTotals]:
    """Return the totals of each run by its id. `rows` are complete families, each run once, in any order."""
    known = {row.run_id: row for row in rows}
    totals = dict.fromkeys(known, FamilyTotals())
    for row in known.values():
        above: RunRow | None = row
        while above is not None:
            totals[above.run_id] = totals[above.run_id].plus(row)
            above = known.get(above.parent or "")
    return totals
