"""The rehearsals of docs/rehearsals.md: servers die, hang, are cut off, fill and restart under fifty runs."""

import dataclasses

import pytest

from tests.cluster.rehearse import RESTARTS, rehearse

SECONDS = {1: 120.0, 3: 500.0}
"""With three servers the leader is killed every ten seconds for five minutes; the other faults need the rest."""


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("servers", SECONDS)
async def test_a_rehearsal_loses_doubles_and_forgets_nothing(servers: int) -> None:
    report = await rehearse(servers, SECONDS[servers])
    assert report.is_clean, dataclasses.asdict(report)
    assert sum(count for fault, count in report.faults.items() if fault.startswith("kill")) >= 10
    if servers > 1:
        assert report.faults[RESTARTS] == 1
    assert report.longest_stall_s < 60
