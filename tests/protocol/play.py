"""Playing a scenario with faults: one process that they happen to, another that goes on, and what must hold then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from foldlog.eventlog.faults import Crash, Fault, Plan

from tests.protocol.loop import SimulatedLoop, simulate
from tests.protocol.properties import left_over, violations
from tests.protocol.scenarios import SCENARIOS, forms, submit, undisturbed
from tests.protocol.world import LEASE_S, Process, World

RELEASE_AFTER_S = 3.0
"""When what is late arrives and stale reads are fresh again."""
QUIET_S = 12 * LEASE_S
"""Long enough for everything that was left behind to come back and be found done."""


class Played(msgspec.Struct):
    """A scenario that was played: the world, the process that the faults happened to, and what nobody caught."""

    world: World
    victim: Process
    executor: str
    unhandled: list[dict[str, Any]]


def play(
    name: str,
    faults: Iterable[Fault] | Plan = (),
    *,
    executor: str = "durable",
    silent: bool = False,
    outcome: str = "retry",
    standby: bool = False,
    seed: int | None = None,
    meanwhile: Callable[[World], Any] | None = None,
) -> Played:
    """Play a scenario. The faults happen to the first worker, or to the process of the local executor.

    Should it die, a second worker goes on; with `standby` that one is there from the start.
    """

    async def main() -> Played:
        world = World()
        world.outcome = outcome
        jobs = SCENARIOS[name](world)
        world.process("answering").spawn(world.answer_approvals())
        victim = world.process("w0", faults)
        victim.silent = silent
        world.outside(_go_on(world, victim, at_once=standby))
        world.outside(_release(victim))
        if meanwhile is not None:
            world.outside(meanwhile(world))
        if executor == "durable":
            victim.serve()
            await submit(world.process("caller"), jobs, executor)
        else:
            await submit(victim, jobs, executor)
        await world.settle()
        await asyncio.sleep(QUIET_S)
        loop: Any = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        return Played(world, victim, executor, loop.unhandled)

    return simulate(main, seed=seed)


async def _go_on(world: World, victim: Process, *, at_once: bool) -> None:
    if not at_once:
        await victim.dead.wait()
    world.worker("w1")


async def _release(victim: Process) -> None:
    while True:
        await asyncio.sleep(RELEASE_AFTER_S)
        await victim.handle.release()


def problems(played: Played) -> list[str]:
    """Whatever is wrong with the log, with what was left behind, or with what a task raised."""
    found = violations(played.world) + [f"left over: {wakeup}" for wakeup in left_over(played.world)]
    raised = [context.get("exception") or context["message"] for context in played.unhandled]
    return found + [f"nobody caught {error!r}" for error in raised if not isinstance(error, Crash)]


def differences(name: str, played: Played) -> list[str]:
    """Families that are not what they are when nothing goes wrong; those whose submission died are not there."""
    expected, got = undisturbed(name), forms(played.world)
    found = [
        f"{key} differs from its undisturbed trace" for key in got if got[key].digest != expected[key].digest
    ]
    lost_with_its_submitter = played.executor == "local" and played.victim.dead.is_set()
    missing = expected.keys() - got.keys() - set(played.world.told_no)
    missing = set() if lost_with_its_submitter else missing
    return found + [f"{key} is missing" for key in missing]
