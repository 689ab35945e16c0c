"""A worker: takes wake-ups from a shared consumer, judges each by W10 to W15, claims runs and drives them.

A wake-up is an obligation, never data: it says that a run may have something to do, and the log says what. The worker
reads the run at least up to the wake-up's cause (`_loaded`, W10), and then does the first that applies:

    the read is too old                   redeliver later
    the run is not runnable               set the timers that its state owes, acknowledge (W12)
    another run heads its lane            acknowledge: the end of that run wakes this one (W6)
    another worker drives it              redeliver later (W13)
    this process lacks its tools          redeliver later, for another worker
    all slots of its agent are taken      acknowledge: a holder that gives its slot up wakes it
    otherwise                             claim it (W14), and drive it until it rests

It acknowledges only after the run's state cannot need this wake-up any more (W15). A worker that is fenced, shuts down
or fails leaves the wake-up to be redelivered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from ...eventlog.errors import KeyErased, KeyMissing, LogCorrupted, LogUnavailable, RunGone
from ...eventlog.names import run_subject
from ...eventlog.ports import Announce, Delivery, Lease, Log, Presence, Wakeup
from ...projections.run_state import RunState
from ..core.commands import Command, Leave, TimerDue
from ..core.decide import take
from ..core.model_calls import BUDGET_TIMER
from ..core.parking import is_parked_on_child
from ..core.submission import CHILD
from ..core.timers import open_timers
from ..core.turn import Turn
from ..driving.driver import Driver
from ..driving.heartbeat import LeaseKeeper
from ..driving.host import Ending, Host
from ..journal.cancel import cancel_family, see_cancel_through
from ..journal.family import family_of, ready_below, set_timers_below, waiting_below
from ..journal.journal import Journal
from ..journal.lanes import at_head_of_lane
from ..journal.outages import through_outages
from ..journal.redelivery import redeliver
from ..journal.timers import owed_timers, set_timers
from ..shared.log_ids import Ids, at_work, done_with
from ..shared.run_slots import give_up, slots_of
from ..shared.slots import SLOT_TIMER
from ..shared.spending import resume_if_left
from ..triggers.firing import Firing
from .lacking import lacking
from .rolling_back import on_workers
from .starting import WorkerStarter

if TYPE_CHECKING:
    from ..triggers.event_hooks import EventHook
    from .stored import StoredServing

logger = logging.getLogger("foldlog.worker")

BUSY_DELAY_MAX_S = 1.0
BUDGET_LOOKS_S = (0.0, 30.0, 300.0, 1800.0)
"""The times between the looks of a worker at runs that wait for a budget, for as long as others may be restarted."""
EARLY_S = 0.001
"""The wait before a second read of a run whose wake-up came before its commit, which follows right after it."""
STALE_DELAY_S = 0.1
ORPHAN_ATTEMPTS_MAX = 30
"""A wake-up is dropped if its run has not appeared after so many deliveries (about a minute): its submission failed."""
LEFT_DELAY_MAX_S = 10.0
"""The longest delay before a run is offered again to a worker that cannot drive it: one that can may have started."""
LEFT_LOOKS = 6
"""After so many offers (three seconds in all) without a worker to take the run, its log records what is missing."""
CORRUPT_DELAY_S = 30.0
FULL_DELAY_S = 2.0
"""The delay for a run that finds no place in line."""
RELEASE_S_MIN, RELEASE_S_MAX = 1.0, 5.0
"""Bounds of the time that a leaving worker waits for its releases: half of its grace time."""
PARK_AFTER_S = 5.0
"""The time after which a family that only waits for persons or timers frees its place in the worker."""

T = TypeVar("T")

Settlement = tuple[Literal["ack", "nak"], float]
"""The settlement of a wake-up: acknowledged, or redelivered after so many seconds."""


SLOT_SETTLEMENTS: Mapping[str, Settlement] = {
    "waits": ("ack", 0.0),
    "full": ("nak", FULL_DELAY_S),
    "stale": ("nak", STALE_DELAY_S),
}


class Worker:
    """One worker process: serves its registry's agents, with at most `concurrency` runs at a time.

    With `stored`, also stored agents, as soon as they are saved, as far as the registry has what they name.
    """

    def __init__(
        self,
        host: Host,
        *,
        concurrency: int = 100,
        grace_s: float = 30.0,
        park_after_s: float | None = PARK_AFTER_S,
        hooks: Sequence[EventHook] = (),
        stored: bool = False,
    ) -> None:
        host = msgspec.structs.replace(host, park_after_s=park_after_s, roll_back=on_workers(host))
        self._host, self._log = host, host.log
        self._keeper = LeaseKeeper(host)
        self._schedules = Firing(host.log, WorkerStarter(host))
        self._stored = _stored_serving(host) if stored else None
        self._hooks = _followed(host, hooks, self._stored)
        self._room, self._concurrency, self._grace_s = asyncio.Semaphore(concurrency), concurrency, grace_s
        self._handling: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._pulling = False

    @property
    def log(self) -> Log:
        """The log that it serves."""
        return self._log

    @property
    def is_serving(self) -> bool:
        """Return whether it takes wake-ups: it has started, and `stop` was not called."""
        return self._pulling and not self._stopping.is_set()

    def stop(self) -> None:
        """Drain: take no new wake-ups, finish what can be finished within the grace time, release the rest."""
        self._stopping.set()

    async def serve(self, begun: Callable[[], object] = lambda: None) -> None:
        """Work until `stop` is called and the worker is drained. Survives outages of the log.

        `begun` is called once others see it. If cancelled, its runs go back as they are, and running calls are cut off.
        """
        agents = frozenset(self._host.registry.agents)
        leases, stored, here = self._log.leases, self._stored, self._host.presence(agents, self._concurrency)
        told = here if stored is None else stored.announced(here)
        async with leases.presence(told) as announce, leases.deaths() as deaths:
            redelivering = asyncio.create_task(self._redeliver(deaths))
            following, taking = [asyncio.create_task(self._hooks())], list[asyncio.Task[None]]()
            if self._host.budgets:
                following.append(asyncio.create_task(_wake_for_budgets(self._log)))
            try:
                async with self._log.wakeups.pull(agents) as deliveries:
                    if stored is not None:
                        taking.append(asyncio.create_task(stored.follow(here, deliveries, announce)))
                    self._pulling = True
                    begun()
                    await self._receive(deliveries)
                    await _cancelled(taking)
                    told = here if stored is None else stored.announced(here)
                    following.append(asyncio.create_task(_told_to_drain(announce, told)))
                    await self._drain()
            finally:
                await _cancelled([redelivering, *following, *taking, *self._handling])
                await self._keeper.aclose()

    async def _receive(self, deliveries: AsyncIterator[Delivery]) -> None:
        while await _unless(self._stopping, self._room.acquire()):
            delivery = await _unless(self._stopping, anext(deliveries))
            if delivery is None:
                return
            task = asyncio.create_task(self._handle(delivery))
            self._handling.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._handling.discard(task)
        self._room.release()

    async def _drain(self) -> None:
        """Let runs finish for most of the grace time, then release the remaining ones."""
        release_s = min(RELEASE_S_MAX, max(RELEASE_S_MIN, self._grace_s / 2))
        await self._handled(max(0.0, self._grace_s - release_s))
        for driver in self._keeper.drivers:
            driver.release_soon("its worker is shutting down")
        await self._handled(release_s)

    async def _handled(self, timeout_s: float) -> None:
        if self._handling:
            await asyncio.wait(set(self._handling), timeout=timeout_s)

    async def _redeliver(self, deaths: AsyncIterator[Lease]) -> None:
        """Redeliver the wake-ups of dead workers at once; the normal claim does the rest."""
        async for lease in deaths:
            with contextlib.suppress(LogUnavailable):
                await redeliver(self._log, lease)

    # --- one wake-up (W10 to W15) ---------------------------------------------------------------------------

    async def _handle(self, delivery: Delivery) -> None:
        at_work({"run": delivery.wakeup.run})
        try:
            settled, delay_s = await _or_buried(self._log, delivery.wakeup, self._judge(delivery))
            if settled == "ack":
                await self._log.wakeups.ack(delivery.token)
            else:
                await self._log.wakeups.nak(delivery.token, delay_s)
        except (LogUnavailable, KeyMissing) as error:
            logger.warning("wake-up of run %s: %s; it will be delivered again", delivery.wakeup.run, error)
        except asyncio.CancelledError:
            with contextlib.suppress(LogUnavailable):  # so that others need not wait for the redelivery
                await self._log.wakeups.nak(delivery.token)
            raise
        except Exception:
            logger.exception(
                "wake-up of run %s: a bug stopped its driver; it will be delivered again", delivery.wakeup.run
            )

    async def _judge(self, delivery: Delivery) -> Settlement:
        """Handle one wake-up by W10 to W15; it is acknowledged only when nothing is left to do for the run."""
        wakeup = delivery.wakeup
        if wakeup.kind == "schedule":
            return await self._schedules.judge(delivery)
        subject = run_subject(wakeup.shard, wakeup.root, wakeup.run)
        journal = Journal(self._log, subject, wait_for_log=True)
        new = delivery.attempt == 1 and wakeup.cause < self._host.snapshot_events
        while True:
            try:
                woken = journal
                journal, settlement = await self._loaded(journal, delivery, short=new)
            except (LogCorrupted, KeyMissing) as error:
                logger.warning("left to another worker: %s", error)
                return "nak", CORRUPT_DELAY_S
            if settlement is not None:
                return settlement
            if journal.state.cancelling:
                await see_cancel_through(journal)
                continue
            below = await waiting_below(journal, woken.state.head.position)
            if any([await resume_if_left(self._host, each) for each in (journal, *below.values())]):  # W65
                return "ack", 0.0  # its own wake-up follows
            cause = self._cause(journal, wakeup, below)
            if not journal.state.runnable and cause is None:
                return await self._not_runnable(journal, below)
            waits = await self._its_turn(journal, delivery)
            if waits is not None:
                return waits
            ending = await self._drive(delivery, journal, cause)
            if ending is None or is_parked_on_child(journal.state):
                continue  # a conflict, or a run below may have become ready meanwhile
            return await self._rested(journal, ending)

    async def _not_runnable(self, journal: Journal, below: Mapping[str, Journal]) -> Settlement:
        """Set owed timers and give slots up: the worker that parked the run may have died before that (W12)."""
        await set_timers_below(journal, below)
        state = journal.state
        await give_up(self._host, journal, below=state.over and state.child_count > 0)
        return "ack", 0.0

    async def _its_turn(self, journal: Journal, delivery: Delivery) -> Settlement | None:
        """Return null if the run is to be driven here and now; else how the wake-up is settled."""
        turn_of_lane = await self._lane(journal, delivery.wakeup)
        if turn_of_lane is None:
            return "nak", STALE_DELAY_S
        if not turn_of_lane:
            return "ack", 0.0
        return await self._left_to_others(journal, delivery) or await self._in_line(journal, delivery.wakeup)

    async def _in_line(self, journal: Journal, wakeup: Wakeup) -> Settlement | None:
        """Return null if the run has a slot, as each run with an owner has; else it waits in line."""
        slots = slots_of(self._host, journal) if journal.state.owner is None else None
        if slots is None:
            return None
        taking = await slots.take(wakeup)
        if taking != "taken" and wakeup.ref == SLOT_TIMER:
            await slots.look_after()
            taking = await slots.take()
        if taking == "waits":
            await slots.look_later()
        return None if taking == "taken" else SLOT_SETTLEMENTS[taking]

    async def _rested(self, journal: Journal, ending: Ending) -> Settlement:
        """Settle the wake-up of a run that this worker has stopped driving (W15)."""
        if ending in {"over", "parked"}:
            await set_timers(self._log, journal)
            return "ack", 0.0
        return "nak", 0.0 if ending == "released" else STALE_DELAY_S

    async def _loaded(
        self, journal: Journal, delivery: Delivery, *, short: bool
    ) -> tuple[Journal, Settlement | None]:
        """Return the run to judge, the woken one or its root; with a settlement if there is one already."""
        state = await journal.load(short=short)
        if not state.exists and delivery.attempt == 1:
            await self._log.clock.sleep(EARLY_S)
            state = await journal.load(short=short)
        settlement = self._unjudgeable(journal, delivery)
        is_child = state.submitted is not None and state.submitted.executor == CHILD
        if settlement is None and is_child and not state.cancelling:
            return await self._root_of(journal, delivery.wakeup)
        return journal, settlement

    def _unjudgeable(self, journal: Journal, delivery: Delivery) -> Settlement | None:
        """Settle a wake-up if this read of its run is too old (W10), or has events of a newer version."""
        state = journal.state
        of_this_run = journal.subject.id == delivery.wakeup.run
        if not state.exists and delivery.attempt > ORPHAN_ATTEMPTS_MAX:
            return "ack", 0.0
        if not state.exists or (of_this_run and state.head.rev < delivery.wakeup.cause):
            return "nak", min(2.0, STALE_DELAY_S * delivery.attempt)
        if state.unknown_type is not None and not state.over:
            logger.warning(
                "run %s has an event %r of a newer version: left to another worker",
                state.run,
                state.unknown_type,
            )
            return "nak", CORRUPT_DELAY_S
        return None

    async def _root_of(self, child: Journal, wakeup: Wakeup) -> tuple[Journal, Settlement | None]:
        """Return the root of the woken run: its driver drives all runs below it (W19).

        The root has a wake-up or watch of its own, unless it is parked on a child, or was woken by one.
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
        """Return the outside event that woke the run, as a command for its claim (W11); None if it is moot."""
        state = journal.state
        if state.over:
            return None
        if wakeup.kind == "timer" and wakeup.run == state.run and _is_due(state, wakeup.ref):
            return TimerDue(wakeup.ref)
        return self._late(journal) or ready_below(journal, below)

    def _late(self, journal: Journal) -> TimerDue | None:
        """Return an overdue timer of a run with slots: its wake-up may have been spent on a place in line."""
        now = self._log.clock.now()
        waited = slots_of(self._host, journal) is not None
        late = [timer.id for timer in owed_timers(journal) if waited and timer.due_at <= now]
        return TimerDue(late[0]) if late else None

    async def _is_driven(self, state: RunState) -> bool:
        """Return whether a live lease covers the run, or this process drives it, even if its heartbeat is late."""
        if self._keeper.drives(state.run, state.epoch):
            return True
        return state.owner is not None and await self._log.leases.live(state.run, state.owner, state.epoch)

    async def _left_to_others(self, journal: Journal, delivery: Delivery) -> Settlement | None:
        """Leave the run to another worker while one drives it (W13), or while this process lacks its tools."""
        if await self._is_driven(journal.state):
            return "nak", min(BUSY_DELAY_MAX_S, self._host.lease_s, 0.05 * 2 ** min(delivery.attempt, 6))
        reason = await lacking(self._host, journal)
        if reason is None:
            return None
        logger.info("run %s is left to another worker: %s", journal.state.run, reason)
        if delivery.attempt >= LEFT_LOOKS:
            await self._record_lack(journal, reason)
        return "nak", min(LEFT_DELAY_MAX_S, 0.05 * 2 ** min(delivery.attempt, 8))

    async def _record_lack(self, journal: Journal, reason: str) -> None:
        """Record once in the log what is missing here; after a conflict, that is left to the next delivery."""
        turn = Turn(journal.state, journal.rules, self._log.clock.now())
        take(turn, Leave(self._host.worker, reason))
        if turn.events and await journal.store(turn.events, epoch=0):
            logger.warning("run %s waits for another worker: %s", journal.state.run, reason)

    async def _lane(self, journal: Journal, wakeup: Wakeup) -> bool | None:
        submitted = journal.state.submitted
        if submitted is None or submitted.lane is None or journal.state.epoch > 0:
            return True  # a claimed run stays at the head of its lane until it is over
        return await at_head_of_lane(self._log, submitted.lane, journal.subject.id, wakeup.lane_cause)

    async def _drive(self, delivery: Delivery, journal: Journal, cause: Command | None) -> Ending | None:
        """Claim and drive the run; None after a conflict (back to W10)."""
        driver = Driver(self._host, journal)
        at_work(driver.ids)
        causes = [cause] if cause is not None else []
        # The heartbeats begin before the claim: no stored claim is without a lease.
        async with self._keeper.beat_for(driver, delivery.token):
            before, left_at = journal.state.owner, _left_at(journal.state)
            if not await driver.claim(*causes):
                return None
            _log_claim(driver, before, left_at)
            ending = await driver.drive()
        if ending != "fenced":
            await give_up(self._host, journal, below=driver.slots_below)
        state = driver.state
        logger.info("run %s of %s: %s", state.run, state.agent, state.status if ending == "over" else ending)
        return ending


def _left_at(state: RunState) -> Ids:
    """Return where a run stands that its owner left: its step, and the calls without a result, joined by commas."""
    if state.owner is None:
        return {}
    calls = ",".join(call.id for call in state.calls.values() if call.result is None)
    return ({"step": state.step} if state.step else {}) | ({"call": calls} if calls else {})


def _log_claim(driver: Driver, before: str | None, left_at: Ids) -> None:
    state, from_whom = driver.state, "" if before is None else f", taken over from {before}"
    ids = at_work(left_at)
    logger.info("run %s of %s: claimed, epoch %d%s", state.run, state.agent, driver.epoch, from_whom)
    done_with(ids)


async def _unless(stopping: asyncio.Event, waiting: Awaitable[T]) -> T | None:
    """Return the result; None, and the waiting is cancelled, once the worker is to stop."""
    future, stopped = asyncio.ensure_future(waiting), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({future, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return future.result() if future.done() else None
    finally:
        future.cancel()
        stopped.cancel()
        await asyncio.gather(future, stopped, return_exceptions=True)


async def _cancelled(tasks: Collection[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _wake_for_budgets(log: Log) -> None:
    """Wake the runs that wait for a budget: a worker that starts may know a larger amount (W65).

    It does so again after some time, for those that workers with the old amount have parked meanwhile.
    """

    async def wake() -> None:
        async for wakeup in log.timers.named(BUDGET_TIMER):
            await log.wakeups.send(msgspec.structs.replace(wakeup, kind="wake", ref=""))

    for delay_s in BUDGET_LOOKS_S:
        await log.clock.sleep(delay_s)
        await through_outages(log.clock, wake)


async def _told_to_drain(announce: Announce, worker: Presence) -> None:
    """Announce that the worker drains, for those who look at it; it drains also if nobody hears that."""
    with contextlib.suppress(LogUnavailable):
        await announce(msgspec.structs.replace(worker, draining=True))


def _stored_serving(host: Host) -> StoredServing:
    from .stored import StoredServing

    return StoredServing(host)


def _is_due(state: RunState, timer_id: str) -> bool:
    """Return whether the run waits for this timer."""
    return any(timer_id == each for each, _ in open_timers(state))


async def _or_buried(log: Log, wakeup: Wakeup, judging: Awaitable[Settlement]) -> Settlement:
    """Return the settlement; the wake-up of a run that turns out to be buried is for the rest of its burial (W49).

    A run whose key was erased cannot go on, and is cancelled (W59).
    """
    try:
        return await judging
    except KeyErased as erased:
        root = run_subject(wakeup.shard, wakeup.root, wakeup.root)
        if await cancel_family(log, root, "the key of its content was erased", erased.by) == "cancelled":
            logger.warning("run %s was open, and is cancelled: %s", wakeup.root, erased)
        return "ack", 0.0
    except RunGone:
        from ..burying.bury import see_burial_through

        await see_burial_through(log, wakeup)
        return "ack", 0.0


def _followed(
    host: Host, hooks: Sequence[EventHook], stored: StoredServing | None
) -> Callable[[], Coroutine[Any, Any, None]]:
    """Return what follows the hooks whose agents this process serves, or will serve. Raises `ConfigError`."""

    async def nothing() -> None:
        """Follow nothing: most workers have no hooks."""

    if not hooks:
        return nothing
    from ..triggers.event_hooks import HookFollower, checked_hooks

    every = checked_hooks(hooks)
    served = [ready for ready in every if ready.hook.agent in host.registry.agents]
    later = [ready for ready in every if ready not in served] if stored is not None else []

    async def follow(ready: Any) -> None:
        if stored is not None:
            await stored.until_served(ready.hook.agent)
        await HookFollower(host.log, WorkerStarter(host), [ready]).run()

    async def follow_all() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(HookFollower(host.log, WorkerStarter(host), served).run())
            for ready in later:
                group.create_task(follow(ready))

    return follow_all
