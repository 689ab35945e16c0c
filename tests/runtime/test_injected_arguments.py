"""Arguments that the configuration adds to every tool: written by the model, kept by the log, never seen by a tool."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog import AgentConfigError, ConfigError, ConfigProblem
from foldlog.eventlog.events import ApprovalRequested, ToolCall, ToolResult
from foldlog.replay import load_trace, rerun
from foldlog.runtime import Agent, Registry, tool

from .conftest import Place, call, calls, says

pytestmark = pytest.mark.anyio
INJECTED = {"motive": "Warum? 🐟", "_ref-2": ""}


async def test_they_go_to_the_call_its_approval_and_its_result_and_only_the_others_to_the_tool(
    place: Place, script: Callable[..., str]
) -> None:
    told: list[dict[str, Any]] = []

    @tool(effect="unsafe")
    async def wipe_disk(disk: str, fast: bool = False) -> str:
        """Wipe a disk."""
        told.append({"disk": disk, "fast": fast})
        return "wiped"

    own = copy.deepcopy(wipe_disk.spec)
    agent = Agent(
        "janitor",
        model=script(
            calls(
                call("wipe_disk", "a", disk="sda", motive="voll 🐟", **{"_ref-2": 17}),
                call("wipe_disk", "b", disk="sdb"),
            ),
            says("done"),
        ),
        tools=[wipe_disk],
        hitl_tools=["wipe_disk"],
        injected_tool_args=INJECTED,
        allow_self_spawn=True,
        allow_parallel_subagents=True,
    )
    await place.open(agent)
    run = await place.start(agent)
    async for event in run.stream():
        if isinstance(event, ApprovalRequested):
            await run.resolve(event.approval_id, "approved")
    assert (await run.result()).output == "done"
    assert sorted(told, key=str) == [{"disk": "sda", "fast": False}, {"disk": "sdb", "fast": False}]
    written = {"motive": "voll 🐟", "_ref-2": 17}
    events = await place.events(run)
    asked = {event.tool_call_id: event for event in events if isinstance(event, ToolCall)}
    assert (asked["a"].arguments, asked["a"].injected_args) == ({"disk": "sda"}, written)
    assert (asked["b"].arguments, asked["b"].injected_args) == ({"disk": "sdb"}, {})
    approvals = {event.tool_call_id: event for event in events if isinstance(event, ApprovalRequested)}
    assert (approvals["a"].arguments, approvals["a"].injected_args) == ({"disk": "sda"}, written)
    assert approvals["b"].injected_args == {}
    results = {event.tool_call_id: event.metadata for event in events if isinstance(event, ToolResult)}
    assert results["a"]["injected_args"] == written
    assert "injected_args" not in results["b"]
    rows = await (await place.runtime.index()).approvals(pending=None)
    assert {row.tool_call_id: row.injected_args for row in rows} == {"a": written, "b": {}}
    (said, *_) = [m for m in await run.history() if m.role == "assistant"]
    assert '"_ref-2":17' in said.tool_calls[0].arguments
    for name, spec in (await run.state()).tools.items():
        properties = spec.parameters["properties"]
        assert properties["motive"] == {"type": "string", "description": "Warum? 🐟"}, name
        assert properties["_ref-2"] == {"type": "string", "description": ""}
        assert not {"motive", "_ref-2"} & set(spec.parameters["required"])
    assert wipe_disk.spec == own
    recorded = await load_trace(place.log, run.run_id)
    again = await rerun(recorded)
    assert [e.digest for e in again.events if e.type == "model_requested"] == [
        e.digest for e in recorded.events if e.type == "model_requested"
    ]


@pytest.mark.parametrize(
    ("allowed", "name", "tool_name"),
    [
        ("allow_self_spawn", "additional_context", "spawn_self"),
        ("allow_parallel_subagents", "jobs", "parallel_subagents"),
    ],
)
def test_a_name_that_a_sub_agent_tool_has_is_refused_at_construction(
    allowed: str, name: str, tool_name: str
) -> None:
    data = {"name": "a", "injected_tool_args": {"why": "x", name: "y"}}
    assert Agent.from_config(data).name == "a"
    with pytest.raises(AgentConfigError) as refused:
        Agent.from_config({**data, allowed: True})
    told = f"injected_tool_args.{name}: the tool {tool_name!r} has a parameter {name!r} of its own"
    assert told in str(refused.value)
    assert [problem.key for problem in refused.value.problems] == ["injected_tool_args"]


async def test_a_name_that_a_registered_tool_has_is_refused_before_the_first_event(place: Place) -> None:
    agent = Agent("a", model="scripted:none.json", tools=["add_todo"], injected_tool_args={"text": "x"})
    runtime = await place.open(agent)
    with pytest.raises(
        ConfigError, match=r"injected_tool_args.text: the tool 'add_todo' has a parameter 'text'"
    ):
        await place.start(agent)
    assert await runtime.list_runs() == []
    (problem,) = Registry().problems(agent)
    assert isinstance(problem, ConfigProblem)
    assert problem.key == "injected_tool_args"
