"""The durable executor: runs go to workers, which take wake-ups from a shared consumer of the same log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ...eventlog.errors import FoldlogError, LogUnavailable
from ...eventlog.events import LaneEntry, StoredEvent, Submitted
from ...eventlog.ports import Subject, Wakeup, WakeWrite, Write
from ..core.turn import Turn
from ..driving.host import Host
from ..journal.journal import Journal
from ..journal.lanes import join_lane
from ..journal.open_run import opened
from ..journal.timers import start_timer, wakeup_for
from ..ports.executor import CAPABILITIES, RunsIn

if TYPE_CHECKING:
    from ..ports.runnable import Runnable

ORPHAN_S_MIN = 40.0


class DurableExecutor:
    """Submits runs to workers."""

    name = "durable"
    capabilities = CAPABILITIES
    runs_in: RunsIn = "workers"

    def __init__(self, host: Host) -> None:
        self._host = host

    async def submit(self, subject: Subject, submitted: Submitted, agent: Runnable[Any]) -> bool:
        """Store the first commit and its wake-up in one batch (W5)."""
        append = self._host.log.clock.new_id()
        journal = Journal(self._host.log, subject)

        async def store(turn: Turn) -> bool:
            wakeup = Wakeup(
                shard=subject.shard,
                agent=journal.state.agent,
                root=subject.root,
                run=subject.id,
                cause=len(turn.events),
                priority=submitted.priority,
            )
            lane = submitted.lane
            if submitted.start_at is not None:  # its timer takes the place of the wake-up
                extra: Sequence[Write] = start_timer(journal, wakeup.cause)
            elif lane is None and not _may_be_the_last_try(submitted):
                return await self._submit_pipelined(journal, turn.events, wakeup, append)
            else:
                extra = [WakeWrite(wakeup)] if lane is None else await self._join(lane, wakeup)
            return await journal.store(turn.events, epoch=0, extra=extra, append=append)

        return await opened(journal, submitted, agent.name, store)

    async def _submit_pipelined(
        self, journal: Journal, events: Sequence[StoredEvent], wakeup: Wakeup, append: str
    ) -> bool:
        """Send the wake-up first and the commit right after it: a fifth of a batch's time; W10 handles an early one.

        A stored run whose wake-up failed, or was so early that workers may have dropped it as an orphan, gets another.
        """
        wakeups, clock = self._host.log.wakeups, self._host.log.clock
        begun_at = clock.monotonic()
        sent, stored = await asyncio.gather(
            wakeups.send(wakeup), journal.store(events, epoch=0, append=append), return_exceptions=True
        )
        if isinstance(stored, BaseException):
            raise stored
        if stored and (isinstance(sent, LogUnavailable) or clock.monotonic() - begun_at > ORPHAN_S_MIN / 2):
            await wakeups.send(wakeup)
        elif isinstance(sent, BaseException):
            raise sent
        return stored

    async def _join(self, lane: str, wakeup: Wakeup) -> list[Write]:
        entry = LaneEntry(run=wakeup.run, agent=wakeup.agent, revision=wakeup.cause, priority=wakeup.priority)
        write, at_head, revision = await join_lane(self._host.log, lane, entry)
        if not at_head:
            return [write]
        return [write, WakeWrite(msgspec.structs.replace(wakeup, lane_cause=revision))]

    async def drive(self, subject: Subject, agent: Runnable[Any] | None = None) -> None:
        """Send a wake-up: harmless if a worker already drives the run (W27)."""
        journal = Journal(self._host.log, subject)
        await journal.load()
        await journal.follow_until(lambda state: state.exists)  # the read may have been stale
        if not journal.state.over:
            await self._host.log.wakeups.send(wakeup_for(journal))

    async def failure(self, run_id: str) -> FoldlogError | None:
        """Return None: workers drive."""
        return None

    async def aclose(self) -> None:
        """Do nothing: workers drive, so there is nothing to release."""


def _may_be_the_last_try(submitted: Submitted) -> bool:
    """Return whether nobody may repeat the submission: an edit makes the wake-up of its schedule moot (W37).

    A run that was stored without its wake-up would then wait for ever.
    """
    return submitted.trigger is not None and submitted.trigger.kind == "cron"
