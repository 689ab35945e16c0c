"""For whatever script, tools, inputs and faults: the local trace equals the durable one."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings

from foldlog.eventlog.faults import Fault
from foldlog.replay import Trace, canonical, check_trace
from foldlog.replay.strategies import Scenario, faults, scenarios, traces

EXAMPLES = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
MANY = settings(EXAMPLES, max_examples=2500, derandomize=False)


def prove(scenario: Scenario, planned: tuple[Fault, ...]) -> None:
    report = asyncio.run(scenario.check(faults=planned, timeout_s=20.0))
    assert report.equal, report.render()


@EXAMPLES
@given(scenarios(), faults())
def test_local_and_durable_traces_are_equal_whatever_befalls_the_worker(
    scenario: Scenario, planned: tuple[Fault, ...]
) -> None:
    prove(scenario, planned)


@EXAMPLES
@given(scenarios(cancelled=True), faults())
def test_a_cancelled_trace_is_a_prefix_whatever_befalls_the_worker(
    scenario: Scenario, planned: tuple[Fault, ...]
) -> None:
    prove(scenario, planned)


@settings(EXAMPLES, max_examples=30)
@given(traces())
def test_a_trace_keeps_the_rules_and_ends(trace: Trace) -> None:
    assert check_trace(trace) == []
    assert canonical(trace).size >= 3


@pytest.mark.nightly
@pytest.mark.timeout(900)
@MANY
@given(scenarios(), faults())
def test_thousands_of_scripts_are_equal_on_both_executors(
    scenario: Scenario, planned: tuple[Fault, ...]
) -> None:
    prove(scenario, planned)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@MANY
@given(scenarios(cancelled=True), faults())
def test_thousands_of_cancelled_runs_are_prefixes(scenario: Scenario, planned: tuple[Fault, ...]) -> None:
    prove(scenario, planned)
