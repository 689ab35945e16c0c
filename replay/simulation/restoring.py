"""A restore while runs are in progress: all processes die, and open runs are held until a person resumes them.

No other process can write before all runs are held. The log is not set back, because the end of any backup was once the
end of a log. The process that restores may die, and another takes over.
"""

from __future__ import annotations

import asyncio

from ...eventlog.errors import FoldlogError, RunFinished
from ...runtime.restored import Held, hold_everything
from .world import ANSWER_S, World

RESTORED_AFTER_S = 0.7


async def restore(world: World, after_s: float = RESTORED_AFTER_S) -> None:
    """After `after_s` seconds, kill all processes and hold all open runs; some time later, resume them."""
    await asyncio.sleep(after_s)
    await world.until(lambda: bool(world.runs()))
    if not any(process.worker for process in world.processes.values()):
        return  # there is no worker to continue the runs
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
