"""The totals of a run and its descendants: sums over the rows of its family."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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


def family_totals(rows: Iterable[RunRow]) -> dict[str, FamilyTotals]:
    """Return the totals of each run by its id, over those of `rows`, in any order, that are the run or below it.

    Of two rows of a run, the last counts.
    """
    known = {row.run_id: row for row in rows}
    summed: dict[str, list[RunRow]] = {run_id: [] for run_id in known}
    for row in known.values():
        line: dict[str, RunRow] = {}
        above: RunRow | None = row
        while above is not None and above.run_id not in line:  # a damaged log may tell of a run above itself
            line[above.run_id] = above
            above = known.get(above.parent or "")
        for run_id in line:
            summed[run_id].append(row)
    return {run_id: _total(each) for run_id, each in summed.items()}


def _total(rows: Sequence[RunRow]) -> FamilyTotals:
    usage, cost_usd = rows[0].usage, rows[0].cost_usd
    for row in rows[1:]:
        usage += row.usage
        cost_usd = plus_cost(cost_usd, row.cost_usd)
    return FamilyTotals(runs=len(rows), steps=sum(row.steps for row in rows), usage=usage, cost_usd=cost_usd)
