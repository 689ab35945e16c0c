"""The live stream of a run is the same on both executors, and in the end equals the stored events."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from foldlog.eventlog import Event, MemoryLog, Text
from foldlog.eventlog.events import TextReset
from foldlog.replay import canonical, load_trace
from foldlog.runtime import Agent, RalphLoop, Registry, Runtime, Swarm, ToolContext, Worker, tool
from foldlog.runtime.agents.loop_config import Stop
from foldlog.runtime.driving.host import Host

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@tool(effect="pure")
async def look(at: str, context: ToolContext) -> str:
    """Look at something."""
    context.progress(1, 2, at)
    context.progress(2, 2, at)
    return f"{at} is blue"


def call(number: int, name: str, **arguments: object) -> dict[str, object]:
    return {"id": str(number), "name": name, "arguments": arguments}


JOBS = [{"task": "see the sky"}, {"task": "see the sea"}]
MODEL = {
    "scenes": [
        {
            "input": "see the sky",
            "planner": [{"text": ["1. ", "Look."]}],
            "turns": [{"tool_calls": [call(1, "look", at="sky")]}, {"text": ["blue ", "sky"]}],
        },
        {"input": "see the sea", "turns": [{"text": ["grey ", "sea"]}]},
        {
            "system": "You lead.",
            "planner": [{"text": "1. Ask others."}],
            "turns": [
                {
                    "reasoning": ["Who ", "knows?"],
                    "text": ["I ", "ask"],
                    "tool_calls": [call(1, "parallel_subagents", jobs=JOBS), call(2, "look", at="hill")],
                },
                {"text": ["sky ", "and ", "sea"]},
            ],
        },
        {"system": "You write.", "turns": [{"text": ["a ", "poem"]}]},
    ]
}


def company(directory: Path) -> Swarm:
    path = directory / "company.json"
    path.write_text(json.dumps(MODEL))
    model = f"scripted:{path}"
    lead = Agent(
        "lead",
        model=model,
        instructions="You lead.",
        tools=[look],
        planning_enabled=True,
        allow_parallel_subagents=True,
    )
    writer = Agent("writer", model=model, instructions="You write.")
    poem = RalphLoop(writer, name="poem", stop=Stop(max_iterations=2))
    return Swarm([lead, poem], "lead >> poem", name="company")


async def seen(swarm: Swarm, executor: str, *, detailed: bool) -> tuple[list[Event], list[Event]]:
    """Return the events of a reader from the beginning, and of a late one."""
    log, registry = MemoryLog(), Registry(agents=[swarm])
    worker = Worker(Host(log=log, registry=registry, worker="worker"), grace_s=1.0)
    serving = asyncio.create_task(worker.serve()) if executor == "durable" else None
    async with Runtime.open(log=log, registry=registry) as runtime:
        run = await runtime.start(swarm, "question", executor=executor, run_id="run")
        live = [event async for event in run.stream(detailed=detailed)]
        late = [event async for event in run.stream(detailed=detailed)]
        if detailed:
            assert canonical((await load_trace(log, "run")).observable).digest == canonical(late).digest
    if serving is not None:
        worker.stop()
        await serving
    return live, late


@pytest.mark.parametrize("detailed", [True, False])
async def test_both_executors_show_the_same_live_and_late(tmp_path: Path, detailed: bool) -> None:
    swarm = company(tmp_path)
    local_live, local_late = await seen(swarm, "local", detailed=detailed)
    durable_live, durable_late = await seen(swarm, "durable", detailed=detailed)
    assert sum(isinstance(event, Text) for event in local_live) > sum(isinstance(e, Text) for e in local_late)
    for shown in (local_live, durable_live, durable_late):
        assert not any(isinstance(event, TextReset) for event in shown)
        assert canonical(shown).digest == canonical(local_late).digest
