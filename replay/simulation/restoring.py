"""A restore in the middle of everything: all processes die, and open runs are held until a person lets them go on.

No other process can write before all are held. The log is not set back, since what a backup has was the end of the log
once. Who restores may die, and is followed by another.
"""

from __future__ import annotations

import asyncio

from ...eventlog.errors import FoldlogError, RunFinished
from ...runtime.restored import Held, hold_everything
from .world import ANSWER_S, World

RESTORED_AFTER_S = 0.7


async def restore(world: World, after_s: float = RESTORED_AFTER_S) -> None:
    """Hold everything that is open, `after_s` seconds from now, and resume it some time after it is held."""
    await asyncio.sleep(after_s)
    await world.until(lambda: bool(world.runs()))
    if not any(process.worker for process in world.processes.values()):
        return  # no worker would go on with it
    for process in [*world.processes.values()]:
        if process.name != "answering":
            process.kill()
    held = await _held(world)
    await asyncio.sleep(ANSWER_S)
    for run in held.runs:
        await _resume(world, run)


async def _held(world: World) -> Held:
    try:
        while True:
            person = world.person()
            world.behind_gate = person.name
            try:
                held = await person.does(hold_everything(person.handle, world.clock.now()))
            except FoldlogError:
                held = None
            if isinstance(held, Held) and not person.dead.is_set():
                return held
            await world.clock.sleep(ANSWER_S / 4)
    finally:
        world.behind_gate = ""


async def _resume(world: World, run: str) -> None:
    while True:
        person = world.person()
        try:
            await person.does(person.runtime().get_run(run).resume())
        except RunFinished:
            return
        except FoldlogError:
            pass
        else:
            if not person.dead.is_set():
                return
        await world.clock.sleep(ANSWER_S / 4)
