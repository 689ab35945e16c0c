"""The story of a played schedule as text: the commits, and the faults between them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ...eventlog.commits import Commit
from ...eventlog.events import Event
from ...eventlog.ports import Stored
from .injected import Injected
from .world import World

_TELLING = ("status", "reason", "worker", "tool_name")
"""The fields that distinguish two events of one type."""


class Line(msgspec.Struct, frozen=True):
    """A commit (`process` is empty) or a fault of a process, with its time (s)."""

    at_s: float
    process: str
    text: str

    def __str__(self) -> str:
        process = f"{self.process:>10} ! " if self.process else f"{'':>10}   "
        return f"{self.at_s:9.3f} s {process}{self.text}"


def tell(world: World) -> tuple[Line, ...]:
    """Return the commits and the faults, in order."""
    return tuple(_lines(world))


def _lines(world: World) -> Iterator[Line]:
    shown, commits = 0, world.commits()
    started = world.clock.begins_at
    for happened in world.happened:
        for stored, commit in commits[shown : happened.commits]:
            yield _commit(stored, commit, started)
        shown = max(shown, happened.commits)
        if happened.fault is not None:
            what = (
                _without_process(happened.fault)
                if isinstance(happened.fault, Injected)
                else repr(happened.fault)
            )
            yield Line(happened.at_s, happened.process, what)
    for stored, commit in commits[shown:]:
        yield _commit(stored, commit, started)


def _without_process(fault: Injected) -> str:
    return str(fault).partition(": ")[2]


def _commit(stored: Stored, commit: Commit, started: float) -> Line:
    subject = stored.subject
    where = commit.path if subject.kind == "run" else subject.kind
    epoch = f", epoch {commit.epoch}" if commit.epoch else ""
    events = ", ".join(_named(event) for event in commit.events)
    short = f"{where} ({subject.id[-4:]}) {commit.rev}{epoch}: {events}"
    return Line(commit.at - started, "", short)


def _named(event: Event) -> str:
    found = (getattr(event, name, "") for name in _TELLING)
    words = [str(value) for value in found if value]
    return f"{event.type}({', '.join(words)})" if words else event.type
