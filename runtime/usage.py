"""The usage of a run and all runs below it so far, also while they are still running."""

from __future__ import annotations

import msgspec

from ..eventlog.events import TokenUsage
from ..eventlog.names import run_subject
from ..eventlog.ports import Log, Subject
from ..projections.money import plus_cost
from .journal.journal import Journal


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens, and US dollars as a decimal (null once the price of a call is unknown)."""

    usage: TokenUsage = TokenUsage()
    cost_usd: str | None = "0"

    def __add__(self, other: Used) -> Used:
        """The sum."""
        return Used(usage=self.usage + other.usage, cost_usd=plus_cost(self.cost_usd, other.cost_usd))


async def used_by(log: Log, run: Subject) -> Used:
    """Return the usage of the run and all runs below it, according to the log; zero for a run that does not exist.

    A run knows the usage of children that are over; open ones are read. Raises `LogCorrupted`, `LogUnavailable`.
    """
    state = await Journal(log, run).load()
    used = Used(usage=state.usage, cost_usd=state.cost_usd)
    used += Used(usage=state.inner_usage, cost_usd=state.inner_cost_usd)
    for child in state.open_children:
        used += await used_by(log, run_subject(run.shard, run.root, child))
    return used
