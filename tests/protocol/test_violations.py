"""The violations table of the run protocol: each rule holds on a shortest schedule, and is needed there.

A row is a schedule, the rule that it needs, how to take exactly that rule out of the code, and the property (P1 to P9
of the protocol's model) that breaks then. Rows are numbered as in the table; letters are variants of one row.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from foldlog.eventlog.commits import head_of, verify
from foldlog.eventlog.errors import RunFinished
from foldlog.eventlog.events import MessageQueued, ParentLink, Parked
from foldlog.eventlog.faults import CrashAt, Delay, Fault, LateAppend, LostAck, StaleRead
from foldlog.eventlog.memory.events import MemoryEvents
from foldlog.eventlog.memory.wakeups import MemoryWakeups
from foldlog.eventlog.ports import Subject, Timer, Wakeup, WakeWrite
from foldlog.projections import fold
from foldlog.replay.simulation import Job, Stuck, TooLong, World, run_simulated
from foldlog.replay.simulation.cast import an_agent, arrival, calls, gate, says
from foldlog.replay.simulation.playing import submit
from foldlog.replay.simulation.process import LEASE_S
from foldlog.replay.simulation.properties import violations
from foldlog.replay.simulation.scenarios import lane, pure, unsafe
from foldlog.replay.simulation.scenarios import retry as parked_retry
from foldlog.runtime.core import tool_calls as calls_module
from foldlog.runtime.core.submission import CHILD, submitted_event
from foldlog.runtime.driving import driver, heartbeat, preparation
from foldlog.runtime.driving.children import ChildRuns
from foldlog.runtime.driving.driver import Driver
from foldlog.runtime.executors import local
from foldlog.runtime.executors import worker as worker_module
from foldlog.runtime.executors.durable import DurableExecutor
from foldlog.runtime.executors.worker import Worker
from foldlog.runtime.journal import cancel
from foldlog.runtime.journal.journal import Journal
from foldlog.runtime.journal.open_run import open_turn

from tests.protocol.steer import Steer

Schedule = Callable[[World], Awaitable[list[str] | None]]
Mutation = Callable[[pytest.MonkeyPatch], None]
PATIENCE_S = 600.0


class Row(msgspec.Struct, frozen=True):
    """A row of the table."""

    id: str
    without: str
    rule: str
    breaks: str
    schedule: Schedule
    mutation: Mutation


ROWS: list[Row] = []


def row(
    number: str, without: str, rule: str, breaks: str, mutation: Mutation
) -> Callable[[Schedule], Schedule]:
    """Add a schedule to the table."""

    def add(schedule: Schedule) -> Schedule:
        ROWS.append(Row(number, without, rule, breaks, schedule, mutation))
        return schedule

    return add


def found_in(schedule: Schedule) -> list[str]:
    """The properties that break on the schedule. Going round in circles for ever is a lost run."""

    async def main() -> list[str]:
        world = World(snapshot_events=0)  # schedules say at which read something happens
        told = await schedule(world)
        await world.settle(PATIENCE_S)
        await asyncio.sleep(3 * LEASE_S)  # what was late or stalled has its say
        return [*(told or []), *violations(world)]

    try:
        return run_simulated(main, steps_max=40_000)
    except (TooLong, Stuck) as error:
        return [f"P3 lost run: {error}"]


# --- helpers of schedules -----------------------------------------------------------------------------------


def waiting(world: World, name: str = "gate") -> Job:
    """Start a run whose tool waits at a gate, on any worker."""
    return Job(an_agent(world, "waiting", calls(("wait", {"for_": name})), says("done")), "question")


def asking(world: World) -> Job:
    """A run that parks for an approval."""
    replies = calls(("deploy", {"to": "a"})), says("done")
    return Job(an_agent(world, "asking", *replies, hitl_tools=["deploy"]), "question")


def parent(world: World) -> Job:
    """A run with a child whose tool waits at a gate."""
    an_agent(world, "inner", calls(("wait", {"for_": "gate"})), says("inner answer"))
    return Job(an_agent(world, "parent", calls(("delegate", {"to": "inner"})), says("done")), "question")


async def approve(world: World, who: Any = None) -> None:
    """Approve what is asked."""
    requests = [e for run in world.runs() for e in world.events_of(run) if e.type == "approval_requested"]
    runtime = world.people() if who is None else who
    await runtime.get_run(world.runs()[0]).resolve(requests[-1].approval_id, "approved")


async def parked(world: World) -> int:
    """Wait until a run is parked and its wake-up acknowledged; the log's last position then."""
    await world.until_stored("parked")
    await asyncio.sleep(0.3)
    return max(stored.position for stored, _ in world.commits())


# --- 1 ------------------------------------------------------------------------------------------------------


def no_condition(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryEvents, "_check", lambda *_: None)


@row("1a", "unconditioned append, another claimed", "W1", "P5", no_condition)
async def zombie_commits(world: World) -> None:
    steer = Steer(Delay(2, delay_s=30.0))
    job = waiting(world)
    w0 = world.worker("w0", steer)
    await submit(world.process("caller"), [job], "durable")
    await world.until_stored("claimed")
    steer.stall(30.0)
    world.worker("w1")
    await asyncio.sleep(35.0)
    assert not w0.dead.is_set()
    gate(world, "gate").set()


@row("1b", "unconditioned append, cancelled", "W1", "P2", no_condition)
async def cancel_before_a_commit(world: World) -> None:
    world.worker("w0", Steer(Delay(2, delay_s=2.0)))
    await submit(world.process("caller"), pure(world), "durable")
    await asyncio.sleep(1.0)
    await world.people().get_run(world.runs()[0]).cancel()


# --- 2, 3 ---------------------------------------------------------------------------------------------------


def commit_then_wakeup(patch: pytest.MonkeyPatch) -> None:
    async def submit_in_two_steps(
        self: Any, journal: Journal, events: Any, wakeup: Wakeup, append: str
    ) -> bool:
        stored = await journal.store(events, epoch=0, append=append)
        await self._host.log.wakeups.send(wakeup)
        return stored

    patch.setattr(DurableExecutor, "_submit_pipelined", submit_in_two_steps)


def submitter_dies(number: int, *, after: bool) -> Schedule:
    async def schedule(world: World) -> None:
        world.worker("w0")
        await submit(world.process("caller", [CrashAt(number, after=after)]), pure(world), "durable")

    return schedule


for _number in (1, 2):
    for _after in (False, True):
        _breaks = "P3" if (_number, _after) in {(1, True), (2, False)} else ""
        row(
            f"2{'abcd'[_number * 2 - 2 + _after]}",
            f"submit: commit, then wake-up ({'behind' if _after else 'before'} operation {_number})",
            "W5",
            _breaks,
            commit_then_wakeup,
        )(submitter_dies(_number, after=_after))


def judge_anything(patch: pytest.MonkeyPatch) -> None:
    real = Worker._unjudgeable

    def unjudgeable(self: Worker, state: Any, delivery: Any) -> Any:
        return real(self, state, delivery) if state.exists else None

    patch.setattr(Worker, "_unjudgeable", unjudgeable)


@row("3", "submit: wake-up, then commit, acked early", "W10", "P3", judge_anything)
async def early_wakeup(world: World) -> None:
    world.worker("w0")
    await submit(world.process("caller", [Delay(1, delay_s=2.0)]), pure(world), "durable")


# --- 4, 5, 6 ------------------------------------------------------------------------------------------------


def wakeup_behind_commit(patch: pytest.MonkeyPatch) -> None:
    real = Journal.store

    async def store(self: Journal, events: Any, *, epoch: int, extra: Any = (), append: Any = None) -> bool:
        rest = [write for write in extra if not isinstance(write, WakeWrite)]
        stored = await real(self, events, epoch=epoch, extra=rest, append=append)
        for write in extra if stored else ():
            if isinstance(write, WakeWrite):
                await self.log.wakeups.send(write.wakeup)
        return stored

    patch.setattr(Journal, "store", store)


@row("4", "approve: commit, then wake-up", "W5", "P3", wakeup_behind_commit)
async def approver_dies(world: World) -> None:
    world.worker("w0")
    await submit(world.process("caller"), [asking(world)], "durable")
    await parked(world)
    approver = world.process("approver", [CrashAt(1, "events.append", after=True)])
    await approver.does(approve(world, approver.runtime()))


def any_read_will_do(patch: pytest.MonkeyPatch) -> None:
    real = Worker._unjudgeable

    def unjudgeable(self: Worker, state: Any, delivery: Any) -> Any:
        uncaused = msgspec.structs.replace(delivery.wakeup, cause=0)
        return real(self, state, msgspec.structs.replace(delivery, wakeup=uncaused))

    patch.setattr(Worker, "_unjudgeable", unjudgeable)


@row("5a", "stale read of the run may ack", "W10", "P3", any_read_will_do)
async def stale_read_of_a_run(world: World) -> None:
    steer = Steer()
    w0 = world.worker("w0", steer)
    await submit(world.process("caller"), [asking(world)], "durable")
    steer.once["events.read"] = StaleRead(0, position=await parked(world))
    await approve(world)
    await asyncio.sleep(2.0)
    await w0.handle.release()


def any_read_of_the_lane_will_do(patch: pytest.MonkeyPatch) -> None:
    real = worker_module.at_head_of_lane
    patch.setattr(worker_module, "at_head_of_lane", lambda log, lane, run, _cause: real(log, lane, run, 0))


@row("5b", "stale read of the lane may ack", "W10", "P3", any_read_of_the_lane_will_do)
async def stale_read_of_a_lane(world: World) -> None:
    steer = Steer()
    job = waiting(world)
    w0 = world.worker("w0", steer)
    jobs = [Job(job.agent, f"question {n}", {"session": "talk"}) for n in range(2)]
    await submit(world.process("caller"), jobs, "durable")
    await arrival(world, "gate").wait()
    position = max(stored.position for stored, _ in world.commits() if stored.subject.kind == "lane")
    steer.once["events.head"] = StaleRead(0, "events.head", position)
    await world.people().get_run(world.runs()[0]).cancel()
    await asyncio.sleep(2.0)
    await w0.handle.release()
    gate(world, "gate").set()


def wakeups_deduplicated(patch: pytest.MonkeyPatch) -> None:
    real = MemoryWakeups.put

    def put(self: MemoryWakeups, wakeup: Wakeup) -> int:
        if any(message.wakeup.run == wakeup.run for message in self._messages.values()):
            return self._positions.next(wakeup.shard)
        return real(self, wakeup)

    patch.setattr(MemoryWakeups, "put", put)


@row("6", "wake-up deduplicated against an unacked older one", "W9", "P3", wakeups_deduplicated)
async def approved_before_the_parker_acks(world: World) -> None:
    world.worker("w0", Steer(Delay(1, "wakeups.ack", 2.0)))
    await submit(world.process("caller"), [asking(world)], "durable")
    await parked(world)
    await approve(world)


# --- 7, 8 ---------------------------------------------------------------------------------------------------


def ack_when_busy(patch: pytest.MonkeyPatch) -> None:
    driven, judge = Worker._is_driven, Worker._judge
    busy: set[str] = set()

    async def is_driven(self: Worker, state: Any) -> bool:
        found = await driven(self, state)
        if found:
            busy.add(self._host.worker)
        return found

    async def acks(self: Worker, delivery: Any) -> Any:
        busy.discard(self._host.worker)
        verdict = await judge(self, delivery)
        return ("ack", 0.0) if self._host.worker in busy else verdict

    patch.setattr(Worker, "_is_driven", is_driven)
    patch.setattr(Worker, "_judge", acks)


@row("7", "ack because another drives", "W13", "P3", ack_when_busy)
async def redelivered_while_driven(world: World) -> None:
    job = waiting(world)
    w0 = world.worker("w0", [Delay(1, "wakeups.pull", 1.5 * LEASE_S)])
    w0.silent = True
    await submit(world.process("caller"), [job], "durable")
    await arrival(world, "gate").wait()
    world.worker("w1")
    await asyncio.sleep(1.0)
    w0.kill()
    gate(world, "gate").set()


def ack_when_fenced(patch: pytest.MonkeyPatch) -> None:
    real = Worker._drive

    async def drive_and_ack(self: Worker, delivery: Any, journal: Journal, cause: Any) -> Any:
        ending = await real(self, delivery, journal, cause)
        return "parked" if ending == "fenced" else ending

    patch.setattr(Worker, "_drive", drive_and_ack)


@row("8", "zombie (fenced) acks", "W15", "P3", ack_when_fenced)
async def zombie_is_fenced(world: World) -> None:
    steer = Steer()
    job = waiting(world)
    world.worker("w0", steer)
    await submit(world.process("caller"), [job], "durable")
    await arrival(world, "gate").wait()
    await asyncio.sleep(0.5)
    steer.stall(3 * LEASE_S)
    w1 = world.worker("w1")
    w1.silent = True
    await asyncio.sleep(3.2 * LEASE_S)
    w1.kill()
    gate(world, "gate").set()


# --- 9 ------------------------------------------------------------------------------------------------------


def head_only(patch: pytest.MonkeyPatch) -> None:
    async def find(self: Journal, append: str) -> bool:
        appends: list[str] = []
        await self._read_all(lambda recorded: appends.append(recorded.commit.append))
        return appends[-1:] == [append]

    patch.setattr(Journal, "_find", find)


@row("9a", "lost ack: head compared only", "W2", "P9", head_only)
async def cancelled_on_top_of_a_message(world: World) -> list[str]:
    job = waiting(world)
    world.worker("w0")
    await submit(world.process("caller"), [job], "durable")
    await arrival(world, "gate").wait()
    injector = world.process("injector", [LostAck(1), Delay(2, "events.read", 2.0)])
    run = world.runs()[0]
    injecting = injector.spawn(injector.runtime().get_run(run).inject("hello"))
    await asyncio.sleep(1.0)
    await world.people().get_run(run).cancel()
    await asyncio.wait({injecting})
    stored = any(isinstance(event, MessageQueued) for event in world.events_of(run))
    told = not isinstance(injecting.exception(), RunFinished)
    return [] if stored == told else [f"P9 the message is stored: {stored}, and its sender was told {told}"]


def not_looked_for(patch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any) -> bool:
        return False

    patch.setattr(cancel, "_was_stored", never)


@row("9b", "lost ack of a cancel: not looked for", "W2", "P9", not_looked_for)
async def cancel_without_an_answer(world: World) -> list[str]:
    job = waiting(world)
    world.worker("w0")
    await submit(world.process("caller"), [job], "durable")
    await arrival(world, "gate").wait()
    canceller = world.process("canceller", [LostAck(1)])
    answer = await canceller.does(canceller.runtime().get_run(world.runs()[0]).cancel())
    return [] if answer == "cancelled" else [f"P9 the cancel was stored, but answered with {answer}"]


def fresh_append_ids(patch: pytest.MonkeyPatch) -> None:
    real = Journal.store

    async def store(self: Journal, events: Any, *, append: Any = None, **told: Any) -> bool:
        return await real(self, events, **told)

    patch.setattr(Journal, "store", store)


@row("9c", "late append: the next attempt has another append id", "W2", "P9", fresh_append_ids)
async def late_message(world: World) -> list[str]:
    job = waiting(world)
    world.worker("w0")
    await submit(world.process("caller"), [job], "durable")
    await arrival(world, "gate").wait()
    injector = world.process("injector", [LateAppend(1), Delay(2, delay_s=1.0)])
    injecting = injector.spawn(injector.runtime().get_run(world.runs()[0]).inject("hello"))
    await asyncio.sleep(0.5)
    await injector.handle.release()
    await injecting
    gate(world, "gate").set()
    queued = sum(isinstance(event, MessageQueued) for event in world.events_of(world.runs()[0]))
    return [] if queued == 1 else [f"P9 one message was sent, and {queued} are stored"]


# --- 10, 11, 12 ---------------------------------------------------------------------------------------------


def processes_have_leases(patch: pytest.MonkeyPatch) -> None:
    async def is_driven(self: Worker, state: Any) -> bool:
        return state.owner is not None  # nobody dies in this schedule

    patch.setattr(Worker, "_is_driven", is_driven)


@row("10", "lease vouched for by the process", "W17", "P3", processes_have_leases)
async def late_claim(world: World) -> None:
    w0 = world.worker("w0", [LateAppend(1), Delay(3, "events.read", 1.0)])
    await submit(world.process("caller"), pure(world), "durable")
    await asyncio.sleep(0.5)
    await w0.handle.release()


def found_means_stored(patch: pytest.MonkeyPatch) -> None:
    async def find(self: Journal, append: str) -> bool:
        mine, head = self.state, self.state.head
        async for stored in self.log.events.read(self.subject, head.position):
            recorded = verify(stored, head)
            if recorded.commit.append == append:
                mine.head = head_of(recorded)
                return True
            break
        await self.load()
        return False

    patch.setattr(Journal, "_find", find)
    patch.setattr(driver, "PROOF_S", math.inf)  # else the log is asked again before the start


@row("11", "append id found, fencing not re-read", "W3", "P4", found_means_stored)
async def claimed_behind_the_lost_ack(world: World) -> None:
    world.outcome = "succeeded"
    world.process("answering").spawn(world.answer_approvals())
    faults: list[Fault] = [LostAck(3), *(Delay(n, "events.follow", 20.0) for n in range(1, 9))]
    steer = Steer(*faults, Delay(2, "events.read", 4.0))
    jobs = unsafe(world)
    world.worker("w0", steer)
    world.worker("w1").handle.operations.clear()
    await submit(world.process("caller"), jobs, "durable")
    await world.until_stored("tool_started")
    world.log.disconnect("w0")  # cut off, not dead


def park_keeps_the_epoch(patch: pytest.MonkeyPatch) -> None:
    real = fold.FOLDS[Parked]

    def park(state: Any, event: Any) -> None:
        owner = state.owner
        real(state, event)
        state.owner = owner

    patch.setitem(fold.FOLDS, Parked, park)


@row("12", "worker goes on in its epoch after its own park", "W4", "P5", park_keeps_the_epoch)
async def approved_behind_a_late_park(world: World) -> None:
    w0 = world.worker("w0", [LateAppend(2), Delay(3, delay_s=2.0)])
    await submit(world.process("caller"), [asking(world)], "durable")
    await asyncio.sleep(0.5)
    await w0.handle.release()
    await approve(world)


# --- 13 -----------------------------------------------------------------------------------------------------


def unsafe_is_idempotent(patch: pytest.MonkeyPatch) -> None:
    real = preparation.expose

    def expose(spec: Any, injected: Any) -> Any:
        return msgspec.structs.replace(real(spec, injected), effect="idempotent")

    patch.setattr(preparation, "expose", expose)


@row("13a", "no tool_started", "W20", "P4", unsafe_is_idempotent)
async def owner_dies_within_an_unsafe_tool(world: World) -> None:
    world.outcome = "succeeded"
    world.process("answering").spawn(world.answer_approvals())
    w0 = world.worker("w0")
    await submit(world.process("caller"), unsafe(world), "durable")
    await asyncio.sleep(0.2)
    assert world.starts
    w0.kill()
    world.worker("w1")


def always_start(patch: pytest.MonkeyPatch) -> None:
    async def may_start(self: Driver) -> bool:
        return True

    patch.setattr(Driver, "_may_start", may_start)


@row("13b", "no lease check before the start", "W20", "P4", always_start)
async def stalled_before_the_start(world: World) -> None:
    world.outcome = "succeeded"
    world.process("answering").spawn(world.answer_approvals())
    steer = Steer()
    steer.stalls["events.append", 3] = 3 * LEASE_S
    jobs = unsafe(world)
    world.worker("w0", steer)
    await submit(world.process("caller"), jobs, "durable")
    await world.until_stored("tool_started")
    world.worker("w1")
    await asyncio.sleep(4 * LEASE_S)


def any_read_proves(patch: pytest.MonkeyPatch) -> None:
    async def last_position(self: MemoryEvents, subject: Subject) -> int:
        return 0

    patch.setattr(MemoryEvents, "last_position", last_position)


@row("13c", "a stale read proves ownership", "W20", "P4", any_read_proves)
async def stale_at_the_proof(world: World) -> None:
    world.outcome = "succeeded"
    world.process("answering").spawn(world.answer_approvals())
    steer = Steer(*(Delay(n, "events.follow", 20.0) for n in range(1, 30)))
    steer.stalls["events.append", 3] = 3 * LEASE_S
    jobs = unsafe(world)
    w0 = world.worker("w0", steer)
    await submit(world.process("caller"), jobs, "durable")
    await world.until_stored("tool_started")
    (run,) = world.runs()
    last = world.family(run)[-1].position
    steer.once["events.read"] = StaleRead(0, "events.read", last)
    world.worker("w1")
    await asyncio.sleep(4 * LEASE_S)
    await w0.handle.release()


# --- 14, 15, 16 ---------------------------------------------------------------------------------------------


def only_the_parker_pays(patch: pytest.MonkeyPatch) -> None:
    real, drives = worker_module.set_timers, Worker._drive
    driven: set[int] = set()

    async def pay(log: Any, journal: Journal) -> None:
        if id(journal) in driven:
            await real(log, journal)

    async def remember(self: Worker, delivery: Any, journal: Journal, cause: Any) -> Any:
        driven.add(id(journal))
        return await drives(self, delivery, journal, cause)

    patch.setattr(worker_module, "set_timers", pay)
    patch.setattr(worker_module, "set_timers_below", lambda journal, _below: pay(journal.log, journal))
    patch.setattr(Worker, "_drive", remember)


@row("14", "park, die before the schedule is published", "W8, W12", "P3", only_the_parker_pays)
async def parker_dies(world: World) -> None:
    w0 = world.worker("w0", [CrashAt(1, "timers.set")])
    await submit(world.process("caller"), parked_retry(world), "durable")
    await w0.dead.wait()
    world.worker("w1")


def timers_are_no_events(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Worker, "_cause", lambda *_: None)


@row("15", "due message acked without an event", "W11", "P3", timers_are_no_events)
async def timer_fires(world: World) -> None:
    world.worker("w0")
    await submit(world.process("caller"), parked_retry(world), "durable")


def no_watch(patch: pytest.MonkeyPatch) -> None:
    real = local.watch_timer

    def never(journal: Journal, due_at: float, *_lane: int) -> Timer:
        return msgspec.structs.replace(real(journal, due_at), due_at=float("inf"))

    patch.setattr(local, "watch_timer", never)
    patch.setattr(heartbeat, "watch_timer", never)


@row("16", "local run without cover", "W18", "P3", no_watch)
async def local_process_dies(world: World) -> None:
    world.worker("w1")
    caller = world.process("caller")
    caller.silent = True
    await submit(caller, pure(world), "local")
    await asyncio.sleep(0.15)
    caller.kill()


# --- 17, 18 -------------------------------------------------------------------------------------------------


def lane_freed_later(patch: pytest.MonkeyPatch) -> None:
    real, hand_on = cancel._cancel_all, cancel.hand_lane_on

    async def nothing(*_: Any) -> list[Any]:
        return []

    async def cancel_all(log: Any, journals: Any, members: Any, *rest: Any) -> bool:
        done = await real(log, journals, members, *rest)
        submitted = members[-1].state.submitted
        await log.events.append(*await hand_on(log, submitted.lane, members[-1].subject.id))
        return done

    patch.setattr(cancel, "hand_lane_on", nothing)
    patch.setattr(cancel, "_cancel_all", cancel_all)


@row("17", "lane freed after the terminal", "W6", "P3", lane_freed_later)
async def canceller_dies_behind_the_terminal(world: World) -> None:
    first = asking(world)
    second = an_agent(world, "second", says("done"))
    world.worker("w0")
    jobs = [Job(first.agent, "question", {"session": "talk"}), Job(second, "question", {"session": "talk"})]
    await submit(world.process("caller"), jobs, "durable")
    await parked(world)
    canceller = world.process("canceller", [CrashAt(1, "events.append", after=True)])
    await canceller.does(canceller.runtime().get_run(world.runs()[0]).cancel())


def no_lane_check(patch: pytest.MonkeyPatch) -> None:
    async def free(*_: Any) -> bool:
        return True

    patch.setattr(Worker, "_lane", free)


@row("18", "no lane check on a spurious wake-up", "W12", "P6", no_lane_check)
async def spurious_wakeup_in_a_lane(world: World) -> None:
    jobs = lane(world)
    await submit(world.process("caller"), jobs, "durable")
    waiting_run = world.runs()[1]
    await world.log.wakeups.send(
        Wakeup(shard=0, agent="lane", root=waiting_run, run=waiting_run, cause=1, lane_cause=1)
    )
    world.worker("w0")
    world.worker("w1")


# --- 19 to 22: families -------------------------------------------------------------------------------------


def root_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cancel, "open_from", lambda members, run: [members[run]])


@row("19a", "cancel root only", "W23", "P7", root_only)
async def family_cancelled(world: World) -> None:
    job = parent(world)
    world.worker("w0")
    await submit(world.process("caller"), [job], "durable")
    await arrival(world, "gate").wait()
    await world.people().get_run(world.runs()[0]).cancel("family")
    gate(world, "gate").set()


def enumerated_once(patch: pytest.MonkeyPatch) -> None:
    real = cancel.open_family
    first: dict[str, set[str]] = {}

    async def read(named: Journal, load: Any) -> dict[str, Journal]:
        journals = await real(named, load)
        known = first.setdefault(named.subject.id, set(journals))
        return {run: journal for run, journal in journals.items() if run in known}

    patch.setattr(cancel, "open_family", read)


@row("19b", "cancel enumerates once", "W7, W23", "P7", enumerated_once)
async def child_starts_while_the_family_is_cancelled(world: World) -> None:
    an_agent(world, "inner", calls(("wait", {"for_": "second"})), says("inner answer"))
    replies = calls(("wait", {"for_": "first"})), calls(("delegate", {"to": "inner"})), says("done")
    agent = an_agent(world, "parent", *replies)
    world.worker("w0")
    await submit(world.process("caller"), [Job(agent, "question")], "durable")
    await arrival(world, "first").wait()
    canceller = world.process("canceller", [Delay(1, delay_s=2.0)])
    cancelling = canceller.spawn(canceller.runtime().get_run(world.runs()[0]).cancel("family"))
    await asyncio.sleep(0.5)
    gate(world, "first").set()
    await arrival(world, "second").wait()
    await cancelling
    gate(world, "second").set()


def one_by_one(patch: pytest.MonkeyPatch) -> None:
    real = cancel._cancel_all

    async def cancel_all(log: Any, journals: Any, members: Any, *rest: Any) -> bool:
        return all([await real(log, journals, [member], *rest) for member in members])

    patch.setattr(cancel, "_cancel_all", cancel_all)


@row("20", "children one by one", "W23", "P8", one_by_one)
async def canceller_dies_within_the_family(world: World) -> None:
    job = parent(world)
    world.worker("w0")
    await submit(world.process("caller"), [job], "durable")
    await arrival(world, "gate").wait()
    await asyncio.sleep(0.5)
    canceller = world.process("canceller", [CrashAt(1, "events.append", after=True)])
    await canceller.does(canceller.runtime().get_run(world.runs()[0]).cancel("family"))
    await asyncio.sleep(1.0)
    gate(world, "gate").set()


def announced_then_created(patch: pytest.MonkeyPatch) -> None:
    async def start(self: Any, child: Any, spawned: Any, begun: Any, announced: Any) -> None:
        state, runnable = self._driver.state, begun.runnable
        link = ParentLink(run=state.run, tool_call_id=spawned.call_id, ordinal=spawned.ordinal)
        opened = submitted_event(runnable, begun.text, executor=CHILD, parent=link)
        turn = open_turn(child.journal, opened, f"{state.path}/{runnable.name}")
        child.claim_within(turn)
        announced()
        await self._store(spawned, spawned.call_id)
        await self._driver.host.log.events.append(child.journal.write(turn.events, epoch=child.epoch).write)
        await child.journal.load()

    patch.setattr(ChildRuns, "_start", start)
    real = Journal.relative
    patch.setattr(Journal, "relative", lambda self, run, **_: real(self, run, at_once=True))


# A child that is announced exists: both stand in one batch (W5), so that no cancel needs a tombstone.
@row("21", "child announced, cancel without tombstone, child created", "W5", "P7", announced_then_created)
async def cancelled_between_announcement_and_child(world: World) -> None:
    job = parent(world)
    w0 = world.worker("w0", [LateAppend(4)])
    await submit(world.process("caller"), [job], "durable")
    await world.until_stored("child_started")
    await asyncio.sleep(0.3)
    await world.people().get_run(world.runs()[0]).cancel("family")
    await w0.handle.release()
    gate(world, "gate").set()


def children_are_waited_for(patch: pytest.MonkeyPatch) -> None:
    real = ChildRuns._drive_to_end

    async def wait(self: Any, driver: Any, *, claimed: bool) -> None:
        if claimed:
            await real(self, driver, claimed=True)
        else:
            await driver.journal.follow_until(lambda state: state.over)

    patch.setattr(ChildRuns, "_drive_to_end", wait)


# A parent never parks for a child: it keeps its wake-up, and its driver drives its children (W19).
@row("22", "who takes over a parent does not drive its child", "W19", "P3", children_are_waited_for)
async def owner_dies_within_a_child(world: World) -> None:
    job = parent(world)
    w0 = world.worker("w0")
    await submit(world.process("caller"), [job], "durable")
    await arrival(world, "gate").wait()
    w0.kill()
    world.worker("w1")
    gate(world, "gate").set()


def ends_alone(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: Any) -> list[Any]:
        return []

    patch.setattr(Journal, "_ended_below", nothing)


# Beyond the table of the model, which only argues W24.
@row("24", "a parent fails while a child is open", "W24", "P7", ends_alone)
async def bug_beside_a_child(world: World) -> None:
    an_agent(
        world, "inner", calls(("look", {"at": "a"})), calls(("wait", {"for_": "gate"})), says("inner answer")
    )
    replies = calls(("delegate", {"to": "inner"}), ("save", {"what": "x"})), says("done")
    with pytest.MonkeyPatch.context() as patch:
        real = calls_module.returned

        def returned(turn: Any, command: Any) -> None:
            if command.result == "saved x":
                raise ZeroDivisionError("a bug")
            real(turn, command)

        patch.setattr(calls_module, "returned", returned)
        world.worker("w0")
        jobs = [Job(an_agent(world, "parent", *replies), "question")]
        await submit(world.process("caller"), jobs, "durable")
        await world.settle(5.0)


# --- the tests ----------------------------------------------------------------------------------------------


def cases() -> list[Any]:
    return [pytest.param(case, id=f"{case.id}: {case.without}") for case in ROWS]


@pytest.mark.parametrize("case", cases())
def test_the_schedule_breaks_nothing(case: Row) -> None:
    assert found_in(case.schedule) == []


@pytest.mark.parametrize("case", [case for case in cases() if case.values[0].breaks])
def test_the_schedule_breaks_its_property_once_the_rule_is_taken_out(case: Row) -> None:
    with pytest.MonkeyPatch.context() as patch:
        case.mutation(patch)
        found = found_in(case.schedule)
    assert any(problem.startswith(case.breaks) for problem in found), found


def test_every_row_of_the_table_is_here() -> None:
    numbers = {int("".join(filter(str.isdigit, case.id))) for case in ROWS if case.breaks}
    assert numbers >= set(range(1, 23))
