"""Hypothesis strategies for Ralph loops: the repeated agent, its scores and reflection, and the stop conditions.

    @given(loop_scenarios(), faults())
    def test_executors_agree(scenario: LoopScenario, planned: tuple[Fault, ...]) -> None:
        report = check_simulated(scenario, faults=planned)
        assert report.equal, report.render()

Needs the extra `foldlog[test]`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from ...runtime import Agent
from ...runtime.agents.loop import RalphLoop, Scorer
from ...runtime.agents.tables import StopTable
from ...runtime.core.loop.config import Reflection, Scored
from ..parity.parity import ParityReport, check_parity
from .runs import ANSWERS, FAST_RETRY, WORDS, Turn, outlasting, policies, scripts, tool_plans
from .tool_plans import ToolPlan

ITERATIONS_MAX = 3
_LESSON = "lesson"


class LoopScenario(msgspec.Struct, frozen=True, kw_only=True):
    """A loop over an agent with a tool. `turns` are the model's replies in each iteration.

    With `reflects`, each iteration's reflection changes the input of the next; otherwise all have the first turns.
    """

    tool: ToolPlan
    turns: tuple[tuple[Turn, ...], ...]
    stop: StopTable
    scored: bool = False
    reflects: bool = False
    config: dict[str, Any] = {}

    @property
    def script(self) -> dict[str, Any]:
        """The script for `check_parity`."""
        first, *others = (list(turns) for turns in self.turns)
        scenes = [{"input": f"{_LESSON} {number}", "turns": turns} for number, turns in enumerate(others, 1)]
        return {"turns": [], "agents": {"writer": first}, "scenes": scenes if self.reflects else []}

    def loop(self) -> RalphLoop:
        """Return the loop with its agent and functions."""
        writer: Agent[Any] = Agent("writer", tools=[self.tool.make()], retry=FAST_RETRY, **self.config)
        scorers: dict[str, Scorer] = {"length": _length, "words": _words} if self.scored else {}
        return RalphLoop(writer, scorers=scorers, reflect=_reflect if self.reflects else None, stop=self.stop)

    async def check(self, **options: Any) -> ParityReport:
        """Call `check_parity` with the loop and these options."""
        options = {"inputs": ANSWERS, **options}
        return await check_parity(self.loop(), WORDS[0], script=self.script, **options)


def _length(scored: Scored) -> float:
    return len(scored.output) / 10


async def _words(scored: Scored) -> float:
    return float(scored.output.count(WORDS[1]))


def _reflect(seen: Reflection) -> str:
    return f"{_LESSON} {seen.iteration}"


@st.composite
def loop_scenarios(draw: st.DrawFn) -> LoopScenario:
    """Draw a loop of at most three iterations, some of which fail."""
    scored = draw(st.booleans())
    stop: StopTable = {
        "max_iterations": draw(st.integers(1, ITERATIONS_MAX)),
        "max_consecutive_failures": draw(st.integers(0, 2)),
        "completion": draw(st.sampled_from(["", WORDS[2]])),
        "score_threshold": draw(st.sampled_from([0.0, 0.5, 1.0])) if scored else 0.0,
    }
    fails = st.sampled_from([0, 0, FAST_RETRY["attempts"]])
    turns = tuple(
        tuple(outlasting(turn, draw(fails)) for turn in draw(scripts(["alpha"], rounds_max=1)))
        for _ in range(ITERATIONS_MAX)
    )
    config = {
        "hitl_tools": draw(st.sampled_from([(), (), ("alpha",)])),
        "policy": draw(policies(["alpha"])),
    }
    return LoopScenario(
        tool=draw(tool_plans("alpha")),
        turns=turns,
        stop=stop,
        scored=scored,
        reflects=draw(st.booleans()),
        config={key: value for key, value in config.items() if value is not None},
    )
