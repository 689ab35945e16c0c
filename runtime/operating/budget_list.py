"""The budgets of a namespace as they were at a moment, told page by page."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from ...eventlog.events import BudgetUpdated
from ...projections.money import usd_text
from ..core.shared_budgets import Purse, SharedBudget, owners_of, purses_in, sum_of
from .rows import BudgetRow


class BudgetList:
    """What was spent of all budgets, by their owners. The registers are read once; rows are made for a page only.

    The registers of users are named by digests, so no part of them can be read by itself in the order of owners.
    """

    def __init__(
        self, budgets: Sequence[SharedBudget], parts: Mapping[str, Sequence[BudgetUpdated]], now: float
    ) -> None:
        registers = [each for part in parts.values() for each in part]
        known = {each.name for each in registers}
        purses = [purse for budget in budgets for purse in owners_of(budget, budgets, known)]
        named = {_name(purse): purse for purse in (purses if budgets else purses_in(registers))}
        self._names = sorted(named)
        self._purses, self._parts, self._now = named, parts, now
        self._periods: dict[tuple[str, str], tuple[float, float | None]] = {}

    def page(self, limit: int = -1, after: str = "") -> list[BudgetRow]:
        """Return at most `limit` rows (-1 for all), those after the row of this name."""
        rows = self._rows(bisect_right(self._names, after))
        return list(itertools.islice(rows, limit if limit >= 0 else None))

    def _rows(self, start: int) -> Iterator[BudgetRow]:
        for name in itertools.islice(self._names, start, None):
            row = self._row(self._purses[name])
            if row.amount or row.calls:
                yield row

    def _row(self, purse: Purse) -> BudgetRow:
        budget = purse.budget
        period = (budget.per, budget.time_zone)
        if period not in self._periods:
            self._periods[period] = budget.period(self._now)
        began_at, until = self._periods[period]
        spent = sum_of(self._parts.get(purse.key, ()), began_at)
        left_usd = (
            None if budget.cost_usd is None else max(Decimal(0), budget.cost_usd - Decimal(spent.cost_usd))
        )
        return BudgetRow(
            owner=purse.owner,
            amount=budget.amount,
            per=budget.per,
            time_zone=budget.time_zone,
            when_spent=budget.when_spent if budget.amount else "",
            began_at=began_at,
            until=until,
            calls=spent.calls,
            unpriced=spent.unpriced,
            tokens=spent.tokens,
            cost_usd=spent.cost_usd,
            left_tokens=None if budget.tokens is None else max(0, budget.tokens - spent.tokens),
            left_usd=None if left_usd is None else usd_text(left_usd),
        )


def name_of_budget(row: BudgetRow) -> str:
    """Return the name of a row, which no other row has, and which orders the list."""
    return _joined(row.owner, row.per, row.time_zone, row.amount)


def _name(purse: Purse) -> str:
    return _joined(purse.owner, purse.budget.per, purse.budget.time_zone, purse.budget.amount)


def _joined(*parts: str) -> str:
    return "\n".join(parts)
