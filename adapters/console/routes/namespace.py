"""Sessions, schedules, comparisons of runs, and the formats of all of it."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from starlette.responses import Response

from ....eventlog.asyncapi import asyncapi_document
from ....eventlog.schema import commit_schema
from ....runtime.triggers.schedule import Schedule
from ....runtime.triggers.schedules import ScheduleRow
from ...http.answers import Refused
from ..routing import Call, Nothing, Route
from .looking import apart, load_apart

if TYPE_CHECKING:
    from ....replay import Diff, Trace

ROWS_MAX = 500


class SessionRow(msgspec.Struct, frozen=True):
    """A session, and the number of its runs."""

    session: str
    runs: int


class SessionQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The lane of a session; null for the one without a name."""

    lane: str | None = None


class Turns(msgspec.Struct, frozen=True):
    """The turns of a session whose runs are over, oldest first."""

    turns: list[dict[str, Any]]


class DropTurns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number of last turns to remove, and their lane."""

    turns: int
    lane: str | None = None


class Dropped(msgspec.Struct, frozen=True):
    """The number of turns that were removed."""

    dropped: int


class ChangeSchedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pause a schedule, or let it go on."""

    paused: bool


class Compare(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two runs by their ids, or the text of an export (`a_file`, `b_file`) with one family each.

    `rows` selects those that differ, or all: the equal ones, too, in their order.
    """

    a: str = ""
    b: str = ""
    a_file: str = ""
    b_file: str = ""
    rows: Literal["differing", "all"] = "differing"
    after: int = 0
    limit: int = 200


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict, the first difference with its rule, and the rows asked for; `next` is the `after` of more."""

    equal: bool
    boundaries_equal: int
    boundaries: int
    left: dict[str, Any]
    right: dict[str, Any]
    first_difference: dict[str, Any] | None
    rows: list[dict[str, Any]]
    next: int | None


async def list_sessions(call: Call[Nothing, Nothing]) -> list[SessionRow]:
    """List the sessions with their number of runs."""
    counts = await (await call.door.index()).count_sessions()
    return [SessionRow(name, count) for name, count in sorted(counts.items())]


async def show_session(call: Call[SessionQuery, Nothing]) -> Turns:
    """Show the turns of a session."""
    history = await call.runtime.history(call.path("session"), call.query.lane)
    return Turns(msgspec.to_builtins(history.turns))


async def drop_turns(call: Call[Nothing, DropTurns]) -> Dropped:
    """Remove the last turns from a session's history."""
    dropped = await call.runtime.drop_last_user_turns(
        call.path("session"), call.body.turns, call.body.lane, by=call.author
    )
    return Dropped(dropped)


async def list_schedules(call: Call[Nothing, Nothing]) -> list[ScheduleRow]:
    """List the schedules with their next time, last times and counts."""
    return await call.runtime.schedules.list()


async def apply_schedule(call: Call[Nothing, dict[str, Any]]) -> ScheduleRow:
    """Create or change a schedule."""
    try:
        schedule = msgspec.convert(call.body, Schedule)
    except msgspec.ValidationError as error:
        raise Refused(422, f"the schedule: {error}") from None
    return await call.runtime.schedules.apply(schedule, by=call.actor.name)


async def change_schedule(call: Call[Nothing, ChangeSchedule]) -> ScheduleRow:
    """Pause a schedule, or let it go on."""
    schedules, name = call.runtime.schedules, call.path("schedule")
    change = schedules.pause if call.body.paused else schedules.resume
    return await change(name, by=call.actor.name)


async def trigger_schedule(call: Call[Nothing, Nothing]) -> ScheduleRow:
    """Start a run of a schedule now."""
    return await call.runtime.schedules.trigger(call.path("schedule"), by=call.actor.name)


async def delete_schedule(call: Call[Nothing, Nothing]) -> dict[str, bool]:
    """Delete a schedule."""
    await call.runtime.schedules.delete(call.path("schedule"), by=call.actor.name)
    return {"deleted": True}


async def compare(call: Call[Nothing, Compare]) -> Compared:
    """Compare what two runs did, without ids, times and retries."""
    from ....replay.ordering.documents import document

    asked = call.body
    if not 1 <= asked.limit <= ROWS_MAX or asked.after < 0:
        raise Refused(422, f"limit is from 1 to {ROWS_MAX}, after from 0")
    found, roots = await _compared(call)
    told = document(found, roots, after=asked.after, limit=asked.limit, equal_too=asked.rows == "all")
    return msgspec.convert(told, Compared)


async def compare_page(call: Call[Nothing, Compare]) -> Response:
    """Download the comparison of two runs as a page of HTML that loads and runs nothing."""
    from ....replay.ordering.diff_page import page

    found, roots = await _compared(call)
    name = "comparison.html"
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'",
    }
    return Response(await apart(lambda: page(found, roots, roots)), headers=headers, media_type="text/html")


async def _compared(call: Call[Nothing, Compare]) -> tuple[Diff, tuple[str, str]]:
    from ....replay import canonical, diff

    asked = call.body
    left, right = await _trace(call, asked.a, asked.a_file), await _trace(call, asked.b, asked.b_file)
    return await apart(lambda: diff(canonical(left), canonical(right))), (left.root, right.root)


async def _trace(call: Call[Any, Any], run: str, text: str) -> Trace:
    from ....replay import read_archive

    if bool(run) == bool(text):
        raise Refused(422, "give a run or a file for each side")
    if run:
        namespace, subject = await call.runtime.place(run)
        return await load_apart(namespace.log, subject)
    traces = await apart(lambda: read_archive(text.encode()).traces)
    if len(traces) != 1:
        raise Refused(422, f"a file to compare holds one family, not {len(traces)}")
    return next(iter(traces.values()))


async def schema(_: Call[Nothing, Nothing]) -> dict[str, Any]:
    """Show the JSON Schema of a stored commit and of all events."""
    return commit_schema()


async def asyncapi(_: Call[Nothing, Nothing]) -> dict[str, Any]:
    """Show the subjects and messages of the log as an AsyncAPI document."""
    return asyncapi_document(version("foldlog"))


_SCHEDULE = "/schedules/{schedule}"
ROUTES = (
    Route(method="GET", path="/sessions", role="viewer", endpoint=list_sessions, answer=list[SessionRow]),
    Route(
        method="GET",
        path="/sessions/{session:path}",
        role="viewer",
        endpoint=show_session,
        query=SessionQuery,
        answer=Turns,
    ),
    Route(
        method="POST",
        path="/sessions/{session:path}/drop",
        role="operator",
        endpoint=drop_turns,
        body=DropTurns,
        answer=Dropped,
    ),
    Route(method="GET", path="/schedules", role="viewer", endpoint=list_schedules, answer=list[ScheduleRow]),
    Route(
        method="POST",
        path="/schedules",
        role="operator",
        endpoint=apply_schedule,
        body=dict[str, Any],
        answer=ScheduleRow,
    ),
    Route(
        method="PATCH",
        path=_SCHEDULE,
        role="operator",
        endpoint=change_schedule,
        body=ChangeSchedule,
        answer=ScheduleRow,
    ),
    Route(
        method="POST",
        path=f"{_SCHEDULE}/trigger",
        role="operator",
        endpoint=trigger_schedule,
        body=Nothing,
        answer=ScheduleRow,
        cost="start",
    ),
    Route(method="DELETE", path=_SCHEDULE, role="operator", endpoint=delete_schedule, answer=dict[str, bool]),
    Route(
        method="POST",
        path="/compare",
        role="viewer",
        endpoint=compare,
        body=Compare,
        answer=Compared,
        cost="heavy",
        body_bytes_max=64 << 20,
    ),
    Route(
        method="POST",
        path="/compare/page",
        role="viewer",
        endpoint=compare_page,
        body=Compare,
        cost="heavy",
        media="text/html",
        body_bytes_max=64 << 20,
    ),
    Route(method="GET", path="/schema.json", role="viewer", endpoint=schema, answer=dict[str, Any]),
    Route(method="GET", path="/asyncapi.json", role="viewer", endpoint=asyncapi, answer=dict[str, Any]),
)
