"""Slots: a limit on how many runs of an agent are driven at once, over all processes; the others wait in line.

A semaphore in the log. Its whole state, holders and line, is the last commit of a subject of its own, and every
change is appended under the condition of that commit's position. A decision that could rest on a stale read is
confirmed by such an append.

A slot is taken before the claim of a run without an owner, and given up when the run is over, parked or released. It
belongs to the run and not to the worker, so a takeover needs none: **a run with an owner in the log holds a slot**
(P10). The slot and the claim are two appends, in general in different shards. A crash between them leaves a slot
without an owner, never an owner without a slot.

A run in line needs no wake-up of its own. A holder that gives up its slot wakes the next run after its commit and
before it acknowledges its own wake-up, so a crash in between is redelivered and repeats it (W8). In case that holder
is dead or hangs, a run in line checks the slots once in `LOOK_AFTER_LEASES` leases: it fences holders without a
lease, and takes their slots. Runs that wait for each other's slots are found by `deadlocks`.

A tool's `slot` is a semaphore of one, held by a call instead of a run. Its holder has an owner all the time, so the
entry records the revision of the claim: a call of a later claim is a different holder.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal, Protocol

from ...eventlog.commits import Head
from ...eventlog.errors import LogCorrupted, LogUnavailable, RunGone
from ...eventlog.events import SlotHolder, SlotsUpdated, SlotWaiter
from ...eventlog.names import run_subject, slots_subject
from ...eventlog.ports import Log, Timer, Wakeup
from ...projections.run_state import RunState
from ...projections.slots import SlotEntry, is_waiting, left, next_in_line, with_taken, with_waiting, without
from ..core.commands import Claim, PreparationFailed, Release
from ..core.decide import take
from ..core.turn import Turn
from ..journal.journal import Journal, following
from ..journal.outages import REFUSALS_MAX, STALE_READ_S, Decisions, try_append
from ..journal.register import read_register, register_write
from ..journal.timers import wakeup_for
from .deadlocks import Search, calls_that_need

FRESH_CONFLICTS = 3
"""The conflicts without a pause: many processes write to the slots of one name at once."""
LOOK_AFTER_LEASES = 3
"""The time between two checks by a run in line, in leases."""
CYCLE_LEASES = 2
"""After this many leases without a change, a waiter searches for a deadlock."""
SLOT_TIMER = "slot"
PROVIDER_SLOTS = "limit:provider:"
"""The prefix of the names of slots that model calls hold."""


class SlotUser(Protocol):
    """A process that takes slots. `Host` implements it."""

    @property
    def log(self) -> Log:
        """The log that holds the slots."""
        ...

    @property
    def worker(self) -> str:
        """The name of the worker."""
        ...

    @property
    def build(self) -> str:
        """The operator's name for the code that it runs."""
        ...

    @property
    def lease_s(self) -> float:
        """The length of its leases, in seconds."""
        ...

    @property
    def slot_locks(self) -> dict[str, asyncio.Lock]:
        """One lock for each slots name: within one process, changes are made one after another."""
        ...


class WaitsForItself(Exception):
    """A call gives way in a deadlock: the holder of its slot waits for slots that this call's family holds."""


Taking = Literal["taken", "waits", "full", "stale"]
"""The result of a request for a slot; `full`: the line itself has no room left."""


async def calls_in_line(log: Log, state: RunState) -> dict[str, str]:
    """Return the slots that open calls of a run wait for, by call id. Raises `LogUnavailable`."""
    found: dict[str, str] = {}
    for call, slots in calls_that_need(state):
        _head, now = await read_slots(log, slots)
        if any((each.run, each.call) == (state.run, call) for each in now.waiting):
            found[call] = slots.partition(":")[2]
    return found


async def read_slots(log: Log, name: str) -> tuple[Head, SlotsUpdated]:
    """Return the slots of a name, and the head of their log. Raises `LogUnavailable`."""
    head, events = await read_register(log, slots_subject(name, log.events.shards))
    if not events:
        return head, SlotsUpdated(name=name)
    (event,) = [event for event in events if isinstance(event, SlotsUpdated)]
    return head, event


async def clear_slots(log: Log, name: str) -> tuple[str, ...]:
    """Remove the entries of runs that are over, and return those runs: without waiting runs nothing else removes them.

    That is the case for a limit that is no longer configured. Raises `LogUnavailable`.
    """
    async for _ in Decisions(log.clock, FRESH_CONFLICTS):
        head, now = await read_slots(log, name)
        entries: list[SlotHolder | SlotWaiter] = [*now.holders, *now.waiting]
        over = [each for each in entries if await _is_over(log, each)]
        if not over:
            return ()
        after = now
        for each in over:
            after = without(after, each, each.revision + 1)
        if await try_append(log, register_write(log, slots_subject(name, log.events.shards), head, after)):
            for waiter in next_in_line(after):
                if not (waiter.root or waiter.call):
                    await log.wakeups.send(_wakeup(waiter, name, head.rev + 1))
            return tuple(dict.fromkeys(each.run for each in over))
    raise LogUnavailable(f"the slots {name!r} change faster than they can be read; try again")


async def _is_over(log: Log, each: SlotHolder | SlotWaiter) -> bool:
    try:
        return (await Journal(log, run_subject(each.shard, each.root or each.run, each.run)).load()).over
    except RunGone:
        return True


class Slots:
    """One run's access to the slots of its agent, or one call's to those of its tool. Raises `LogUnavailable`."""

    def __init__(
        self,
        host: SlotUser,
        journal: Journal,
        name: str,
        runs_max: int,
        *,
        call: str = "",
        claimed_at: int = 0,
        shared: bool = False,
    ) -> None:
        """`call`: the call that needs the slot, of a run that was claimed at revision `claimed_at`.

        `shared`: the run needs further slots, and may leave this one before it is claimed.
        """
        self._host, self._log, self._journal, self._runs_max = host, host.log, journal, runs_max
        self._name = name
        self._call, self._claimed_at, self._shared = call, claimed_at, shared
        self._subject = slots_subject(self._name, host.log.events.shards)
        self._lock = host.slot_locks.setdefault(self._name, asyncio.Lock())
        self._position = 0
        """The position of the slots at the last decision."""
        self._seen = 0
        """The position that a read has to show at least, since the log has reported it."""

    @property
    def name(self) -> str:
        """The name of the slots."""
        return self._name

    @property
    def _of_models(self) -> bool:
        """Return whether the holders are model calls."""
        return self._name.startswith(PROVIDER_SLOTS)

    async def take(self, *, seen: int = 0, out_of_turn: bool = False) -> Taking:
        """Take a slot, or a place in line, for a run without an owner. `seen`: the revision that a read must show."""
        who = self._entry()
        async with self._lock:
            async for _ in Decisions(self._log.clock, FRESH_CONFLICTS):
                head, now = await self._read()
                self._position = head.position
                if head.rev < seen:
                    return "stale"
                after = with_taken(now, who, out_of_turn=out_of_turn)
                if after is not None:
                    if await self._store(head, after):
                        return "taken"
                    continue
                if is_waiting(now, who):
                    return "waits"
                after = with_waiting(now, who)
                if after is None:
                    return "full"
                if await self._store(head, after):
                    return "waits"
        raise self._too_fast()

    async def give_up(self) -> None:
        """Give up the slot or the place in line of a run without an owner, and wake the runs that may go on."""
        await self._without(self._entry(), self._journal.state.head.rev)

    async def leave(self) -> None:
        """Leave slot and line to others, unless another worker took the slot too: the run waits for other slots."""
        async with self._lock:
            async for _ in Decisions(self._log.clock, FRESH_CONFLICTS):
                head, now = await self._read()
                after = left(now, self._entry())
                if after == now:
                    return
                if await self._store(head, after):
                    break
            else:
                raise self._too_fast()
        await self._wake_next(after, head)

    async def give_back(self) -> None:
        """Give back the slot of a finished call. An entry of a later claim of its run stays."""
        await self._without(self._entry(), self._claimed_at + 1)

    async def until_taken(self) -> bool:
        """Wait in line within this process until a slot is taken; false if the run is closed, or has an owner.

        A slot that stays free for the length of a lease is taken out of turn. Raises `WaitsForItself` for a call that
        gives way in a deadlock.
        """
        out_of_turn, quiet = False, 0
        while not self._journal.state.closed and (self._call or self._journal.state.owner is None):
            if await self.take(out_of_turn=out_of_turn) == "taken":
                return True
            out_of_turn = not await self._change()
            quiet = quiet + 1 if out_of_turn else 0
            if out_of_turn:
                await self.look_after()
            if quiet >= CYCLE_LEASES:
                await self._give_way()
        return False

    async def _give_way(self) -> None:
        """Give way if this waits in a deadlock, and was submitted last of all that do.

        The search runs twice: if nothing moved in between, everything found was true at the same time. Model calls
        wait for nothing that another waiter holds.
        """
        if self._of_models:
            return
        first, again = Search(self._log, self._where), Search(self._log, self._where)
        stuck = await first.look(self._name)
        if not stuck or (max(stuck).run, max(stuck).call) != (self._journal.subject.id, self._call):
            return
        if await again.look(self._name) != stuck or again.positions != first.positions:
            return
        names = ", ".join(sorted({_shown(each.slots) for each in stuck}))
        why = f"deadlock: the holders of {_shown(self._name)} and this wait for slots of each other ({names})"
        message = f"{why}; raise concurrency.runs_max, share fewer slots, or break the circle"
        if self._call:
            raise WaitsForItself(message)
        await self._fail(message)

    async def _where(self, name: str) -> tuple[int, SlotsUpdated]:
        head, now = await read_slots(self._log, name)
        return head.position, now

    async def _fail(self, message: str) -> None:
        state = self._journal.state
        turn = Turn(state, self._journal.rules, self._log.clock.now())
        take(turn, Claim(self._host.worker, self._host.lease_s, self._host.build))
        take(turn, PreparationFailed(error_type="slot_cycle", message=message))
        await self._journal.store(turn.events, epoch=state.epoch)

    async def look_later(self) -> None:
        """Set the timer that has some worker check the slots this run waits for."""
        due_at = self._log.clock.now() + LOOK_AFTER_LEASES * self._host.lease_s
        wakeup = wakeup_for(self._journal, kind="timer", ref=SLOT_TIMER)
        await self._log.timers.set(Timer(id=SLOT_TIMER, due_at=due_at, wakeup=wakeup))

    async def look_after(self) -> None:
        """Free the slots of holders that no worker drives, and the places of waiters that no longer wait."""
        _head, now = await self._read()
        there: list[SlotHolder | SlotWaiter] = [*now.holders, *now.waiting]
        for each in there:
            if (each.run, each.call) != (self._journal.subject.id, self._call):
                await self._look_after(each)

    async def _look_after(self, each: SlotHolder | SlotWaiter) -> None:
        journal = Journal(self._log, run_subject(each.shard, each.root or each.run, each.run))
        try:
            state = await journal.load()
        except LogCorrupted:  # no worker can drive it
            await self._without(each, each.revision + 1)
            return
        if not state.exists:
            return
        if each.call:
            if await self._is_over(each, journal):
                await self._without(each, each.revision + 1)
            return
        waits = isinstance(each, SlotWaiter) and not state.over
        if waits or await self._is_driven(journal):
            return
        stays = not state.over and (state.owner is not None or state.head.rev <= each.revision)
        if not stays or await self._fence(journal):
            await self._without(each, journal.state.head.rev)

    async def _is_over(self, each: SlotHolder | SlotWaiter, journal: Journal) -> bool:
        """Return whether the call is over, or no worker runs it; a worker that may still believe so is fenced."""
        state = journal.state
        if state.owner is None or state.over:
            return True
        if self._of_models:
            asked = state.model
            now = model_call(state.step, asked.attempt, asked.phase) if asked.requested else ""
            if each.call != now or each.revision < state.owner_revision:  # of an earlier claim
                return True
        else:
            call = state.calls.get(each.call) or state.planning.calls.get(each.call)
            if call is None or call.result is not None:
                return True
        if await self._is_driven(journal):
            return False
        return isinstance(each, SlotWaiter) or await self._fence(journal)

    async def _is_driven(self, journal: Journal) -> bool:
        """Return whether a live lease covers the run: the driver of the root drives all runs below it (W19)."""
        subject, root = journal.subject, journal.state
        if root.owner is None:
            return False
        if subject.id != subject.root:
            root = await Journal(self._log, run_subject(subject.shard, subject.root, subject.root)).load()
        return root.owner is not None and await self._log.leases.live(root.run, root.owner, root.epoch)

    async def _fence(self, journal: Journal) -> bool:
        """End the epoch of a run whose owner is dead or hangs, so that it needs a slot again. False: a conflict."""
        turn = Turn(journal.state, journal.rules, self._log.clock.now())
        take(turn, Claim(self._host.worker, self._host.lease_s, self._host.build))
        take(turn, Release("its slot was given to another run"))
        if not await journal.store(turn.events, epoch=journal.state.epoch):
            return False
        if journal.subject.id == journal.subject.root:  # a run below is driven by the driver of its root
            await self._log.wakeups.send(wakeup_for(journal))
        return True

    # --- the log ----------------------------------------------------------------------------------------------------

    def _entry(self) -> SlotWaiter:
        state, subject = self._journal.state, self._journal.subject
        call = state.calls.get(self._call) or state.planning.calls.get(self._call)
        return SlotWaiter(
            run=subject.id,
            shard=subject.shard,
            root="" if subject.root == subject.id else subject.root,
            call=self._call,
            revision=self._claimed_at if self._call else state.head.rev,
            agent=state.served_as,
            runs_max=self._runs_max,
            submitted_at=state.submitted_at,
            since=self._log.clock.now(),
            tool=call.name if call is not None else "",
            worker=self._host.worker if self._shared else "",
            priority=state.priority,
        )

    async def _without(self, who: SlotEntry, revision: int) -> None:
        async with self._lock:
            async for _ in Decisions(self._log.clock, FRESH_CONFLICTS):
                head, now = await self._read()
                after = without(now, who, revision)
                if await self._store(head, after):  # even if nothing changes: the read may have been stale
                    break
            else:
                raise self._too_fast()
        await self._wake_next(after, head)

    async def _wake_next(self, after: SlotsUpdated, head: Head) -> None:
        for waiter in next_in_line(after):
            if not (waiter.root or waiter.call):  # those wait in the process that drives the family
                await self._log.wakeups.send(_wakeup(waiter, after.name, head.rev + 1))

    async def _change(self) -> bool:
        """Wait until the slots or the run change; return whether they did within the length of a lease."""
        async with following(self._log, self._subject, self._position) as commits:
            news: list[asyncio.Future[Any]] = [asyncio.ensure_future(anext(commits))]
            if not self._call:  # of a call, the driver follows the run already
                news.append(asyncio.create_task(self._journal.wait_for_news()))
            try:
                done, _ = await asyncio.wait(
                    news, timeout=self._host.lease_s, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                for each in news:
                    each.cancel()
                await asyncio.gather(*news, return_exceptions=True)
        if news[0] in done:
            self._seen = news[0].result().position
        return bool(done)

    async def _read(self) -> tuple[Head, SlotsUpdated]:
        """Return the slots, from a read that is not older than what the log has already reported."""
        for _ in range(REFUSALS_MAX):
            head, now = await read_slots(self._log, self._name)
            if head.position >= self._seen:
                return head, now
            await self._log.clock.sleep(STALE_READ_S)
        raise LogUnavailable(
            f"the slots {self._name!r} cannot be read up to their last known position; try again"
        )

    async def _store(self, head: Head, event: SlotsUpdated) -> bool:
        return await try_append(self._log, register_write(self._log, self._subject, head, event))

    def _too_fast(self) -> LogUnavailable:
        return LogUnavailable(f"the slots {self._name!r} change faster than they can be read; try again")


def model_call(step: int, attempt: int, phase: str) -> str:
    """Return the name of a model call as the holder of a slot."""
    return f"model:{step}:{attempt}{':' if phase else ''}{phase}"


def _shown(slots: str) -> str:
    """Return the name of slots for a message."""
    kind, _, name = slots.partition(":")
    return f"{'agent' if kind == 'agent' else 'slot'} {name!r}"


def _wakeup(waiter: SlotWaiter, slots: str, revision: int) -> Wakeup:
    """Return the wake-up for a run whose turn it is; a worker must have read the slots up to this revision."""
    return Wakeup(
        shard=waiter.shard,
        agent=waiter.agent,
        root=waiter.root or waiter.run,
        run=waiter.run,
        cause=waiter.revision,
        slots_cause=revision,
        slots=slots,
        priority=waiter.priority,
    )
