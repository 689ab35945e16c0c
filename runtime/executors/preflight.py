"""The check of a release before it is deployed: what is open that workers of this registry would leave to others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Literal

import msgspec

from ...eventlog.errors import ConfigError, LogCorrupted, RunGone
from ...eventlog.names import run_subject
from ...eventlog.ports import Log
from ...projections.run_list import RunRow
from ..agents.registry import Registry
from ..driving.host import Host
from ..journal.journal import Journal
from ..triggers.register import read_schedules
from ..triggers.schedule import schedule_of
from .lacking import check_fit


class Misfit(msgspec.Struct, frozen=True):
    """An open run, a schedule or a hook, by its id or name, and why workers of the registry could not serve it."""

    kind: Literal["run", "schedule", "hook"]
    name: str
    agent: str
    reason: str


class Preflight:
    """One check: `misfits` as they are found, and the number of what was `checked`, by kind."""

    def __init__(self, log: Log, registry: Registry) -> None:
        self._host = Host(log=log, registry=registry, worker="preflight")
        self.checked = {"run": 0, "schedule": 0, "hook": 0}
        self.misfits: list[Misfit] = []

    async def runs(self, rows: Sequence[RunRow]) -> AsyncIterator[Misfit]:
        """Check open roots, each with the open runs below it, as a worker does before it claims them.

        Raises `LogUnavailable`.
        """
        for row in rows:
            subject = run_subject(row.shard, row.root_id, row.run_id)
            try:
                reason = await self._unfit(Journal(self._host.log, subject))
            except RunGone:
                continue
            except LogCorrupted as error:
                reason = str(error)
            for found in self._judged("run", row.run_id, row.agent, reason):
                yield found

    async def schedules(self) -> AsyncIterator[Misfit]:
        """Check that the agents of all schedules are there. Raises `LogUnavailable`."""
        async for stored in read_schedules(self._host.log):
            if not stored.deleted:
                schedule = schedule_of(stored.name, stored.spec)
                for found in self._named("schedule", schedule.name, schedule.agent_name):
                    yield found

    def hook(self, name: str, agent: str) -> list[Misfit]:
        """Check that the agent of a hook is there; return what is wrong."""
        return self._named("hook", name, agent)

    async def _unfit(self, journal: Journal) -> str | None:
        """Return why workers would leave the run to others; null if they would not, or if it is over."""
        if (await journal.load()).over:
            return None
        try:
            await check_fit(self._host, journal)
        except ConfigError as error:
            return str(error)
        return None

    def _named(self, kind: Literal["schedule", "hook"], name: str, agent: str) -> list[Misfit]:
        registry, reason = self._host.registry, None
        try:
            registry.check(registry.agent(agent))
        except ConfigError as error:
            reason = str(error)
        return self._judged(kind, name, agent, reason)

    def _judged(
        self, kind: Literal["run", "schedule", "hook"], name: str, agent: str, reason: str | None
    ) -> list[Misfit]:
        self.checked[kind] += 1
        found = [] if reason is None else [Misfit(kind, name, agent, reason)]
        self.misfits += found
        return found
