"""The parties around an erasure: reapers, a caller that reuses the run's key, and a reader of its session.

Each retries its work from a new process until one gets a reply, so that any process may die anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ...eventlog.errors import FoldlogError, LogCorrupted, LogUnavailable, RunGone
from ...eventlog.events import Submitted
from ...eventlog.names import run_subject
from ...runtime.burying.bury import Order, bury
from ...runtime.tools.context import ToolContext
from ...runtime.tools.decorator import tool
from .process import Process
from .world import ANSWER_S, WORLD, World

UNREADABLE = "unreadable"
"""The key in `World.state` of the error with which reading the session failed."""


@tool(effect="idempotent")
async def erase(ctx: ToolContext) -> str:
    """Have the first run erased by two reapers, while its key is used again and its session is read."""
    world = WORLD.get()
    first = world.roots()[0]
    ctx.progress(1, 2)
    parties = {
        world.say_once(f"reaper {number}", lambda: _until_answered(world, lambda one: _reap(one, first)))
        for number in range(2)
    }
    parties.add(world.say_once("reader", lambda: _until_answered(world, _look_back)))
    parties.add(world.say_once("sender", lambda: _until_answered(world, lambda one: _send_again(one, first))))
    await asyncio.wait(parties)
    return "erased"


async def _until_answered(
    world: World, do: Callable[[Process], Coroutine[Any, Any, bool]], times: int = 3
) -> None:
    """Do it from one process after another, until it has succeeded `times` times."""
    while times:
        person = world.person()
        try:
            answered = bool(await person.does(do(person)))
        except (RunGone, LogUnavailable):
            answered = False
        times -= answered and not person.dead.is_set()
        await world.clock.sleep(ANSWER_S / 4)


async def _reap(person: Process, root: str) -> bool:
    await bury(person.handle, run_subject(0, root, root), Order())
    return True


async def _send_again(person: Process, root: str) -> bool:
    """Repeat the first run's submission with its idempotency key."""
    world = WORLD.get()
    state = next(event for event in world.events_of(root) if isinstance(event, Submitted))
    agent = next(each for each in world.agents if each.name == state.config["name"])
    try:
        await person.runtime().start(
            agent,
            state.input,
            session=state.session,
            idempotency_key=state.idempotency_key,
            executor="durable",
        )
    except RunGone:
        return True
    return True


async def _look_back(person: Process) -> bool:
    """Read the session, before or after the erasure."""
    try:
        await person.runtime().history("talk")
    except LogUnavailable:
        raise
    except (FoldlogError, LogCorrupted) as error:
        WORLD.get().state[UNREADABLE] = str(error)
    return True
