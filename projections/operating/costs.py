"""The costs of runs: a projection with the usage of each run by day and model, and sums over many runs.

A model call whose price is unknown is counted apart, and never as nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal

import msgspec

from ...eventlog.commits import Recorded, tombstone_in
from ...eventlog.events import (
    LateOutcome,
    ModelFailed,
    ModelRequested,
    PlannerReplied,
    Submitted,
    SummaryMade,
    TokenUsage,
    Usage,
)
from ...eventlog.offload import outline_of
from ...eventlog.ports import Subject
from ..money import plus_cost
from ..projection import Damage, Value

By = Literal["day", "agent", "model", "session", "user"]


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """The model calls of a run on one day (UTC, `2026-11-24`) to one model; `unpriced` have no known price."""

    day: str
    model: str
    calls: int = 0
    unpriced: int = 0
    usage: TokenUsage = TokenUsage()
    cost_usd: str = "0"


class RunCosts(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of one run, without the runs below it; `model` is that of its last request."""

    agent: str
    session: str | None = None
    user: str | None = None
    model: str = ""
    last_at: float = 0.0
    spent: tuple[Spent, ...] = ()


class CostSum(msgspec.Struct, frozen=True, kw_only=True):
    """A sum over model calls. `cost_usd` is that of the calls whose price is known; `unpriced` counts the others."""

    key: str
    runs: int
    calls: int
    unpriced: int
    usage: TokenUsage
    cost_usd: str


class Costs:
    """The projection for costs."""

    name = "costs"
    version = 1
    row = RunCosts
    columns = ("last_at",)
    indexes = (("last_at",),)

    def evolve(self, row: RunCosts | None, recorded: Recorded) -> RunCosts | None:
        """Fold a run's next commit."""
        commit = recorded.commit
        if tombstone_in(commit) is not None:
            return None
        after = row or RunCosts(agent=commit.path.rpartition("/")[2])
        day = ""
        for event in commit.events:
            if event.agent_path:  # forwarded from an inner agent, whose run has it
                continue
            match outline_of(event):
                case Submitted(session=session, user=user):
                    after = msgspec.structs.replace(after, session=session, user=user)
                case ModelRequested(model=model):
                    after = msgspec.structs.replace(after, model=model)
                case (
                    Usage()
                    | PlannerReplied()
                    | SummaryMade()
                    | ModelFailed(usage=TokenUsage())
                    | LateOutcome(usage=TokenUsage())
                ) as call:
                    day = day or f"{datetime.fromtimestamp(commit.at, UTC):%Y-%m-%d}"
                    after = _with(after, day, call.usage or TokenUsage(), call.cost_usd, commit.at)
                case _:
                    pass
        return after

    def damaged(self, row: RunCosts | None, _subject: Subject, _damage: Damage) -> RunCosts | None:
        """Return the row as it is; the row of the run list tells of the damage."""
        return row

    def index(self, row: RunCosts) -> tuple[Value, ...]:
        """Return the values of `columns`."""
        return (row.last_at,)


def _with(row: RunCosts, day: str, usage: TokenUsage, cost_usd: str | None, at: float) -> RunCosts:
    found = {(each.day, each.model): each for each in row.spent}
    before = found.get((day, row.model), Spent(day=day, model=row.model))
    found[day, row.model] = Spent(
        day=day,
        model=row.model,
        calls=before.calls + 1,
        unpriced=before.unpriced + (cost_usd is None),
        usage=before.usage + usage,
        cost_usd=before.cost_usd if cost_usd is None else plus_cost(before.cost_usd, cost_usd) or "0",
    )
    return msgspec.structs.replace(row, last_at=at, spent=tuple(found.values()))


def sums(rows: Iterable[RunCosts], by: By, since: str = "", until: str = "") -> list[CostSum]:
    """Return sums of what runs spent from the day `since` on and before the day `until`, in the order of their keys."""
    found: dict[str, CostSum] = {}
    for row in rows:
        keys: set[str] = set()
        for each in row.spent:
            if each.day < since or (until and each.day >= until):
                continue
            key = each.day if by == "day" else each.model if by == "model" else getattr(row, by) or ""
            before = found.get(key) or CostSum(
                key=key, runs=0, calls=0, unpriced=0, usage=TokenUsage(), cost_usd="0"
            )
            found[key] = CostSum(
                key=key,
                runs=before.runs + (key not in keys),
                calls=before.calls + each.calls,
                unpriced=before.unpriced + each.unpriced,
                usage=before.usage + each.usage,
                cost_usd=plus_cost(before.cost_usd, each.cost_usd) or "0",
            )
            keys.add(key)
    return [found[key] for key in sorted(found)]
