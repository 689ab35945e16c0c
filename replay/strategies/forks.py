"""Hypothesis strategies for forks: a run of a drawn agent, swarm or loop, forked at any revision and continued.

    @given(fork_scenarios(), faults())
    def test_executors_agree(scenario: ForkScenario, planned: tuple[Fault, ...]) -> None:
        report = check_simulated(scenario, faults=planned)
        assert report.equal, report.render()

Needs the extra `foldlog[test]`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from ...eventlog.events import ForkTools
from ...eventlog.memory import MemoryLog
from ...eventlog.ports import Log
from ...runtime import LocalExecutor
from ..parity.inputs import Answer, without_cancels
from ..parity.parity import ParityReport, staged
from ..parity.scripts import read_script
from ..parity.stage import ForkOf, play
from .loops import LoopScenario, loop_scenarios
from .runs import ANSWERS, QUESTION, WORDS, Scenario, scenarios, words
from .swarms import SwarmScenario, swarm_scenarios


class ForkScenario(msgspec.Struct, frozen=True, kw_only=True):
    """A run, and a fork of it after a share of its revisions (0: the first, 1: the last)."""

    origin: Scenario
    share: float
    tools: ForkTools = "ask"
    input: str | None = None

    async def check(self, *, log: Log | None = None, **options: Any) -> ParityReport:
        """Run the origin on the local executor, then `check_parity` with these options on its fork."""
        log = log if log is not None else MemoryLog()
        metadata = await self.origin.remembered(log)
        script, registry = read_script(self.origin.script), self.origin.registry()
        with staged(
            self.origin.agent(), QUESTION, script, log=log, registry=registry, metadata=metadata
        ) as case:
            run = await play(case, "local", LocalExecutor, without_cancels(self.origin.inputs))
        root = run.trace.root
        revisions = sum(event.run_id == root for event in run.trace.events)
        at = 1 + int(self.share * (revisions - 1))
        fork = ForkOf(run=root, at=at, tools=self.tools, input=self.input)
        answers = tuple(item for item in self.origin.inputs if isinstance(item, Answer))
        return await self.origin.check(
            **{"inputs": answers, "metadata": metadata, **options}, log=log, fork=fork
        )


class FamilyForkScenario(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a swarm or a loop, and a fork of it after a share of its revisions (0: the first, 1: the last)."""

    origin: SwarmScenario | LoopScenario
    share: float
    tools: ForkTools = "ask"

    async def check(self, *, log: Log | None = None, **options: Any) -> ParityReport:
        """Run the origin on the local executor, then `check_parity` with these options on its fork."""
        log = log if log is not None else MemoryLog()
        origin = self.origin
        runnable = origin.swarm() if isinstance(origin, SwarmScenario) else origin.loop()
        with staged(runnable, WORDS[0], read_script(origin.script), log=log) as case:
            run = await play(case, "local", LocalExecutor, ANSWERS)
        root = run.trace.root
        revisions = sum(event.run_id == root for event in run.trace.events)
        fork = ForkOf(run=root, at=1 + int(self.share * (revisions - 1)), tools=self.tools)
        return await origin.check(**options, log=log, fork=fork)


def family_fork_scenarios() -> st.SearchStrategy[FamilyForkScenario]:
    """Draw forks of a swarm or a loop with its descendants."""
    return st.builds(
        FamilyForkScenario,
        origin=swarm_scenarios() | loop_scenarios(),
        share=st.floats(0, 1, width=16),
        tools=st.sampled_from(["replay", "ask", "run"]),
    )


def fork_scenarios() -> st.SearchStrategy[ForkScenario]:
    """Draw forks of runs with every feature of an agent."""
    policies: st.SearchStrategy[ForkTools] = st.sampled_from(["replay", "ask", "run"])
    return st.builds(
        ForkScenario,
        origin=scenarios(),
        share=st.floats(0, 1, width=16),
        tools=policies,
        input=st.none() | words,
    )
