"""Faults of snapshots do not affect runs: crashes next to them, late old ones, stale reads."""

from __future__ import annotations

import pytest
from foldlog.eventlog.faults import CrashAt, Delay, Fault, LateAppend, Outage, Refused, StaleRead

from tests.protocol.play import differences, play, problems

PUT, GET = "snapshots.put", "snapshots.get"


@pytest.mark.parametrize("scenario", ["unsafe", "waiting_child", "pause"])
@pytest.mark.parametrize(
    "fault",
    [
        *(CrashAt(number, PUT, after=after) for number in (1, 2, 3) for after in (False, True)),
        CrashAt(1, GET),
        Delay(2, PUT, 30.0),
        LateAppend(1, PUT),
        Outage(1, PUT, 2.0),
        Refused(1, PUT),
        Refused(1, GET),
        StaleRead(3, "events.read", 5),
    ],
    ids=repr,
)
def test_a_run_is_the_same_whatever_befalls_its_snapshots(scenario: str, fault: Fault) -> None:
    """A snapshot that is late comes in the place of a newer one, as that of an executor which was stopped before."""
    played = play(scenario, [fault])
    assert played.victim.handle.fired == [fault]
    assert played.world.snapshots.stored
    assert problems(played) == []
    assert differences(scenario, played) == []
