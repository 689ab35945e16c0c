"""Hypothesis strategies for workflows: random programs of every operation, as data that a function interprets.

    @given(workflow_scenarios(), faults())
    def test_executors_agree(scenario: WorkflowScenario, planned: tuple[Fault, ...]) -> None:
        report = check_simulated(scenario, faults=planned)
        assert report.equal, report.render()

A race is won by its first branch, since the others wait for longer than that takes. Needs the extra `foldlog[test]`.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from hypothesis import strategies as st

from ...eventlog.errors import OperationFailed
from ...runtime import Agent, ToolFailed, WorkflowRun, tool, workflow
from ...runtime.agents.workflow.workflow import Workflow
from ..parity.inputs import EVERY, Answer
from ..parity.parity import ParityReport, check_parity
from .runs import WORDS

LATE_S = 20 * 86_400.0
"""Longer than any winner of a race takes, in seconds."""
SLEEPS_S = (0.0, 5.0, 20.0)
BRANCHES_MAX = 3


class Do(msgspec.Struct, frozen=True, kw_only=True, tag="do"):
    """One operation: `look` (pure), `put` (idempotent) and `send` (unsafe) are tools, and `refuse` one that fails."""

    what: str
    word: str = ""
    for_s: float = 0.0


class Both(msgspec.Struct, frozen=True, kw_only=True, tag="both"):
    """A gather, or a race that its first branch wins; with `caught` the code goes on after its failure."""

    branches: tuple[tuple[Statement, ...], ...]
    is_race: bool = False
    caught: bool = False


Statement = Do | Both
Program = tuple[Statement, ...]


@tool(effect="pure")
async def look(text: str) -> str:
    """Look."""
    return f"saw {text}"


@tool(effect="idempotent")
async def put(text: str) -> str:
    """Put."""
    return f"put {text}"


@tool(effect="unsafe")
async def send(text: str) -> str:
    """Send."""
    return f"sent {text}"


@tool(effect="pure")
async def refuse(text: str) -> str:
    """Refuse."""
    raise ToolFailed(f"no {text}")


TOOLS = {each.spec.name: each for each in (look, put, send, refuse)}


class WorkflowScenario(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow that does what its program says, and returns what came of it."""

    program: Program

    def workflow(self) -> Workflow[Any]:
        """Return the workflow, with a child agent and a child workflow."""
        writer: Agent[Any] = Agent("writer", instructions="writer")

        @workflow(name="inner", tools=[look])
        async def inner(run: WorkflowRun, text: str) -> Any:
            return await run.call(look, text=text), await run.memo("inner", lambda: len(text))

        @workflow(name="random", tools=TOOLS.values())
        async def random(run: WorkflowRun, text: str) -> Any:
            return [text, *await _run(run, self.program, {"writer": writer, "inner": inner})]

        return random

    async def check(self, **options: Any) -> ParityReport:
        """Call `check_parity` with the workflow and these options."""
        script = {"turns": [], "agents": {"writer": [{"text": ["written"]}]}}
        answers = (Answer(call=EVERY), Answer(call=EVERY, kind="elicitation"))
        options = {"inputs": answers, **options}
        return await check_parity(self.workflow(), WORDS[0], script=script, **options)


async def _run(run: WorkflowRun, program: Program, children: dict[str, Any]) -> list[Any]:
    """Do what a program says, from its first statement to its last."""
    seen: list[Any] = []
    for statement in program:
        if isinstance(statement, Both):
            branches = [_branch(each, children) for each in statement.branches]
            try:
                seen.append(await (run.first if statement.is_race else run.gather)(*branches))
            except OperationFailed as error:
                if not statement.caught:
                    raise
                seen.append(error.place)
        else:
            seen.append(await _do(run, statement, children))
    return seen


def _branch(program: Program, children: dict[str, Any]) -> Callable[[WorkflowRun], Awaitable[Any]]:
    return lambda run: _run(run, program, children)


async def _do(run: WorkflowRun, do: Do, children: dict[str, Any]) -> Any:
    match do.what:
        case "memo":
            return await run.memo(do.word, lambda: do.word)
        case "sleep":
            return await run.sleep(do.for_s)
        case "wait":
            return await run.wait_for(do.word, timeout_s=do.for_s)
        case "ask":
            return (await run.ask(do.word)).accepted
        case "random":
            return run.random.randint(0, 9)
        case "writer" | "inner":
            return await run.agent(children[do.what], do.word)
        case _:
            return await run.call(TOOLS[do.what], text=do.word)


_words = st.sampled_from(["a", "b"])
_quick = st.builds(Do, what=st.sampled_from(["look", "put", "send", "memo", "inner"]), word=_words)
_any = st.one_of(
    _quick,
    _quick,
    st.builds(Do, what=st.sampled_from(["writer", "ask"]), word=_words),
    st.builds(Do, what=st.sampled_from(["sleep", "wait"]), word=_words, for_s=st.sampled_from(SLEEPS_S)),
)
_fails = st.builds(Do, what=st.just("refuse"), word=_words)
_endless = st.builds(Do, what=st.sampled_from(["sleep", "wait"]), word=_words, for_s=st.just(LATE_S))


@functools.cache
def programs(depth: int = 2) -> st.SearchStrategy[Program]:
    """Draw programs with gathers and races in each other, up to a depth."""
    if not depth:
        return st.lists(_any, min_size=1, max_size=3).map(tuple)
    below = programs(depth - 1)
    gathers = st.builds(
        Both,
        branches=st.lists(below, min_size=1, max_size=BRANCHES_MAX).map(tuple),
        caught=st.just(value=True),
    )
    failing = st.builds(
        lambda failed, other: Both(branches=(tuple(failed), other), caught=True),
        st.tuples(_any, _fails),
        below,
    )
    races = st.builds(
        lambda won, lost: Both(branches=(tuple(won), *((each,) for each in lost)), is_race=True),
        st.lists(_quick, min_size=1, max_size=2),
        st.lists(_endless, min_size=1, max_size=2),
    )
    return st.lists(st.one_of(_any, gathers, failing, races), min_size=1, max_size=4).map(tuple)


def workflow_scenarios() -> st.SearchStrategy[WorkflowScenario]:
    """Draw workflows of every operation, whose code catches what fails."""
    return st.builds(WorkflowScenario, program=programs())
