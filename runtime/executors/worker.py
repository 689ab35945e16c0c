"""A worker: it takes wake-ups from a shared consumer, judges each by W10 to W15, claims runs and drives them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Literal, TypeVar

import msgspec

from ...eventlog.errors import LogCorrupted, LogUnavailable
from ...eventlog.names import run_subject
from ...eventlog.ports import Delivery, Lease, Log, Wakeup
from ...projections.run_state import RunState
from ..core.approvals import APPROVAL_TIMER
from ..core.commands import Command, Leave, TimerDue
from ..core.decide import take
from ..core.parking import is_parked_on_child
from ..core.submission import CHILD
from ..core.turn import Turn
from ..driving.driver import Driver
from ..driving.heartbeat import LeaseKeeper
from ..driving.host import Ending, Host
from ..journal.cancel import see_cancel_through
from ..journal.family import family_of, ready_below, set_timers_below, waiting_below
from ..journal.journal import Journal
from ..journal.lanes import at_head_of_lane
from ..journal.redelivery import redeliver
from ..journal.timers import owed_timers, set_timers
from ..shared.slots import SLOT_TIMER, give_up, slots_of
from .lacking import lacking

logger = logging.getLogger("foldlog.worker")

BUSY_DELAY_MAX_S = 1.0
EARLY_S = 0.001
"""A wake-up may come before its run's commit, which is right behind it: so long until a second look."""
STALE_DELAY_S = 0.1
ORPHAN_ATTEMPTS_MAX = 30
"""A wake-up whose run does not appear after so many looks (about a minute): its submitter was never told yes."""
LEFT_DELAY_MAX_S = 10.0
"""When a worker that cannot drive a run is offered it again, at the latest: a worker that can may have started."""
LEFT_LOOKS = 6
"""A run that was offered so often, three seconds in all, and that nobody has taken has its log say what is missing."""
CORRUPT_DELAY_S = 30.0
FULL_DELAY_S = 2.0
"""When a run comes back for which there is no place in line."""
RELEASE_S_MIN, RELEASE_S_MAX = 1.0, 5.0
"""How long a worker that leaves waits for what it releases: half of its grace time within these bounds."""
PARK_AFTER_S = 5.0
"""A family in which everybody waits for people or time gives its place in the worker back after so long."""

T = TypeVar("T")

Verdict = tuple[Literal["ack", "nak"], float]
"""What becomes of a wake-up: done with, or back after so many seconds."""


SLOT_VERDICTS: Mapping[str, Verdict] = {
    "waits": ("ack", 0.0),
    "full": ("nak", FULL_DELAY_S),
    "stale": ("nak", STALE_DELAY_S),
}


class Worker:
    """One worker process: serves its registry's agents, at most `concurrency` runs at a time."""

    def __init__(
        self,
        host: Host,
        *,
        concurrency: int = 100,
        grace_s: float = 30.0,
        park_after_s: float | None = PARK_AFTER_S,
    ) -> None:
        host = msgspec.structs.replace(host, park_after_s=park_after_s)
        self._host, self._log = host, host.log
        self._heart = LeaseKeeper(host)
        self._room = asyncio.Semaphore(concurrency)
        self._grace_s = grace_s
        self._handling: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    @property
    def log(self) -> Log:
        """The log it serves."""
        return self._log

    def stop(self) -> None:
        """Drain: take nothing new, finish what can be finished within the grace time, release the rest."""
        self._stopping.set()

    async def serve(self) -> None:
        """Work until `stop` is called and the drain is done. Survives outages of the log.

        Cancelled, it drains nothing: its runs go back as they are, and their calls are cut off.
        """
        agents = frozenset(self._host.registry.agents)
        leases = self._log.leases
        async with leases.presence(self._host.worker, agents), leases.deaths() as deaths:
            mourner = asyncio.create_task(self._mourn(deaths))
            try:
                async with self._log.wakeups.pull(agents) as deliveries:
                    await self._receive(deliveries)
                    await self._drain()
            finally:
                left = [mourner, *self._handling]
                for task in left:
                    task.cancel()
                await asyncio.gather(*left, return_exceptions=True)
                await self._heart.aclose()

    async def _receive(self, deliveries: AsyncIterator[Delivery]) -> None:
        while await self._unless_stopping(self._room.acquire()):
            delivery = await self._unless_stopping(anext(deliveries))
            if delivery is None:
                return
            task = asyncio.create_task(self._handle(delivery))
            self._handling.add(task)
            task.add_done_callback(self._done)

    async def _unless_stopping(self, waiting: Awaitable[T]) -> T | None:
        """What is waited for; None, and the waiting given up, once the worker is to stop."""
        future, stopping = asyncio.ensure_future(waiting), asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({future, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return future.result() if future.done() else None
        finally:
            future.cancel()
            stopping.cancel()
            await asyncio.gather(future, stopping, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._handling.discard(task)
        self._room.release()

    async def _drain(self) -> None:
        """Let runs finish for most of the grace time, then release those that are left."""
        release_s = min(RELEASE_S_MAX, max(RELEASE_S_MIN, self._grace_s / 2))
        await self._handled(max(0.0, self._grace_s - release_s))
        for driver in self._heart.drivers:
            driver.release_soon("its worker is shutting down")
        await self._handled(release_s)

    async def _handled(self, timeout_s: float) -> None:
        if self._handling:
            await asyncio.wait(set(self._handling), timeout=timeout_s)

    async def _mourn(self, deaths: AsyncIterator[Lease]) -> None:
        """A worker's connection is gone: have its wake-ups delivered again at once; the normal claim does the rest."""
        async for lease in deaths:
            with contextlib.suppress(LogUnavailable):
                await redeliver(self._log, lease)

    # --- one wake-up (W10 to W15) ---------------------------------------------------------------------------

    async def _handle(self, delivery: Delivery) -> None:
        try:
            judgement, delay_s = await self._judge(delivery)
            if judgement == "ack":
                await self._log.wakeups.ack(delivery.token)
            else:
                await self._log.wakeups.nak(delivery.token, delay_s)
        except LogUnavailable as error:
            logger.warning("wake-up of run %s: %s; it will be delivered again", delivery.wakeup.run, error)
        except asyncio.CancelledError:
            with contextlib.suppress(LogUnavailable):  # no silence has to tell the others
                await self._log.wakeups.nak(delivery.token)
            raise
        except Exception:
            logger.exception(
                "wake-up of run %s: a bug stopped its driver; it will be delivered again", delivery.wakeup.run
            )

    async def _judge(self, delivery: Delivery) -> Verdict:
        """W10 to W15. Acknowledged only with nothing left to do for this run; else back, with a delay."""
        wakeup = delivery.wakeup
        subject = run_subject(wakeup.shard, wakeup.root, wakeup.run)
        journal = Journal(self._log, subject, wait_for_log=True)
        new = delivery.attempt == 1 and wakeup.cause < self._host.snapshot_events
        while True:
            try:
                woken = journal
                journal, verdict = await self._loaded(journal, delivery, short=new)
            except LogCorrupted as error:
                logger.warning("left to others: %s", error)
                return "nak", CORRUPT_DELAY_S
            if verdict is not None:
                return verdict
            if journal.state.cancelling:
                await see_cancel_through(journal)
                continue
            below = await waiting_below(journal, woken.state.head.position)
            cause = self._cause(journal, wakeup, below)
            if not journal.state.runnable and cause is None:
                return await self._not_runnable(journal, below)
            waits = await self._its_turn(journal, delivery)
            if waits is not None:
                return waits
            ending = await self._drive(delivery, journal, cause)
            if ending is None or is_parked_on_child(journal.state):
                continue  # a conflict; or something below may have become ready meanwhile
            return await self._rested(journal, ending)

    async def _not_runnable(self, journal: Journal, below: Mapping[str, Journal]) -> Verdict:
        """Who has driven it may have died before it paid (W12)."""
        await set_timers_below(journal, below)
        state = journal.state
        await give_up(self._host, journal, below=state.over and state.child_count > 0)
        return "ack", 0.0

    async def _its_turn(self, journal: Journal, delivery: Delivery) -> Verdict | None:
        """Null if the run is to be driven here and now; else what becomes of the wake-up."""
        turn_of_lane = await self._lane(journal, delivery.wakeup)
        if turn_of_lane is None:
            return "nak", STALE_DELAY_S
        if not turn_of_lane:
            return "ack", 0.0
        return await self._left_to_others(journal, delivery) or await self._in_line(journal, delivery.wakeup)

    async def _in_line(self, journal: Journal, wakeup: Wakeup) -> Verdict | None:
        """Null with a slot; else it stands in line. One with an owner has a slot since its claim."""
        slots = slots_of(self._host, journal) if journal.state.owner is None else None
        if slots is None:
            return None
        taking = await slots.take(seen=wakeup.slots_cause)
        if taking != "taken" and wakeup.ref == SLOT_TIMER:
            await slots.look_after()
            taking = await slots.take()
        if taking == "waits":
            await slots.look_later()
        return None if taking == "taken" else SLOT_VERDICTS[taking]

    async def _rested(self, journal: Journal, ending: Ending) -> Verdict:
        """What becomes of the wake-up of a run that this worker drives no more (W15)."""
        if ending in {"over", "parked"}:
            await set_timers(self._log, journal)
            return "ack", 0.0
        return "nak", 0.0 if ending == "released" else STALE_DELAY_S

    async def _loaded(
        self, journal: Journal, delivery: Delivery, *, short: bool
    ) -> tuple[Journal, Verdict | None]:
        """The run to be judged: the one that is woken, or the root that drives it; or what can be said at once."""
        state = await journal.load(short=short)
        if not state.exists and delivery.attempt == 1:
            await self._log.clock.sleep(EARLY_S)
            state = await journal.load(short=short)
        verdict = self._unjudgeable(journal, delivery)
        is_child = state.submitted is not None and state.submitted.executor == CHILD
        if verdict is None and is_child and not state.cancelling:
            return await self._root_of(journal, delivery.wakeup)
        return journal, verdict

    def _unjudgeable(self, journal: Journal, delivery: Delivery) -> Verdict | None:
        """W10: a read older than the wake-up's cause decides nothing; nor does one of a newer vocabulary."""
        state = journal.state
        of_this_run = journal.subject.id == delivery.wakeup.run
        if not state.exists and delivery.attempt > ORPHAN_ATTEMPTS_MAX:
            return "ack", 0.0
        if not state.exists or (of_this_run and state.head.rev < delivery.wakeup.cause):
            return "nak", min(2.0, STALE_DELAY_S * delivery.attempt)
        if state.unknown_type is not None and not state.over:
            logger.warning(
                "run %s holds an event %r of a newer version: left to others", state.run, state.unknown_type
            )
            return "nak", CORRUPT_DELAY_S
        return None

    async def _root_of(self, child: Journal, wakeup: Wakeup) -> tuple[Journal, Verdict | None]:
        """The root of a run that is woken: who drives the root drives all below it (W19).

        The root has a wake-up or watch of its own, unless it waits for a child, or was woken by one.
        """
        subject = child.subject
        root = Journal(self._log, run_subject(subject.shard, subject.root, subject.root), wait_for_log=True)
        root.state = (await family_of(child))[subject.root].state
        if root.state.head.rev < wakeup.root_cause:
            return root, ("nak", STALE_DELAY_S)
        if root.state.over or not (is_parked_on_child(root.state) or root.state.child_wakes):
            return root, ("ack", 0.0)
        return root, None

    def _cause(self, journal: Journal, wakeup: Wakeup, below: Mapping[str, Journal]) -> Command | None:
        """What came from outside the run, as a command for its claim (W11); None when it is moot."""
        state = journal.state
        if state.over:
            return None
        if wakeup.kind == "timer" and wakeup.run == state.run and _is_due(state, wakeup.ref):
            return TimerDue(wakeup.ref)
        return self._late(journal) or ready_below(journal, below)

    def _late(self, journal: Journal) -> TimerDue | None:
        """A timer whose wake-up may have been spent on a place in line, and is due by this process' clock."""
        now = self._log.clock.now()
        waited = slots_of(self._host, journal) is not None
        late = [timer.id for timer in owed_timers(journal) if waited and timer.due_at <= now]
        return TimerDue(late[0]) if late else None

    async def _is_driven(self, state: RunState) -> bool:
        """Whether somebody vouches for it; what is driven in this process is, even while it is late to say so."""
        if self._heart.drives(state.run, state.epoch):
            return True
        return state.owner is not None and await self._log.leases.live(state.run, state.owner, state.epoch)

    async def _left_to_others(self, journal: Journal, delivery: Delivery) -> Verdict | None:
        """Not ours while somebody vouches for driving it (W13), or while we lack what it was prepared for."""
        if await self._is_driven(journal.state):
            return "nak", min(BUSY_DELAY_MAX_S, self._host.lease_s, 0.05 * 2 ** min(delivery.attempt, 6))
        reason = await lacking(self._host, journal)
        if reason is None:
            return None
        logger.info("run %s is left to others: %s", journal.state.run, reason)
        if delivery.attempt >= LEFT_LOOKS:
            await self._tell_why(journal, reason)
        return "nak", min(LEFT_DELAY_MAX_S, 0.05 * 2 ** min(delivery.attempt, 8))

    async def _tell_why(self, journal: Journal, reason: str) -> None:
        """Have the log say, once, what is missing here; if somebody was quicker, that is for the next look."""
        turn = Turn(journal.state, journal.rules, self._log.clock.now())
        take(turn, Leave(self._host.worker, reason))
        if turn.events and await journal.store(turn.events, epoch=0):
            logger.warning("run %s waits for another worker: %s", journal.state.run, reason)

    async def _lane(self, journal: Journal, wakeup: Wakeup) -> bool | None:
        submitted = journal.state.submitted
        if submitted is None or submitted.lane is None or journal.state.epoch > 0:
            return True  # who was claimed once was at the head of its lane, and is until it is over
        return await at_head_of_lane(self._log, submitted.lane, journal.subject.id, wakeup.lane_cause)

    async def _drive(self, delivery: Delivery, journal: Journal, cause: Command | None) -> Ending | None:
        """Claim and drive; None after a conflict (back to W10)."""
        driver = Driver(self._host, journal)
        causes = [cause] if cause is not None else []
        async with self._heart.beat_for(
            driver, delivery.token
        ):  # from before the claim: no stored claim is without one
            if not await driver.claim(*causes):
                return None
            state = driver.state
            logger.info("run %s of %s: claimed, epoch %d", state.run, state.agent, driver.epoch)
            ending = await driver.drive()
        if ending != "fenced":
            await give_up(self._host, journal, below=driver.slots_below)
        logger.info(
            "run %s of %s: %s", state.run, state.agent, driver.state.status if ending == "over" else ending
        )
        return ending


def _is_due(state: RunState, timer_id: str) -> bool:
    """Return whether the run waits for the timer that is due."""
    parked = state.parked
    retry = parked is not None and parked.reason == "timer" and parked.timer_id == timer_id
    return retry or any(APPROVAL_TIMER + a.request.approval_id == timer_id for a in state.pending_approvals)
