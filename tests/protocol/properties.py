"""What must hold of a log whatever happened to those who wrote it: P1 to P9 of the protocol's model.

Judged from the stored bytes alone, without any code of the runtime, so that a mutation of the runtime cannot hide.
"""

from __future__ import annotations

from collections.abc import Iterator

from foldlog.eventlog.commits import Commit, digest_of_bytes
from foldlog.eventlog.events import (
    OBSERVABLE,
    ApprovalResolved,
    CancelRequested,
    Claimed,
    LaneUpdated,
    Parked,
    Released,
    Submitted,
    ToolStarted,
    is_terminal,
)
from foldlog.eventlog.ports import Stored
from foldlog.replay import check_trace, trace_of

from tests.protocol.world import World


class _Run:
    """What the log has said of a run so far."""

    def __init__(self) -> None:
        self.revision, self.digest = 0, ""
        self.epoch, self.owner = 0, ""
        self.over = False
        self.cancels: set[str] = set()
        self.lane: str | None = None
        self.parent: str | None = None


def violations(world: World, *, ended: bool = True) -> list[str]:
    """Every property that the world breaks, each told as `P4 ...`. `ended`: every run should be over by now."""
    runs: dict[str, _Run] = {}
    lanes: dict[str, list[str]] = {}
    found: list[str] = []
    for stored, commit in world.commits():
        if stored.subject.kind == "lane":
            for event in commit.events:
                if isinstance(event, LaneUpdated):
                    lanes[stored.subject.id] = [entry.run for entry in event.queue]
        elif stored.subject.kind == "run":
            run = runs.setdefault(stored.subject.id, _Run())
            found += _commit(stored, commit, run, runs, lanes)
    found += _families(runs)
    found += _starts(world)
    if ended:
        found += [f"P3 lost run {run}" for run, facts in runs.items() if not facts.over]
    return found or list(_rules(world, ended=ended))


def _commit(
    stored: Stored, commit: Commit, run: _Run, runs: dict[str, _Run], lanes: dict[str, list[str]]
) -> Iterator[str]:
    name = stored.subject.id
    if commit.rev != run.revision + 1 or commit.prev != run.digest:
        yield f"P5 fork: revision {commit.rev} of {name} does not follow {run.revision}"
    run.revision, run.digest = commit.rev + len(commit.events) - 1, digest_of_bytes(stored.data)
    claims = any(isinstance(event, Claimed) for event in commit.events)
    if commit.epoch and not run.over:
        in_force = run.epoch + 1 if claims else run.epoch
        if commit.epoch != in_force or not (claims or run.owner):
            in_force_now = f"{run.epoch} of {run.owner!r}"
            yield f"P5 fork: {name} revision {commit.rev} of epoch {commit.epoch}, in force {in_force_now}"
        head = next((queue[0] for queue in lanes.values() if name in queue), name)
        if head != name and run.revision > len(commit.events):
            yield f"P6 {name} executes while {head} is at the head of its lane"
    for event in commit.events:
        if run.over and isinstance(event, OBSERVABLE):
            yield f"{'P1' if is_terminal(event) else 'P2'} {event.type} of {name} behind its terminal"
        if isinstance(event, OBSERVABLE) and run.parent is not None and runs[run.parent].over:
            yield f"P7 {event.type} of {name} behind the terminal of its parent"
        _fold(run, event)


def _fold(run: _Run, event: object) -> None:
    match event:
        case Submitted():
            run.lane, run.parent = event.lane, event.parent.run if event.parent else None
        case Claimed():
            run.epoch, run.owner = event.epoch, event.worker
        case Parked() | Released():
            run.owner = ""
        case CancelRequested():
            run.cancels.add(event.reason)
        case _ if is_terminal(event):  # type: ignore[arg-type] # an event
            run.over = True
        case _:
            pass


def _families(runs: dict[str, _Run]) -> Iterator[str]:
    for name, run in runs.items():
        if run.parent is not None and runs[run.parent].over and not run.over:
            yield f"P7 {name} outlives its parent {run.parent}"
        if run.parent is not None and "family" in run.cancels - runs[run.parent].cancels:
            yield f"P8 half a family: {name} is cancelled, its parent {run.parent} is not"


def _starts(world: World) -> Iterator[str]:
    for start in world.starts:
        if start.late:
            yield f"P4 unsafe {start.call} of {start.run} was started by {start.by} though nobody may"
    for run, call in dict.fromkeys((start.run, start.call) for start in world.starts):
        events = [event for event in world.events_of(run) if event.tool_call_id == call]
        started = sum(isinstance(event, ToolStarted) for event in events)
        retries = sum(isinstance(event, ApprovalResolved) and event.outcome == "retry" for event in events)
        times = sum((start.run, start.call) == (run, call) for start in world.starts)
        if times > min(started, 1 + retries):
            yield f"P4 unsafe {call} of {run} was started {times} times"


def _rules(world: World, *, ended: bool) -> Iterator[str]:
    for root in world.roots():
        stored = [s for s, _ in world.commits() if s.subject.kind == "run" and s.subject.root == root]
        yield from (str(violation) for violation in check_trace(trace_of(stored), ended=ended))


def left_over(world: World) -> list[str]:
    """Wake-ups that nobody has acknowledged."""
    return [str(message.wakeup) for message in world.log.wakeups._messages.values()]
