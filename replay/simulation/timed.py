"""The parties around a schedule: those who put it on, edit it meanwhile, and take it off again.

Each does its work in one process after another until one of them is answered, so that any may die anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ...eventlog.errors import LogUnavailable
from ...eventlog.events import ScheduleUpdated
from ...runtime import Schedule
from ...runtime.tools.context import ToolContext
from ...runtime.tools.decorator import tool
from ...runtime.triggers.schedule import Overlap
from .world import ANSWER_S, WORLD, World

NAME = "watch"
EVERY_S = 20
TIMES = 3
"""The number of times that come to something before the schedule is deleted."""
EDITS_AFTER_S = 7.0

Do = Callable[[Any], Coroutine[Any, Any, Any]]


@tool(effect="idempotent")
async def keep_watch(ctx: ToolContext) -> str:
    """Have a schedule start runs until some of its times have come to something."""
    ctx.progress(1, 2)
    await _until_taken_off(edited=False)
    return "watched"


@tool(effect="idempotent")
async def change_watch(ctx: ToolContext) -> str:
    """Do the same, while people edit, pause and resume the schedule and ask for a run by hand."""
    ctx.progress(1, 2)
    await _until_taken_off(edited=True)
    return "watched"


async def _until_taken_off(*, edited: bool) -> None:
    world = WORLD.get()
    await asyncio.shield(world.say_once("schedule", lambda: _put_on_and_off(world, edited=edited)))


async def _put_on_and_off(world: World, *, edited: bool) -> None:
    await _said(world, lambda schedules: schedules.apply(_schedule("look", edited=edited), by="ada"))
    if edited:
        await _edit(world)
    await world.until(lambda: _decided(world) >= TIMES)
    await _said(world, lambda schedules: schedules.delete(NAME, by="ada"))


async def _edit(world: World) -> None:
    steps: list[Do] = [
        lambda schedules: schedules.apply(_schedule("look again", edited=True), by="bo"),
        lambda schedules: schedules.pause(NAME, by="bo"),
        lambda schedules: schedules.resume(NAME, by="bo"),
        lambda schedules: schedules.trigger(NAME, by="bo"),
    ]
    for step in steps:
        await world.clock.sleep(EDITS_AFTER_S)
        await _said(world, step)


def _schedule(text: str, *, edited: bool) -> Schedule:
    overlap: Overlap = "allow" if edited else "queue"
    every = f"{EVERY_S}s"
    return Schedule(NAME, "watcher", f"{text} at ${{due_at}}", every=every, overlap=overlap, missed="all")


async def _said(world: World, do: Do) -> None:
    while True:
        person = world.person()
        try:
            await person.does(do(person.runtime().schedules))
        except LogUnavailable:
            pass
        else:
            if not person.dead.is_set():
                return
        await world.clock.sleep(ANSWER_S / 4)


def _last(world: World) -> ScheduleUpdated | None:
    found = [
        event
        for _, commit in world.commits()
        for event in commit.events
        if isinstance(event, ScheduleUpdated)
    ]
    return found[-1] if found else None


def _decided(world: World) -> int:
    last = _last(world)
    return 0 if last is None else decisions(last)


def decisions(schedule: ScheduleUpdated) -> int:
    """Return the number of times that have come to something."""
    counts = schedule.counts
    return counts.started + counts.skipped + counts.missed
