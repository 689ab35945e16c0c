"""Playing a scenario with planned faults: one process that they happen to, another that goes on, and what must hold."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec
from foldlog.eventlog.faults import Crash, Fault
from foldlog.replay import Canonical
from foldlog.replay.simulation import SCENARIOS, World, run_simulated
from foldlog.replay.simulation.loop import simulated_loop
from foldlog.replay.simulation.playing import forms, submit, write_plans
from foldlog.replay.simulation.playing import undisturbed as undisturbed_of
from foldlog.replay.simulation.process import LEASE_S, Draw, Process
from foldlog.replay.simulation.properties import left_over, violations

RELEASE_AFTER_S = 3.0
"""When what is late arrives and stale reads are fresh again."""
QUIET_S = 12 * LEASE_S
"""Long enough for everything that was left behind to come back and be found done."""
COMPARED = [name for name, scenario in SCENARIOS.items() if scenario.compared]


class Played(msgspec.Struct):
    """A scenario that was played: the world, the process that the faults happened to, and what nobody caught."""

    world: World
    victim: Process
    executor: str
    unhandled: list[dict[str, Any]]


@functools.cache
def undisturbed(name: str) -> Mapping[str, Canonical]:
    return undisturbed_of(SCENARIOS[name])


def play(
    name: str,
    faults: Iterable[Fault] | Draw = (),
    *,
    executor: str = "durable",
    silent: bool = False,
    outcome: Literal["retry", "succeeded"] = "retry",
    standby: bool = False,
) -> Played:
    """Play a scenario. The faults happen to the first worker, or to the process of the local executor.

    Should it die, it is started again, as a worker of the same release; with `standby` a second worker, of an earlier
    one if the scenario has any, is there from the start.
    """

    async def main() -> Played:
        world = World()
        world.outcome = outcome
        jobs = SCENARIOS[name].stage(world)
        await write_plans(world)
        world.process("answering").spawn(world.answer_approvals())
        victim = world.process("w0", faults)
        victim.silent = silent
        world.outside(_go_on(world, victim, at_once=standby))
        world.outside(_release(victim))
        if executor == "durable":
            victim.serve()
            await submit(world.process("caller"), jobs, executor)
        else:
            await submit(victim, jobs, executor)
        await world.settle()
        await asyncio.sleep(QUIET_S)
        return Played(world, victim, executor, list(simulated_loop().unhandled))

    return run_simulated(main)


async def _go_on(world: World, victim: Process, *, at_once: bool) -> None:
    if at_once:
        world.worker("w1")
    else:
        await victim.dead.wait()
        world.worker("w0+")


async def _release(victim: Process) -> None:
    while True:
        await asyncio.sleep(RELEASE_AFTER_S)
        await victim.handle.release()


def problems(played: Played) -> list[str]:
    """Whatever is wrong with the log, with what was left behind, or with what a task raised."""
    return [*violations(played.world), *left_over(played.world), *_uncaught(played)]


def _uncaught(played: Played) -> Iterator[str]:
    for context in played.unhandled:
        error = context.get("exception") or context["message"]
        if not isinstance(error, Crash):
            yield f"nobody caught {error!r}"


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
