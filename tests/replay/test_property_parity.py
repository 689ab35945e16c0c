"""For whatever script, tools, inputs and faults: the local trace equals the durable one, and both are shown as stored.

In virtual time, where a seed decides what runs next, and on a real server. `make nightly` has thousands, in shards of
so many examples that each ends within minutes. None is made smaller, so that a failing one takes no longer than others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.faults import Fault
from foldlog.eventlog.jetstream.log import JetStreamLog
from foldlog.replay import Comparison, Trace, canonical, check_trace, compare, rerun
from foldlog.replay.pytest_plugin import Server
from foldlog.replay.strategies.forks import (
    FamilyForkScenario,
    ForkScenario,
    family_fork_scenarios,
    fork_scenarios,
)
from foldlog.replay.strategies.loops import LoopScenario, loop_scenarios
from foldlog.replay.strategies.runs import Scenario, check_simulated, faults, scenarios, traces
from foldlog.replay.strategies.swarms import SwarmScenario, swarm_scenarios
from foldlog.replay.strategies.workflows import WorkflowScenario, workflow_scenarios
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

Drawn = Scenario | SwarmScenario | LoopScenario | WorkflowScenario | ForkScenario | FamilyForkScenario

EXAMPLES = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
KINDS: dict[str, Callable[[], st.SearchStrategy[Drawn]]] = {
    "agents": scenarios,
    "cancelled": lambda: scenarios(cancelled=True),
    "swarms": swarm_scenarios,
    "loops": loop_scenarios,
    "workflows": workflow_scenarios,
    "forks": fork_scenarios,
    "forked families": family_fork_scenarios,
}
OPERATIONS_MAX = 90
SOME = {"workflows": 8}
"""The number of examples by day of a kind whose examples are long."""
SHARDS, EXAMPLES_OF_A_SHARD = 5, 100
"""Of each kind, in the nightly set."""
SERVER_SHARDS, EXAMPLES_OF_A_SERVER = 30, 10
"""Few, since workflows sleep up to half a minute each there, and a shard may be drawn that has nothing else."""
picks = st.none() | st.integers(0, 2**32)


def prove(drawn: Drawn, planned: tuple[Fault, ...], pick: int | None) -> None:
    report = check_simulated(drawn, seed=pick, faults=planned)
    assert report.equal, report.render()


@pytest.mark.parametrize("kind", KINDS)
def test_executors_agree_whatever_befalls_the_worker_and_whatever_runs_next(kind: str) -> None:
    some = settings(EXAMPLES, max_examples=SOME.get(kind, EXAMPLES.max_examples))
    some(given(KINDS[kind](), faults(operations_max=OPERATIONS_MAX), picks)(prove))()


@pytest.mark.nightly
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_examples_are_equal_on_both_executors(kind: str, shard: int) -> None:
    many = settings(EXAMPLES, max_examples=EXAMPLES_OF_A_SHARD, derandomize=False)
    seed(shard)(many(given(KINDS[kind](), faults(operations_max=OPERATIONS_MAX), picks)(prove)))()


@settings(EXAMPLES, max_examples=20)
@given(traces())
def test_a_trace_keeps_the_rules_and_ends(trace: Trace) -> None:
    assert check_trace(trace) == []
    assert canonical(trace).size >= 3


# --- on a real server -------------------------------------------------------------------------------------------------


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def log(anyio_backend: str) -> AsyncIterator[JetStreamLog]:
    async with EphemeralServer() as server, JetStreamLog.open(server.url, ack_wait_s=1.0) as opened:
        yield opened


every_kind: st.SearchStrategy[Drawn] = st.one_of(make() for make in KINDS.values())


@settings(EXAMPLES, max_examples=12)
@given(drawn=every_kind, planned=faults())
async def test_executors_agree_on_a_real_server(
    log: JetStreamLog, drawn: Drawn, planned: tuple[Fault, ...]
) -> None:
    report = await drawn.check(faults=planned, log=log, timeout_s=120)
    assert report.equal, report.render()


@pytest.mark.nightly
@pytest.mark.parametrize("shard", range(SERVER_SHARDS))
def test_hundreds_of_examples_are_equal_on_a_real_server(shard: int, foldlog_server: Server) -> None:
    async def check(drawn: Drawn, planned: tuple[Fault, ...]) -> None:
        async with JetStreamLog.open(foldlog_server.url, ack_wait_s=1.0) as log:
            report = await drawn.check(faults=planned, log=log, timeout_s=120)
            assert report.equal, report.render()

    many = settings(EXAMPLES, max_examples=EXAMPLES_OF_A_SERVER, derandomize=False)
    prove = given(every_kind, faults())(lambda drawn, planned: asyncio.run(check(drawn, planned)))
    seed(shard)(many(prove))()


@settings(EXAMPLES, max_examples=12)
@given(swarm_scenarios())
def test_a_recorded_swarm_runs_again_without_models_tools_and_functions(scenario: SwarmScenario) -> None:
    async def again() -> Comparison:
        trace = (await scenario.check(timeout_s=120)).traces["local"]
        return compare(trace, await rerun(trace, executor="durable", timeout_s=120))

    comparison = asyncio.run(again())
    assert comparison.equal, comparison.first_difference
