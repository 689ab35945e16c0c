"""For whatever script, tools, inputs and faults: the local trace equals the durable one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.faults import Fault
from foldlog.eventlog.jetstream.log import JetStreamLog
from foldlog.replay import Comparison, Trace, canonical, check_trace, compare, rerun
from foldlog.replay.strategies import Scenario, faults, scenarios, traces
from foldlog.replay.swarm_strategies import SwarmScenario, swarm_scenarios
from hypothesis import HealthCheck, given, settings

EXAMPLES = settings(
    max_examples=60,  # `make nightly` has thousands
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


@settings(EXAMPLES, max_examples=40)
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


# --- on a real server -------------------------------------------------------------------------------------------------


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def log(anyio_backend: str) -> AsyncIterator[JetStreamLog]:
    async with EphemeralServer() as server, JetStreamLog.open(server.url, ack_wait_s=1.0) as opened:
        yield opened


@pytest.mark.timeout(180)
@settings(EXAMPLES, max_examples=16)
@given(scenario=scenarios(), planned=faults())
async def test_executors_agree_on_a_real_server(
    log: JetStreamLog, scenario: Scenario, planned: tuple[Fault, ...]
) -> None:
    report = await scenario.check(faults=planned, log=log, timeout_s=20.0)
    assert report.equal, report.render()


@pytest.mark.nightly
@pytest.mark.timeout(900)
@settings(MANY, max_examples=300)
@given(scenario=scenarios(), planned=faults())
async def test_hundreds_of_scripts_are_equal_on_a_real_server(
    log: JetStreamLog, scenario: Scenario, planned: tuple[Fault, ...]
) -> None:
    report = await scenario.check(faults=planned, log=log, timeout_s=20.0)
    assert report.equal, report.render()


@settings(EXAMPLES, max_examples=40)
@given(swarm_scenarios(), faults(operations_max=90))
def test_swarms_are_equal_on_both_executors_whatever_befalls_the_worker(
    scenario: SwarmScenario, planned: tuple[Fault, ...]
) -> None:
    report = asyncio.run(scenario.check(faults=planned, timeout_s=20.0))
    assert report.equal, report.render()


@settings(EXAMPLES, max_examples=12)
@given(swarm_scenarios())
def test_a_recorded_swarm_runs_again_without_models_tools_and_functions(scenario: SwarmScenario) -> None:
    async def again() -> Comparison:
        trace = (await scenario.check(timeout_s=20.0)).traces["local"]
        return compare(trace, await rerun(trace, executor="durable", timeout_s=20.0))

    comparison = asyncio.run(again())
    assert comparison.equal, comparison.first_difference
