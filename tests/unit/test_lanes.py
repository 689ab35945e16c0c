"""Lanes: one run of a session after the other, in the order in which they came."""

from __future__ import annotations

import pytest
from foldlog.eventlog.events import LaneEntry, LaneUpdated
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.names import lane_subject
from foldlog.eventlog.ports import CommitWrite, Subject, WakeWrite
from foldlog.runtime.journal.lanes import (
    at_head_of_lane,
    drop_purged_head,
    hand_lane_on,
    join_lane,
    read_lane,
)
from foldlog.runtime.journal.register import read_register, register_write

from .test_core import SUBMITTED
from .test_proof import stored

LANE = "talk"


def entry(run: str) -> LaneEntry:
    return LaneEntry(run=run, agent="agent", revision=3)


async def a_lane(log: MemoryLog, *runs: str) -> None:
    """These runs have joined it."""
    for run in runs:
        await stored(log, Subject(0, "run", run, run), SUBMITTED, epoch=0)
        write, at_head, revision = await join_lane(log, LANE, entry(run))
        assert (at_head, revision) == (run == runs[0], runs.index(run) + 1)
        await log.events.append(write)


async def test_only_the_head_starts_and_later_runs_wait() -> None:
    log = MemoryLog()
    await a_lane(log, "one", "two", "three")
    assert [each.run for each in (await read_lane(log, LANE))[2]] == ["one", "two", "three"]
    heads = [await at_head_of_lane(log, LANE, run, 3) for run in ("one", "two", "three", "none")]
    assert heads == [True, False, False, False]
    assert await at_head_of_lane(log, LANE, "two", 4) is None, "a read that is older decides nothing"


async def test_who_leaves_the_head_wakes_the_next_which_has_to_see_that_it_is() -> None:
    log = MemoryLog()
    await a_lane(log, "one", "two", "three")
    assert [type(write) for write in await hand_lane_on(log, LANE, "two")] == [CommitWrite]
    _, wake = await hand_lane_on(log, LANE, "one")
    assert isinstance(wake, WakeWrite)
    assert (wake.wakeup.run, wake.wakeup.cause, wake.wakeup.lane_cause) == ("two", 3, 4)


async def test_who_drops_a_purged_run_from_the_head_wakes_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foldlog.runtime.journal.lanes.PURGED_LOOKS", 1)
    log = MemoryLog()
    await a_lane(log, "next", "last")
    subject = lane_subject(LANE, log.events.shards)
    head, _ = await read_register(log, subject)
    queue = [entry(run) for run in ("gone", "next", "last")]
    await log.events.append(register_write(log, subject, head, LaneUpdated(queue=queue)))
    assert await drop_purged_head(log, LANE)
    (wakeup,) = log.wakeups.unacknowledged
    assert (wakeup.run, wakeup.lane_cause) == ("next", 4)
    assert [each.run for each in (await read_lane(log, LANE))[2]] == ["next", "last"]
    assert not await drop_purged_head(log, LANE)
