"""Schedules and hooks in golden histories: their registers' commits, and what is read from and decided about each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
from foldlog.eventlog.commits import decode, digest_of_bytes
from foldlog.eventlog.events import ScheduleUpdated
from foldlog.eventlog.memory import MemoryLog
from foldlog.runtime.triggers.judging import due, wakes_at
from foldlog.runtime.triggers.schedule import checked, schedule_of

KINDS = ("sched", "hook")
LATER_S = (0.0, 60.0, 86400.0)
"""At these times after its next one a schedule is judged."""


def registers(log: MemoryLog) -> bytes:
    """Return the commits of all schedules and hooks of a log, a line each; none for a log without any."""
    told = [
        {
            "subject": f"{each.subject.kind}.{each.subject.id}",
            "position": each.position,
            "data": each.data.decode(),
        }
        for each in log.events.stored
        if each.subject.kind in KINDS
    ]
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in told)


def expectation(data: bytes) -> list[Any]:
    """Return what is read from each of these lines, and what is decided about a schedule then and later."""
    return json.loads(msgspec.json.encode(list(_read(data))))  # type: ignore[no-any-return]


def _read(data: bytes) -> Iterator[dict[str, Any]]:
    before: dict[str, str] = {}
    for line in data.splitlines():
        told = json.loads(line)
        stored = told["data"].encode()
        commit = decode(stored)
        chained = commit.prev == before.get(told["subject"], commit.prev)
        before[told["subject"]] = digest_of_bytes(stored)
        (event,) = commit.events
        found = {"rev": commit.rev, "chained": chained, "event": msgspec.to_builtins(event)}
        yield found | (_judged(event, commit.at) if isinstance(event, ScheduleUpdated) else {})


def _judged(event: ScheduleUpdated, at: float) -> dict[str, Any]:
    first = at if event.next_at is None else event.next_at
    return {
        "valid": checked(schedule_of(event.name, event.spec)).agent_name,
        "wakes_at": wakes_at(event, at),
        "due": [due(event, at), *(due(event, first + later_s) for later_s in LATER_S)],
    }
