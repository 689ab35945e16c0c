"""The local executor: drives the runs it submits in the caller's process, covered by a watch in the log (W18)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec

from ...eventlog.errors import FoldlogError, LogUnavailable, NotRegistered
from ...eventlog.events import LaneEntry, Submitted
from ...eventlog.ports import Lease, Subject, TimerWrite, Write
from ..core.commands import BelowReady, TimerDue
from ..core.turn import Turn
from ..driving.driver import Driver
from ..driving.heartbeat import LeaseKeeper
from ..driving.host import Host
from ..journal.cancel import see_cancel_through
from ..journal.family import until_ready, waiting_below
from ..journal.journal import Journal
from ..journal.lanes import at_head_of_lane, join_lane, read_lane
from ..journal.open_run import opened
from ..journal.outages import OUTAGE_POLL_S, STALE_READ_S, through_outages
from ..journal.redelivery import redeliver
from ..journal.timers import set_timers, start_timer, watch_timer
from ..ports.executor import CAPABILITIES, RunsIn
from ..shared.run_slots import give_up, slots_of
from ..shared.spending import resume_if_left
from .lacking import lacking

if TYPE_CHECKING:
    from ..ports.runnable import Runnable

logger = logging.getLogger("foldlog.local")

LEASE_POLL_S = 0.5
"""The poll interval for the lease of an owner; its death is reported at once."""
RELEASE_GRACE_S = 5.0
"""The time that a leaving process waits for claims to be released; the watch covers the others."""


class LocalExecutor:
    """Drives runs in this process. Another executor takes a run over when this process stops renewing its watch."""

    name = "local"
    capabilities = CAPABILITIES
    runs_in: RunsIn = "process"

    def __init__(self, host: Host) -> None:
        self._host = host = msgspec.structs.replace(host, roll_back=self._roll_back)
        self._keeper = LeaseKeeper(host)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving = False
        self._failures: dict[str, FoldlogError] = {}
        """The errors that made this process stop driving a run, by run."""

    async def submit(self, subject: Subject, submitted: Submitted, agent: Runnable[Any]) -> bool:
        """Store the first commit, claimed if its lane is free, and drive the run in a task of its own."""
        await self._host.registry.deps.shared()
        append = self._host.log.clock.new_id()
        journal = Journal(self._host.log, subject)
        # The agent as given, for this run alone: another agent of that name may have other tools.
        host = msgspec.structs.replace(self._host, agents={agent.name: agent})

        async def store(turn: Turn) -> bool:
            driver: Driver | None = None
            extra: list[Write] = []
            at_head, revision = True, 0
            if submitted.lane is not None:
                entry = LaneEntry(
                    run=subject.id,
                    agent=journal.state.agent,
                    revision=len(turn.events),
                    priority=submitted.priority,
                )
                write, at_head, revision = await join_lane(self._host.log, submitted.lane, entry)
                extra.append(write)
            later = submitted.start_at is not None
            if later:
                extra += start_timer(journal, len(turn.events))
            elif at_head:
                extra.append(self._watch(journal, revision))
            if at_head and not later and slots_of(host, journal) is None:
                driver = Driver(host, journal)
                driver.claim_within(turn)
            epoch = driver.epoch if driver is not None else 0
            stored = await journal.store(turn.events, epoch=epoch, extra=extra, append=append, at=turn.now)
            if stored:
                self._spawn(journal, host, driver if journal.state.epoch == epoch else None)
            return stored

        return await opened(journal, submitted, agent.name, store)

    async def drive(self, subject: Subject, agent: Runnable[Any] | None = None) -> None:
        """Drive an existing run in a task of its own, as soon as no one else does."""
        journal = Journal(self._host.log, subject, wait_for_log=True)
        await journal.load()
        await journal.follow_until(lambda state: state.exists)  # the read may have been stale
        if not journal.state.over and subject.id not in self._tasks:
            for each in (journal, *(await waiting_below(journal)).values()):
                await resume_if_left(self._host, each, self._watch(each))
            given = {} if agent is None else {agent.name: agent}
            host = msgspec.structs.replace(self._host, agents={**self._host.agents, **given})
            host.runnable_of(journal.state)
            self._spawn(journal, host, None, take_over=True)

    async def _roll_back(self, subject: Subject) -> str:
        from .rolling_back import roll_back

        return await roll_back(self._host, self, subject)

    async def failure(self, run_id: str) -> FoldlogError | None:
        """Wait until this process stops driving the run, and return the error that stopped it, if any."""
        driving = self._tasks.get(run_id)
        if driving is not None:
            await asyncio.wait({driving})
        return self._failures.get(run_id)

    async def aclose(self) -> None:
        """Stop driving and release the claims; nothing is cancelled.

        Running unsafe calls end first, each within its timeout: cut off, they would be in doubt.
        """
        self._leaving = True  # runs that rest from now on are not waited for
        for driver in self._keeper.drivers:
            driver.release_soon("the process that drove it is leaving")
        driving = {driver.state.run for driver in self._keeper.drivers}
        tasks = dict(self._tasks)
        leaving = {task for run, task in tasks.items() if run in driving}
        try:
            if leaving:
                _, leaving = await asyncio.wait(leaving, timeout=RELEASE_GRACE_S)
            unsafe_s = max((driver.unsafe_calls_take_s for driver in self._keeper.drivers), default=0.0)
            if leaving and unsafe_s:
                await asyncio.wait(leaving, timeout=unsafe_s)
        finally:  # even if the caller stops waiting, as on Ctrl-C
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
            await self._keeper.aclose()

    def _watch(self, journal: Journal, lane_revision: int = 0) -> TimerWrite:
        """Return the watch that covers a claim, for the batch of the claim (W18).

        `lane_revision` is that of a lane that the run joins in the batch: without a claim, it is asked again.
        """
        due_at = self._host.log.clock.now() + self._host.lease_s
        return TimerWrite(watch_timer(journal, due_at, lane_revision))

    def _spawn(self, journal: Journal, host: Host, driver: Driver | None, *, take_over: bool = False) -> None:
        run = journal.subject.id
        journal.wait_for_log = True
        task = asyncio.create_task(self._supervise(journal, host, driver, take_over=take_over))
        self._tasks[run] = task
        task.add_done_callback(lambda _: self._tasks.pop(run, None))

    async def _supervise(
        self, journal: Journal, host: Host, driver: Driver | None, *, take_over: bool
    ) -> None:
        try:
            while not journal.state.over:
                try:
                    async with contextlib.AsyncExitStack() as beating:
                        if driver is None:
                            driver = await self._claim_when_runnable(
                                journal, host, beating, take_over=take_over
                            )
                        else:
                            await beating.enter_async_context(self._keeper.beat_for(driver))
                        if driver is None or not await self._drive(driver, beating):
                            return
                    driver, take_over = None, False
                except LogUnavailable:  # an outage delays runs but fails none
                    await self._host.log.clock.sleep(OUTAGE_POLL_S)
                    driver = None
                    await journal.load()
        except FoldlogError as error:
            logger.warning("run %s: this process stopped driving it: %s", journal.subject.id, error)
            self._failures[journal.subject.id] = error
        except Exception as error:
            logger.exception("run %s: a bug stopped its driver", journal.subject.id)
            self._failures[journal.subject.id] = FoldlogError(
                f"a bug stopped the driver of run {journal.subject.id}: {error}"
            )

    async def _drive(self, driver: Driver, beating: contextlib.AsyncExitStack) -> bool:
        """Drive until the run rests, when its heartbeats end; return whether this process waits for it to go on."""
        journal = driver.journal
        ending = await driver.drive()
        await beating.aclose()
        if ending == "fenced":
            return False
        await self._give_up(journal, below=driver.slots_below)
        if ending == "released":
            return False
        await set_timers(self._host.log, journal)
        if ending == "over":
            with contextlib.suppress(LogUnavailable):  # if it stays, it wakes a run that is over: harmless
                await self._host.log.timers.cancel(watch_timer(journal, 0.0))
        return not self._leaving

    async def _give_up(self, journal: Journal, *, below: bool = False) -> None:
        giving = functools.partial(give_up, self._host, journal, below=below)
        await through_outages(self._host.log.clock, giving)

    async def _claim_when_runnable(
        self, journal: Journal, host: Host, beating: contextlib.AsyncExitStack, *, take_over: bool
    ) -> Driver | None:
        """Wait for this run's turn and claim it; None if it is over or another process drives it.

        The heartbeats begin before the claim: no stored claim is without a lease, or a worker that was woken by the
        same event would consider its owner dead.
        """
        due: TimerDue | BelowReady | None = None
        while True:
            state = journal.state
            if state.closed:
                await see_cancel_through(journal)
                await self._give_up(journal)
                return None
            if state.owner is not None:
                if not take_over:
                    return None
                if not await self._is_abandoned(journal):
                    continue
            if (state.runnable or due is not None) and await self._has_turn(journal):
                await _must_have_all(host, journal)
                slots = slots_of(host, journal) if journal.state.owner is None else None
                if slots is not None and not await slots.until_taken():
                    continue
                driver = Driver(host, journal)
                causes = [due] if due is not None else []
                await beating.enter_async_context(self._keeper.beat_for(driver))
                if await driver.claim(*causes, extra=[self._watch(journal)]):
                    return driver
                await beating.aclose()
                due = None  # another process handled it first
                if journal.state.owner is None and not journal.state.runnable:
                    await self._give_up(journal)
                continue
            due = await until_ready(journal) if not state.runnable else None

    async def _is_abandoned(self, journal: Journal) -> bool:
        """Wait until the owner's connection or lease has ended. False: something else happened to the run first."""
        owner, epoch = journal.state.owner or "", journal.state.epoch
        async with self._host.log.leases.deaths() as deaths:
            ended = (
                asyncio.create_task(self._until_dead(deaths, journal.state.run)),
                asyncio.create_task(self._until_lease_ends(journal.state.run, owner, epoch)),
            )
            news = asyncio.create_task(
                journal.follow_until(lambda now: (now.owner, now.epoch) != (owner, epoch))
            )
            try:
                done, _ = await asyncio.wait({*ended, news}, return_when=asyncio.FIRST_COMPLETED)
                for sign in done:
                    sign.result()
            finally:
                for sign in (*ended, news):
                    sign.cancel()
                await asyncio.gather(*ended, news, return_exceptions=True)
        return (journal.state.owner, journal.state.epoch) == (owner, epoch)

    async def _until_dead(self, deaths: AsyncIterator[Lease], run: str) -> None:
        """Wait until the run's owner is reported dead; redeliver other wake-ups of dead owners, as a worker does."""
        async for lease in deaths:
            await redeliver(self._host.log, lease)
            if lease.run == run:
                return

    async def _until_lease_ends(self, run: str, owner: str, epoch: int) -> None:
        while await self._host.log.leases.live(run, owner, epoch):
            await self._host.log.clock.sleep(LEASE_POLL_S)

    async def _has_turn(self, journal: Journal) -> bool:
        """Return whether the run is at the head of its lane; if not, first wait until the run before it is over."""
        submitted = journal.state.submitted
        lane = submitted.lane if submitted is not None else None
        if (
            lane is None
            or journal.state.epoch > 0
            or await at_head_of_lane(self._host.log, lane, journal.subject.id, 0)
        ):
            return True
        subject, head, queue = await read_lane(self._host.log, lane)
        names = [entry.run for entry in queue]
        if journal.subject.id in names[1:]:
            before = names[names.index(journal.subject.id) - 1]
            await _until_over(
                Journal(self._host.log, Subject(subject.shard, "run", before, before), wait_for_log=True)
            )
        _subject, now, _queue = await read_lane(self._host.log, lane)
        if now.position == head.position:  # the run is over, but this read of the lane still has it
            await self._host.log.clock.sleep(STALE_READ_S)
        await journal.catch_up()
        return False


async def _until_over(journal: Journal) -> None:
    await journal.load()
    await journal.follow_until(lambda state: state.over)


async def _must_have_all(host: Host, journal: Journal) -> None:
    """Raise `NotRegistered` if this process lacks anything for the run, before anything of it is changed."""
    reason = await lacking(host, journal)
    if reason is not None:
        raise NotRegistered(f"run {journal.subject.id} cannot be driven in this process: {reason}")
