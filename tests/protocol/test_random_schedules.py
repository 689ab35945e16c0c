"""Random schedules of every scenario: whatever happens, the protocol holds (P1 to P15, P20).

A schedule that fails is played again, made smaller and told by `foldlog simulate --scenario NAME --seed N --shrink`.
"""

from __future__ import annotations

import pytest
from foldlog.replay.simulation import SCENARIOS, search

SEEDS = 3
SHARDS, SEEDS_OF_A_SHARD = 40, 5
"""Of the nightly set; each seed is played in every scenario, so that a shard takes a core some twenty seconds."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_whatever_happens_the_protocol_holds(name: str) -> None:
    report = search(scenario=name, schedules=SEEDS)
    assert report.ok, report.render()
    assert report.schedules == SEEDS


@pytest.mark.nightly
@pytest.mark.parametrize("shard", range(SHARDS))
def test_whatever_happens_in_thousands_of_schedules_the_protocol_holds(shard: int) -> None:
    report = search(first=SEEDS + shard * SEEDS_OF_A_SHARD, schedules=len(SCENARIOS) * SEEDS_OF_A_SHARD)
    assert report.ok, report.render()
