"""The parties around a schedule: operators who create it, edit it while it runs, and delete it.

Each retries its work from a new process until one gets a reply, so that any process may die anywhere.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
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
"""The number of times that are decided (started, skipped or missed) before the schedule is deleted."""
EDITS_AFTER_S = 7.0

ZONE = "Europe/Oslo"
SEASON = "season"
"""The key of `World.state` with the times of each schedule: cron expression and local times, by name."""
Season = Mapping[str, tuple[str, tuple[str, ...]]]
SPRING: Season = {
    # The times in the skipped hour all occur once, together, right after it.
    "gap": ("0-30 2,3 * * *", tuple(f"2026-03-29T03:{minute:02}:00+02:00" for minute in range(31))),
}
AUTUMN: Season = {
    # A time in the repeated hour occurs once; with `*` for the hour, times follow the elapsed time, through both hours.
    "once": ("0-15,59 2 * * *", ("2026-10-25T02:59:00+02:00", "2026-10-26T02:00:00+01:00")),
    "both": (
        "* * * * *",
        ("2026-10-25T02:59:00+02:00", *(f"2026-10-25T02:{minute:02}:00+01:00" for minute in range(60))),
    ),
}
BEGINNINGS = {
    "spring": (SPRING, "2026-03-29T01:59:20+01:00"),
    "autumn": (AUTUMN, "2026-10-25T02:58:20+02:00"),
}

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


@tool(effect="idempotent")
async def change_clocks(ctx: ToolContext) -> str:
    """Have schedules start runs while the clocks are changed."""
    ctx.progress(1, 2)
    world = WORLD.get()
    await asyncio.shield(world.say_once("season", lambda: _through_the_change(world)))
    return "changed"


def begin_in(world: World, season: str) -> None:
    """Set the world's beginning to shortly before a change of the clocks."""
    times, beginning = BEGINNINGS[season]
    world.clock.begins_at = datetime.fromisoformat(beginning).timestamp()
    world.state[SEASON] = times


async def _through_the_change(world: World) -> None:
    season: Season = world.state[SEASON]
    for name, (cron, _) in season.items():
        given = Schedule(name, "watcher", "${due_at}", cron=cron, tz=ZONE, overlap="allow", missed="all")
        await _said(world, functools.partial(_applied, given))
    longest = max(season, key=lambda name: len(season[name][1]))
    await world.until(lambda: _decided(world, longest) >= TIMES)
    for name in season:
        await _said(world, functools.partial(_deleted, name))


async def _applied(given: Schedule, schedules: Any) -> None:
    await schedules.apply(given, by="ada")


async def _deleted(name: str, schedules: Any) -> None:
    await schedules.delete(name, by="ada")


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


def _decided(world: World, name: str = NAME) -> int:
    told = [event for _, commit in world.commits() for event in commit.events]
    found = [event for event in told if isinstance(event, ScheduleUpdated) and event.name == name]
    return decisions(found[-1]) if found else 0


def times_between(world: World, name: str, start: float, end: float) -> int:
    """Return the number of times of a schedule from `start` (included) to `end` (excluded)."""
    season: Season = world.state.get(SEASON, {})
    if name not in season:
        return round((end - start) / EVERY_S)
    times = [datetime.fromisoformat(time).timestamp() for time in season[name][1]]
    return sum(start <= time < end for time in times)


def local_times(world: World, name: str) -> Mapping[float, str] | None:
    """Return the expected times of a schedule, each with its local form as its run sees it; None if any may occur."""
    season: Season = world.state.get(SEASON, {})
    if name not in season:
        return None
    return {datetime.fromisoformat(time).timestamp(): time for time in season[name][1]}


def decisions(schedule: ScheduleUpdated) -> int:
    """Return the number of times that are decided: started, skipped or missed."""
    counts = schedule.counts
    return counts.started + counts.skipped + counts.missed
