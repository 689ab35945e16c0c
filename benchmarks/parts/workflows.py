"""Measure the CPU time of a workflow's operations against an agent's tool calls, and that of replaying a workflow."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

from foldlog.eventlog import TokenUsage
from foldlog.eventlog.memory import MemoryLog
from foldlog.runtime import Agent, Registry, Runtime, Workflow, WorkflowRun, tool, workflow
from foldlog.runtime.journal.journal import Journal
from foldlog.runtime.ports.models import CallDelta, Delta, Finished, ModelRequest, TextDelta
from foldlog.runtime.ports.runnable import Runnable

from ..settings import Collected, Measured, Settings

ROUNDS = 7
CALL_CPU = "CPU of a call of a tool that does nothing"
AGAIN = "recorded operations run again"
WORKFLOW, AGENT = "a workflow", "an agent, with its model calls"
STEPS, CALLS = 20, 20
"""The number of steps of a run, and of the concurrent calls in each step."""
RECORDED, AT_ONCE = 10_000, 100
USAGE = TokenUsage(input_tokens=100, output_tokens=20, total_tokens=120)


@tool(effect="pure")
async def nothing(number: int) -> int:
    """Do nothing."""
    return number


class Calls:
    """A model that makes the same number of calls in each step, then answers, without any delay."""

    def check(self, model: str) -> None:
        """Accept any name."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the next calls, or the answer."""
        if request.round > STEPS:
            yield TextDelta("done")
        else:
            for index in range(CALLS):
                call = f"c{request.round}-{index}"
                written = f'{{"number": {request.round * CALLS + index}}}'
                yield CallDelta(index=index, id=call, name="nothing", arguments=written)
        yield Finished(reason="stop" if request.round > STEPS else "tool_calls", usage=USAGE)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


def in_rounds(rounds: int, calls: int) -> Workflow[str]:
    """Return a workflow that makes several calls at once, repeatedly."""

    @workflow(name="calls", tools=[nothing])
    async def steps(run: WorkflowRun) -> str:
        for _ in range(rounds):
            await run.gather(*(run.call(nothing, number=number) for number in range(calls)))
        return "done"

    return steps


async def measure(settings: Settings) -> Measured:
    """Measure both kinds of runs in turns, then replay the code of one long run over its log."""
    found = Collected()
    agent = Agent("caller", model="calls:1", tools=[nothing], max_steps=STEPS + 1)
    both: dict[str, Runnable[str]] = {WORKFLOW: in_rounds(STEPS, CALLS), AGENT: agent}
    for _ in range(settings.rounds_of(ROUNDS)):
        for who, runnable in both.items():
            async with Runtime.open(log=MemoryLog("default"), registry=_registry(runnable)) as runtime:
                begun = time.process_time()
                await (await runtime.start(runnable, "")).result()
                spent = time.process_time() - begun
            found.add(CALL_CPU, who, "us", spent / (STEPS * CALLS) * 1e6)
    await _again(settings, found)
    return found.measured()


def _registry(runnable: Runnable[str]) -> Registry:
    return Registry(agents=[runnable], providers={"calls": Calls()})


async def _again(settings: Settings, found: Collected) -> None:
    rounds = settings.count(RECORDED // AT_ONCE, 2)
    long_one = in_rounds(rounds, AT_ONCE)
    settings.say(f"a workflow of {rounds * AT_ONCE:,} operations")
    log = MemoryLog("default")
    async with Runtime.open(log=log, registry=_registry(long_one)) as runtime:
        run = await runtime.start(long_one, "")
        await run.result()
        state = await Journal(log, await runtime.locate(run.run_id)).load()
    for _ in range(settings.rounds_of(ROUNDS)):
        begun = time.process_time()
        decider = long_one.decider(state)
        decider.go_on(state)
        found.add(AGAIN, WORKFLOW, "s", time.process_time() - begun, x=rounds * AT_ONCE)
        decider.close()
