"""Spending under the budgets of a namespace: a register for each budget and shard (W65, ADR 0057).

A register's new value is in the batch that stores the usage of a call, so what is stored is counted once. A batch is
within one shard, so each shard has its part of a budget; the sum of the parts is what was spent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Protocol

from ...eventlog.commits import Commit, Head
from ...eventlog.events import BudgetUpdated
from ...eventlog.names import budget_subject
from ...eventlog.ports import CommitWrite, Log, TimerWrite, WakeWrite
from ..core.commands import Resume
from ..core.decide import take
from ..core.model_calls import waits_on_timer
from ..core.shared_budgets import (
    ModelCallCost,
    Purse,
    SharedBudget,
    Spent,
    SpentBudget,
    counted,
    judged,
    paid_in,
    purses_of,
    register_name,
    sum_of,
)
from ..core.turn import Turn
from ..journal.journal import Journal
from ..journal.outages import Decisions
from ..journal.register import each_register, read_register, register_write
from ..journal.timers import wakeup_for


class Spender(Protocol):
    """A process whose runs are under budgets. `Host` implements it."""

    @property
    def log(self) -> Log:
        """The log that holds the registers."""
        ...

    @property
    def budgets(self) -> tuple[SharedBudget, ...]:
        """The budgets of the namespace that this process knows."""
        ...

    @property
    def slot_locks(self) -> dict[str, asyncio.Lock]:
        """One lock for each register: within one process, changes are made one after another."""
        ...


class Spending:
    """The spending of one run. All methods raise `LogUnavailable`."""

    def __init__(self, host: Spender, journal: Journal) -> None:
        self._host, self._log, self._journal = host, host.log, journal
        self.model = ""
        """The model that the log has requested last, before the events that are about to be stored."""

    def purses(self, model: str) -> list[Purse]:
        """Return the budgets that a call of the model is under."""
        state = self._journal.state
        user = state.submitted.user if state.submitted is not None else None
        return list(purses_of(self._host.budgets, model, user, state.agent))

    async def refusal(self, model: str) -> SpentBudget | None:
        """Return the first budget that is used up; null if the model may be called."""
        now = self._log.clock.now()
        for purse in self.purses(model):
            found = judged(purse, await spent_of(self._log, purse, now), now)
            if found is not None:
                return found
        return None

    async def has_left(self, models: Iterable[str]) -> bool:
        """Return whether any of these models may be called."""
        for model in sorted(models):
            if await self.refusal(model) is None:
                return True
        return False

    @contextlib.asynccontextmanager
    async def counted(self, commit: Commit) -> AsyncIterator[list[CommitWrite]]:
        """Yield the writes that count the calls which the commit pays for, for the batch that stores it."""
        calls: dict[str, tuple[Purse, list[ModelCallCost]]] = {}
        for call in paid_in(commit.events, self.model):
            for purse in {purse.key: purse for purse in self.purses(call.model)}.values():
                calls.setdefault(purse.key, (purse, []))[1].append(call)
        async with contextlib.AsyncExitStack() as turns:
            for key in sorted(calls):
                lock = self._host.slot_locks.setdefault(f"budget:{key}", asyncio.Lock())
                await turns.enter_async_context(lock)
            yield [await self._write(*calls[key], commit.at) for key in sorted(calls)]

    async def _write(self, purse: Purse, calls: Sequence[ModelCallCost], at: float) -> CommitWrite:
        subject = budget_subject(self._journal.subject.shard, purse.key)
        head, now = await read_spent(self._log, purse, subject.shard)
        began_at, _until = purse.budget.period(at)
        for call in calls:
            now = counted(now, began_at, call)
        return register_write(self._log, subject, head, now)


async def resume_if_left(host: Spender, journal: Journal, watch: TimerWrite | None = None) -> bool:
    """Resume a run that waits for a budget of which something is left by now; return whether this call did so.

    Amounts are those of the process, so a larger one is known to the next that looks at the run. A wake-up is in the
    same batch (W5), or the watch of the process that goes on with it (W18). Raises `LogUnavailable`.
    """
    spending = Spending(host, journal)
    async for _ in Decisions(host.log.clock):
        state = journal.state
        if not waits_on_timer(state) or not await spending.has_left(
            {*state.model.given_up, state.model.model}
        ):
            return False
        turn = Turn(state, journal.rules, host.log.clock.now())
        take(turn, Resume())
        wake = watch or WakeWrite(wakeup_for(journal, cause=state.head.rev + len(turn.events)))
        if await journal.store(turn.events, epoch=0, extra=[wake]):
            return True
    return False


async def read_spent(log: Log, purse: Purse, shard: int) -> tuple[Head, BudgetUpdated]:
    """Return what a shard has spent of a budget, and the head of its register. Raises `LogUnavailable`."""
    head, events = await read_register(log, budget_subject(shard, purse.key))
    for event in events:
        if isinstance(event, BudgetUpdated):
            return head, event
    budget = purse.budget
    return head, BudgetUpdated(name=purse.owner, per=budget.per, time_zone=budget.time_zone)


async def spent_of(log: Log, purse: Purse, now: float) -> Spent:
    """Return what was spent of a budget in the period that `now` is in. Raises `LogUnavailable`."""
    parts = [await read_spent(log, purse, shard) for shard in range(log.events.shards)]
    return sum_of([part for _head, part in parts], purse.budget.period(now)[0])


async def all_spent(log: Log) -> dict[str, list[BudgetUpdated]]:
    """Return all registers of budgets, those of all shards by their name. Raises `LogUnavailable`."""
    found: dict[str, list[BudgetUpdated]] = {}
    async for event in each_register(log, "budget", BudgetUpdated):
        found.setdefault(register_name(event.name, event.per, event.time_zone), []).append(event)
    return found
