"""`foldlog schedules`: apply, list and steer schedules."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exits import NO, OK
from ..options import Json
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ....eventlog.events import Occurrence
    from ....runtime.triggers.schedule import Schedule
    from ....runtime.triggers.schedules import ScheduleRow
    from ..output.tables import Cell

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Start runs at given times: apply, list and steer schedules.",
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]
By = Annotated[str, typer.Option(metavar="NAME", help="Name to record.")]
_TIMES_MAX = 1000


@app.command()
def apply(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="TOML file of [schedules.NAME] tables; default: the project's."),
    ] = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check them and show their times.")] = False,
    by: By = "",
    json: Json = False,
) -> int:
    """Create or change the schedules of a file. Other schedules stay as they are. Exit 1 if the file has none."""
    from ..loops import run_async

    return run_async(_apply(settings_of(context), file, by, dry_run=dry_run, json=json))


@app.command("list")
def list_(context: typer.Context, *, json: Json = False) -> int:
    """List the schedules with their next and last times."""
    from ..loops import run_async

    return run_async(_list(settings_of(context), json=json))


@app.command()
def show(context: typer.Context, name: Name, *, json: Json = False) -> int:
    """Show a schedule and the outcomes of its last times: runs, and skipped or missed times with the reason."""
    from ..loops import run_async

    return run_async(_show(settings_of(context), name, json=json))


@app.command("next")
def next_(
    context: typer.Context,
    name: Name,
    *,
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=_TIMES_MAX, help="How many times.")] = 5,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Only times after this one, of the schedule's zone unless it names one; default: now.",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Show the next times of a schedule, in its time zone."""
    from ..loops import run_async

    return run_async(_next(settings_of(context), name, count, after, json=json))


@app.command()
def pause(context: typer.Context, name: Name, *, by: By = "") -> int:
    """Pause a schedule: it starts no runs until it is resumed."""
    return _steer(context, "pause", name, by, "paused")


@app.command()
def resume(context: typer.Context, name: Name, *, by: By = "") -> int:
    """Resume a schedule with its next time. The times since the pause are skipped, and counted as such."""
    return _steer(context, "resume", name, by, "goes on")


@app.command()
def trigger(context: typer.Context, name: Name, *, by: By = "") -> int:
    """Start a run now, on a worker that serves the agent, even while the schedule is paused."""
    return _steer(context, "trigger", name, by, "a worker will start a run now")


@app.command()
def backfill(
    context: typer.Context,
    name: Name,
    start: Annotated[
        str,
        typer.Argument(
            metavar="START",
            help="First time, of the schedule's zone unless it names one: 2026-03-01T00:00; or 2d (ago).",
        ),
    ],
    end: Annotated[str, typer.Argument(metavar="END", help="End, exclusive; in the past.")],
    *,
    by: By = "",
) -> int:
    """Start a run for each time between START and END that has none."""
    from ..loops import run_async

    return run_async(_backfill(settings_of(context), name, start, end, by))


@app.command()
def delete(context: typer.Context, name: Name, *, by: By = "") -> int:
    """Delete a schedule for good. Its open runs go on."""
    return _steer(context, "delete", name, by, "deleted")


async def _apply(settings: Settings, file: Path | None, by: str, *, dry_run: bool, json: bool) -> int:
    from ....eventlog.ports import served
    from ...configuration.schedules import load_schedules
    from ..opening import opened
    from ..output.escaping import one_line
    from ..output.terminal import Screen

    screen, found = Screen(settings), load_schedules(file)
    if not found:
        screen.say(f"there is no [schedules.NAME] in {file or 'the project'}")
        return NO
    if dry_run:
        times = [(each, each.calendar.after(time.time())) for each in found]
        if json:
            screen.json([{"name": each.name, "next_at": at} for each, at in times])
        else:
            for each, at in times:
                screen.tell(f"schedule {each.name}: valid; next: {_local(each, at)}")
        return OK
    async with opened(settings) as runtime:
        before = {row.name: row for row in await runtime.schedules.list()}
        rows = [await runtime.schedules.apply(each, by=by) for each in found]
        at_work = served(await runtime.log.leases.present())
    if json:
        screen.json([_document(row) for row in rows])
        return OK
    for row in rows:
        known = before.get(row.name)
        word = "created" if known is None else "unchanged" if known.schedule == row.schedule else "changed"
        screen.tell(f"schedule {row.name}: {word}; next: {_moment(row, row.next_at)}")
    for agent in sorted({row.schedule.agent_name for row in rows} - at_work):
        screen.say(f"no live worker serves {one_line(agent)} now: its runs start once one does")
    return OK


async def _list(settings: Settings, *, json: bool) -> int:
    from ..opening import opened
    from ..output.escaping import one_line
    from ..output.tables import Column
    from ..output.terminal import Screen

    screen = Screen(settings)
    async with opened(settings) as runtime:
        rows = await runtime.schedules.list()
    if json:
        screen.json([_document(row) for row in rows])
        return OK
    if not rows:
        screen.say("no schedules")
        return OK
    columns = (
        Column("schedule"),
        Column("agent", cut=True, leaves=1),
        Column("times", cut=True, leaves=6),
        Column("next"),
        Column("last", leaves=2),
        Column("started", leaves=3),
        Column("skipped", leaves=4),
        Column("missed", leaves=5),
    )
    screen.table(
        columns,
        [
            [
                row.name,
                one_line(row.schedule.agent_name),
                one_line(_times(row)),
                ("paused", "yellow") if row.paused else _moment(row, row.next_at),
                "" if row.last is None else _moment(row, row.last.due_at),
                str(row.counts.started),
                str(row.counts.skipped),
                str(row.counts.missed),
            ]
            for row in rows
        ],
    )
    return OK


async def _show(settings: Settings, name: str, *, json: bool) -> int:
    from ..opening import opened
    from ..output.tables import Column
    from ..output.terminal import Screen

    screen = Screen(settings)
    async with opened(settings) as runtime:
        row = await runtime.schedules.get(name)
    if json:
        screen.json(_document(row))
        return OK
    for field, value in _fields(row):
        screen.field(field, value, _LABEL)
    if row.recent:
        screen.tell("")
        columns = Column("for"), Column("outcome"), Column("times"), Column("run"), Column("why", below=True)
        screen.table(columns, [_occurrence(row, each) for each in reversed(row.recent)])
    return OK


_LABEL = 8
_STYLES = {"started": "green", "skipped": "yellow", "missed": "red"}


def _fields(row: ScheduleRow) -> Iterator[tuple[str, str]]:
    from ..output.escaping import json_text, one_line

    schedule = row.schedule
    given = schedule.input if isinstance(schedule.input, str) else json_text(schedule.input)
    yield "schedule", row.name
    yield "agent", one_line(schedule.agent_name)
    yield "times", one_line(_times(row))
    yield "input", one_line(given)
    jitter = f", jitter {schedule.jitter_s:g} s" if schedule.jitter_s else ""
    yield (
        "policies",
        f"overlap {schedule.overlap}, missed {schedule.missed}, catch-up {schedule.catchup_s:g} s{jitter}",
    )
    yield "next", "paused" if row.paused else _moment(row, row.next_at)
    if row.wanted:
        yield "by hand", _waiting(row)
    counts = row.counts
    yield "so far", f"{counts.started} started, {counts.skipped} skipped, {counts.missed} missed"
    if row.by:
        yield "by", one_line(row.by)


def _occurrence(row: ScheduleRow, each: Occurrence) -> list[Cell]:
    from ..output.escaping import one_line

    reason = " ".join(filter(None, (one_line(each.reason), f"by {one_line(each.by)}" if each.by else "")))
    return [
        _moment(row, each.due_at),
        (each.outcome, _STYLES[each.outcome]),
        str(each.count),
        one_line(each.run),
        reason,
    ]


async def _next(settings: Settings, name: str, count: int, after: str | None, *, json: bool) -> int:
    from ....runtime.triggers.calendar import local_zone
    from ..opening import opened
    from ..output.terminal import Screen
    from ..output.times import time_of

    screen = Screen(settings)
    async with opened(settings) as runtime:
        row = await runtime.schedules.get(name)
        now = runtime.log.clock.now()
    at: float | None = now if after is None else time_of(after, now, local_zone(row.schedule.tz))
    times: list[float] = []
    calendar = row.schedule.calendar
    while at is not None and len(times) < count:
        at = calendar.after(at)
        times += [] if at is None else [at]
    if json:
        screen.json([{"due_at": each, "local": _moment(row, each)} for each in times])
    else:
        for each in times:
            screen.tell(_moment(row, each))
    return OK


def _steer(context: typer.Context, word: str, name: str, by: str, told: str) -> int:
    from ..loops import run_async

    return run_async(_do(settings_of(context), word, name, by, told))


async def _do(settings: Settings, word: str, name: str, by: str, told: str) -> int:
    from ..opening import opened
    from ..output.terminal import Screen

    async with opened(settings) as runtime:
        await getattr(runtime.schedules, word)(name, by=by)
    Screen(settings).tell(f"schedule {name}: {told}")
    return OK


async def _backfill(settings: Settings, name: str, start: str, end: str, by: str) -> int:
    from datetime import UTC, datetime

    from ....runtime.triggers.calendar import local_zone
    from ..opening import opened
    from ..output.terminal import Screen
    from ..output.times import time_of

    async with opened(settings) as runtime:
        now = runtime.log.clock.now()
        zone = local_zone((await runtime.schedules.get(name)).schedule.tz)
        first, last = (datetime.fromtimestamp(time_of(each, now, zone), UTC) for each in (start, end))
        row = await runtime.schedules.backfill(name, first, last, by=by)
    Screen(settings).tell(f"schedule {name}: {_waiting(row)}")
    return OK


def _waiting(row: ScheduleRow) -> str:
    """Return how many times that somebody asked for by hand are not started yet."""
    return f"{row.wanted} {'time waits' if row.wanted == 1 else 'times wait'} for a worker"


def _times(row: ScheduleRow) -> str:
    schedule = row.schedule
    if schedule.cron is not None:
        return f"{schedule.cron} {schedule.tz}"
    origin = f" from {schedule.from_}" if schedule.from_ is not None else ""
    return f"every {schedule.every}{origin}"


def _moment(row: ScheduleRow, at: float | None) -> str:
    """Return a time in the time zone of the schedule."""
    return _local(row.schedule, at)


def _local(schedule: Schedule, at: float | None) -> str:
    from ....runtime.triggers.calendar import local

    return "never" if at is None else local(at, schedule.tz)


def _document(row: ScheduleRow) -> dict[str, Any]:
    import msgspec

    return {"name": row.name, **msgspec.to_builtins(row)}
