"""Random schedules: processes that crash, stall, hear nothing and read old things, while people cancel and interrupt.

Everything is drawn from a seed: which callback runs next, what goes wrong where, who says what when. A schedule that
fails is named `schedule(17)`, which plays it again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog.errors import FoldlogError
from foldlog.eventlog.faults import (
    Crash,
    CrashAt,
    Delay,
    DuplicateDelivery,
    Fault,
    LateAppend,
    LostAck,
    Outage,
    Refused,
    SpuriousConflict,
    StaleRead,
)
from foldlog.eventlog.ports import Wakeup
from foldlog.replay import Canonical, is_prefix

from tests.protocol.loop import SimulatedLoop, simulate
from tests.protocol.properties import left_over, violations
from tests.protocol.scenarios import SCENARIOS, forms, submit, undisturbed
from tests.protocol.world import LEASE_S, Process, World

SCHEDULES = 500
BATCHES = 10
FAULTS_MAX = 8
CALM_AFTER_S = 90.0
APPEND_FAULTS: tuple[Callable[[int], Fault], ...] = (LostAck, LateAppend, Refused, SpuriousConflict)


class Chaos:
    """A schedule's dice, and how much of its trouble is spent."""

    def __init__(self, seed: int, world: World) -> None:
        self.rng, self.world = random.Random(seed), world
        self.left = self.rng.randint(0, FAULTS_MAX)
        self.crashes = self.rng.randint(0, 2)
        self.rate = self.rng.choice((0.02, 0.05, 0.15))

    def plan(self, *, may_crash: bool) -> Callable[[str, int, int], Fault | None]:
        """The faults of one process."""
        stalled_until_s = 0.0

        def draw(operation: str, call: int, number: int) -> Fault | None:
            nonlocal stalled_until_s
            now_s = self.world.clock.monotonic()
            if now_s < stalled_until_s:
                return Delay(call, operation, stalled_until_s - now_s)
            if not self.left or now_s > CALM_AFTER_S or self.rng.random() > self.rate:
                return None
            self.left -= 1
            if may_crash and self.crashes and self.rng.random() < 0.4:
                self.crashes -= 1
                return CrashAt(number, after=self.rng.random() < 0.5)
            if self.rng.random() < 0.25:
                stalled_until_s = now_s + self.rng.uniform(1.0, 2.5 * LEASE_S)
                return Delay(call, operation, stalled_until_s - now_s, after=self.rng.random() < 0.5)
            return self._fault(operation, call)

        return draw

    def _fault(self, operation: str, call: int) -> Fault:
        match operation:
            case "events.append" if self.rng.random() < 0.8:
                return self.rng.choice(APPEND_FAULTS)(call)
            case "events.read" | "events.head" if self.rng.random() < 0.8:
                newest = max((stored.position for stored, _ in self.world.commits()), default=0)
                return StaleRead(call, operation, self.rng.randint(0, newest))
            case "wakeups.pull" if self.rng.random() < 0.8:
                return DuplicateDelivery(call)
            case _ if self.rng.random() < 0.5:
                return Outage(call, operation, self.rng.uniform(0.2, 1.5 * LEASE_S))
            case _:
                return Delay(call, operation, self.rng.uniform(0.0, 4.0), after=self.rng.random() < 0.5)


class Schedule:
    """One random schedule and what came of it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.cancelled = self.interrupted = False

    async def run(self) -> list[str]:
        """Play it; whatever is wrong with it."""
        self.world = world = World()
        self.chaos = chaos = Chaos(self.seed, world)
        rng = chaos.rng
        self.name = rng.choice(sorted(SCENARIOS))
        self.executor = rng.choice(("durable", "durable", "local"))
        world.outcome = rng.choice(("retry", "succeeded"))
        jobs = SCENARIOS[self.name](world)
        world.process("answering").spawn(world.answer_approvals())
        for number in range(rng.randint(1, 3)):
            self._worker(f"w{number}")
        caller = world.process("caller", chaos.plan(may_crash=True) if self.executor == "local" else ())
        world.outside(self._calm(caller))
        world.outside(self._outsiders())
        await submit(caller, jobs, self.executor)
        await world.settle()
        await asyncio.sleep(CALM_AFTER_S + 12 * LEASE_S)
        return self._judge(caller)

    def _worker(self, name: str) -> None:
        process = self.world.process(name, self.chaos.plan(may_crash=True))
        process.silent = self.chaos.rng.random() < 0.5
        process.serve()
        self.world.outside(self._calm(process))
        self.world.outside(self._replace(process))
        if self.chaos.rng.random() < 0.15:
            self.world.outside(self._drain(process))

    async def _drain(self, process: Process) -> None:
        """Somebody asks a worker to leave, and starts another one."""
        await asyncio.sleep(self.chaos.rng.uniform(0.0, self.chaos.rng.choice((1.0, 20.0))))
        if process.worker is not None and not process.dead.is_set():
            process.worker.stop()
            self._worker(process.name + "-")

    async def _replace(self, process: Process) -> None:
        """Somebody starts a new worker for one that died."""
        await process.dead.wait()
        await asyncio.sleep(self.chaos.rng.uniform(0.0, 2 * LEASE_S))
        self._worker(process.name + "+")

    async def _calm(self, process: Process) -> None:
        """What is late arrives at some time, stale reads are fresh again."""
        while True:
            await asyncio.sleep(self.chaos.rng.uniform(0.1, 6.0))
            await process.handle.release()

    async def _outsiders(self) -> None:
        """People, and a server that repeats itself."""
        rng, world = self.chaos.rng, self.world
        for act in rng.sample((self._cancel, self._interrupt, self._wake), rng.choice((0, 0, 1, 2))):
            await asyncio.sleep(rng.uniform(0.0, rng.choice((1.0, 20.0))))
            if world.runs():
                await act(rng.choice(world.runs()))

    async def _cancel(self, run: str) -> None:
        self.cancelled = True
        reason = "family" if run in self.world.roots() else "one of them"
        await self.world.people().get_run(run).cancel(reason)

    async def _interrupt(self, run: str) -> None:
        self.interrupted = True
        await self.world.inject(run, "by the way")

    async def _wake(self, run: str) -> None:
        agent = self.world.commits()[0][1].path
        root = next(stored.subject.root for stored, _ in self.world.commits() if stored.subject.id == run)
        await self.world.log.wakeups.send(Wakeup(shard=0, agent=agent, root=root, run=run, cause=1))

    def _judge(self, caller: Process) -> list[str]:
        loop: Any = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        found = violations(self.world) + [f"left over: {wakeup}" for wakeup in left_over(self.world)]
        raised = [context.get("exception") or context["message"] for context in loop.unhandled]
        found += [
            f"nobody caught {error!r}" for error in raised if not isinstance(error, (Crash, FoldlogError))
        ]
        return found or self._compare(caller)

    def _compare(self, caller: Process) -> list[str]:
        """Parity, where no outsider raced; after a cancel, that it cut the trace off and changed nothing."""
        expected, got = undisturbed(self.name), forms(self.world)
        if self.interrupted:
            return []
        if self.cancelled:
            return [
                f"{key}: {difference}"
                for key, form in got.items()
                for difference in _cut(form, expected[key])
            ]
        missing = (
            [] if caller.dead.is_set() else sorted(expected.keys() - got.keys() - set(self.world.told_no))
        )
        differing = [key for key, form in got.items() if form.digest != expected[key].digest]
        return [f"{key} is missing" for key in missing] + [f"{key} differs" for key in differing]


def _cut(form: Canonical, whole: Canonical) -> list[str]:
    """How a trace differs from a whole one, apart from having been cancelled at some place."""
    cancelled = {b.run for b in form.boundaries if b.type == "status" and "cancelled" in b.label}
    if form.boundaries[0].run not in cancelled:  # too late, or a child alone: its parent is told and goes on
        return [] if cancelled or form.digest == whole.digest else ["differs though nothing was cancelled"]
    comparison = is_prefix(form, whole)
    return (
        []
        if comparison.equal or len(cancelled) == 1 < len({b.run for b in form.boundaries})
        else [f"is no prefix: {comparison.first_difference}"]
    )


def schedule(seed: int) -> list[str]:
    """Play one schedule; what is wrong with it, with the way to see it again."""
    for name in SCENARIOS:
        undisturbed(name)
    played = Schedule(seed)
    found = simulate(played.run, seed=seed)
    return [f"schedule({seed}) [{played.name}, {played.executor}]: {problem}" for problem in found]


@pytest.mark.parametrize("batch", range(BATCHES))
def test_whatever_happens_the_protocol_holds(batch: int) -> None:
    found: list[str] = []
    for seed in range(batch, SCHEDULES, BATCHES):
        found += schedule(seed)
    assert not found, "\n".join(found)
