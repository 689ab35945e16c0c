"""Hypothesis strategies for swarms: flows, predicates, and whole swarms with the replies of their agents.

    @given(swarm_scenarios(), faults())
    def test_executors_agree(scenario: SwarmScenario, planned: tuple[Fault, ...]) -> None:
        report = check_simulated(scenario, faults=planned)
        assert report.equal, report.render()

Needs the extra `foldlog[test]`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import strategies as st

from ...runtime import Agent
from ...runtime.agents.swarm import Swarm
from ...runtime.agents.swarm_config import Mode
from ...runtime.core.swarm import (
    Arm,
    At,
    Branch,
    Case,
    Contains,
    Flow,
    Is,
    Loop,
    Matches,
    Named,
    Node,
    Not,
    Pass,
    Predicate,
    names_in,
)
from ...runtime.core.swarm.flow import parallel, series
from ...runtime.core.swarm.predicates import Test
from ..parity.parity import ParityReport, check_parity
from .runs import ANSWERS, FAST_RETRY, WORDS, Turn, policies, scripts, tool_plans, words
from .tool_plans import ToolPlan

TESTS: Mapping[str, Test] = {"p": lambda text: len(text) % 2 == 0, "q": lambda text: "one" in text}
"""The functions that generated flows call."""

PATTERNS = ("one|two", r"\bx/y\b", r"\\/", "é", r"[/\"]", "^$")
KINDS = ("node", "series", "parallel", "branch", "loop")
TIMES_MAX = 3
HANDOFFS_MAX = 3

_texts = words | st.text(max_size=5)
_keys = st.sampled_from(["a", "ok", "b_2", "odd key", "0", ""]) | st.integers(0, 9)


@functools.cache
def predicates() -> st.SearchStrategy[Predicate]:
    """Draw predicates of every kind; the functions are `p` and `q`."""
    numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    scalars = _texts | st.booleans() | st.none() | numbers
    paths = st.lists(_keys, max_size=3).map(tuple)
    simple = (
        st.builds(Is, _texts)
        | st.builds(Contains, _texts)
        | st.builds(Matches, st.sampled_from(PATTERNS), st.booleans())
        | st.builds(At, paths, st.sampled_from(["!=", "<", "<=", ">", ">="]), scalars)
        | st.builds(At, st.lists(_keys, min_size=1, max_size=3).map(tuple))
        | st.builds(Named, st.sampled_from(sorted(TESTS)))
    )
    return simple | st.builds(Not, simple)


@st.composite
def flows(draw: st.DrawFn, depth: int = 3) -> Flow:
    """Draw a flow with at most this nesting, in normal form; its nodes are n0, n1, ... in the order of the text."""
    return _Drawing(draw).flow(depth)


class _Drawing:
    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._numbers = itertools.count()

    def flow(self, depth: int) -> Flow:
        match self._draw(st.sampled_from(KINDS if depth else KINDS[:1])):
            case "series":
                return series(self._several(depth - 1))
            case "parallel":
                return parallel(self._several(depth - 1))
            case "branch":
                cases = [
                    Case(self._draw(predicates()), self._arm(depth - 1))
                    for _ in range(self._draw(st.integers(1, 2)))
                ]
                return Branch(tuple(cases), self._arm(depth - 1))
            case "loop":
                times = self._draw(st.integers(1, TIMES_MAX))
                return Loop(self.flow(depth - 1), times, self._draw(st.none() | predicates()))
            case _:
                return Node(f"n{next(self._numbers)}")

    def _several(self, depth: int) -> list[Flow]:
        return [self.flow(depth) for _ in range(self._draw(st.integers(2, 3)))]

    def _arm(self, depth: int) -> Arm:
        return Pass() if self._draw(st.integers(0, 3)) == 0 else self.flow(depth)


class SwarmScenario(msgspec.Struct, frozen=True, kw_only=True):
    """A swarm whose agents have a tool each, with the replies of their models by agent; a workflow has a flow."""

    flow: Flow | None
    tools: dict[str, ToolPlan]
    turns: dict[str, tuple[Turn, ...]]
    mode: Mode = "workflow"
    config: dict[str, Any] = {}
    """Further configuration of each agent."""
    inner: bool = False
    """True if the swarm is the only member of another one."""

    @property
    def script(self) -> dict[str, Any]:
        """The script for `check_parity`."""
        return {"turns": [], "agents": {name: list(turns) for name, turns in self.turns.items()}}

    def swarm(self) -> Swarm:
        """Return the swarm with its agents and functions."""
        agents: list[Agent[Any]] = [
            Agent(name, instructions=name, tools=[plan.make()], retry=FAST_RETRY, **self.config)
            for name, plan in self.tools.items()
        ]
        swarm = Swarm(agents, self.flow or "", mode=self.mode, max_handoffs=HANDOFFS_MAX, predicates=TESTS)
        return Swarm([swarm], "swarm*2", name="outer") if self.inner else swarm

    async def check(self, **options: Any) -> ParityReport:
        """Call `check_parity` with the swarm and these options."""
        options = {"inputs": ANSWERS, **options}
        return await check_parity(self.swarm(), WORDS[0], script=self.script, **options)


def _well(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """Remove errors that end a run: if two parallel agents fail, either may end the swarm."""
    ends = {"context_overflow"}
    return tuple({k: v for k, v in turn.items() if k != "error" or v["type"] not in ends} for turn in turns)


@st.composite
def swarm_scenarios(draw: st.DrawFn) -> SwarmScenario:
    """Draw a swarm of any mode and flow, whose agents call their tool at most once, or each other, and answer."""
    mode: Mode = draw(st.sampled_from(["workflow", "workflow", "handoff", "team"]))
    flow: Flow | None = None
    names = [f"n{number}" for number in range(draw(st.integers(1, 3)))]
    if mode == "workflow":
        flow = draw(flows(2).filter(lambda flow: 0 < len(names_in(flow)) < 6))  # noqa: PLR2004 - a small one
        names = list(names_in(flow))
    config = {
        "hitl_tools": draw(st.sampled_from([(), (), ("alpha",)])),
        "policy": draw(policies(["alpha"])),
    }
    turns = {name: draw(scripts(["alpha"], rounds_max=1).map(_well)) for name in names}
    if mode == "handoff":
        turns = {name: draw(_handing_over(names, said)) for name, said in turns.items()}
    if mode == "team":
        turns[names[0]] = draw(_leading(names[1:], turns[names[0]]))
    return SwarmScenario(
        flow=flow,
        mode=mode,
        tools={name: draw(tool_plans("alpha")) for name in names},
        turns=turns,
        config={key: value for key, value in config.items() if value is not None},
        inner=draw(st.integers(0, 4)) == 0,
    )


@st.composite
def _handing_over(draw: st.DrawFn, names: list[str], turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """Draw the turns of an agent that may hand off to another at its end."""
    handoff = msgspec.json.encode(
        {"handoff_to": draw(st.sampled_from([*names, "nobody"])), "message": "go on"}
    )
    return (*turns[:-1], {**turns[-1], "text": [handoff.decode()]}) if draw(st.booleans()) else turns


@st.composite
def _leading(draw: st.DrawFn, others: list[str], turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """Draw the turns of a lead that first calls other agents, perhaps the same one twice in parallel."""
    asked = draw(st.lists(st.tuples(st.sampled_from(others), words), max_size=3)) if others else []
    calls = [
        {"id": f"ask-{number}", "name": name, "arguments": {"input": word}}
        for number, (name, word) in enumerate(asked)
    ]
    return ({"text": [], "tool_calls": calls}, *turns) if calls else turns
