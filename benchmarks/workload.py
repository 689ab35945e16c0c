"""Workload A for foldlog: agents, an instant model, and the registry that a worker serves."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from foldlog.eventlog import TokenUsage
from foldlog.runtime import Agent, Registry, tool
from foldlog.runtime.ports.models import CallDelta, Delta, Finished, ModelRequest, TextDelta

from . import script

LENGTHS = (script.STEPS, 25, 40, 100)
USAGE = TokenUsage(input_tokens=100, output_tokens=20, total_tokens=120)


@tool(effect="pure")
async def lookup(q: str) -> str:
    """Look something up."""
    return script.found(q)


class Instant:
    """The model `instant:STEPS`: makes a pair of tool calls in each step but the last, without any delay."""

    def check(self, model: str) -> None:
        """Accept any number of steps."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the next pair of calls, or the answer."""
        if request.round < int(request.model):
            for index, call in enumerate(script.call_ids(request.round)):
                yield CallDelta(index=index, id=call, name=script.TOOL, arguments=script.arguments(call))
            yield Finished(reason="tool_calls", usage=USAGE)
        else:
            yield TextDelta(script.answer())
            yield Finished(reason="stop", usage=USAGE)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


def agent_of(steps: int) -> Agent[str]:
    """Return the agent whose runs have this many steps."""
    return Agent(f"bench-{steps}", model=f"instant:{steps}", tools=[lookup], max_steps=steps)


def registry_of(lengths: tuple[int, ...] = LENGTHS) -> Registry:
    """Return a new registry of these agents. Each runtime needs its own, because it closes it."""
    return Registry(agents=[agent_of(steps) for steps in lengths], providers={"instant": Instant()})


registry = registry_of()
"""The registry of a worker: `foldlog worker benchmarks.workload:registry`."""
