"""Random schedules of every scenario: whatever happens, the protocol holds.

A schedule that fails is played again, made smaller and told by `foldlog simulate --scenario NAME --seed N --shrink`.
"""

from __future__ import annotations

import pytest
from foldlog.replay.simulation import SCENARIOS, search

SEEDS = 20


@pytest.mark.parametrize("name", SCENARIOS)
def test_whatever_happens_the_protocol_holds(name: str) -> None:
    report = search(scenario=name, schedules=SEEDS)
    assert report.ok, report.render()
    assert report.schedules == SEEDS


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_whatever_happens_in_thousands_of_schedules_the_protocol_holds() -> None:
    report = search(first=SEEDS, schedules=20_000, processes=2)
    assert report.ok, report.render()
