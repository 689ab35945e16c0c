"""`shell` and `update_plan` in runs, on both logs and both executors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foldlog.adapters.builtin import Workspace, builtin_tools, shell_tool
from foldlog.adapters.runners import SubprocessRunner
from foldlog.eventlog import RunCancelled
from foldlog.eventlog.events import ApprovalRequested, Custom, ToolEffect, ToolResult
from foldlog.replay import load_trace
from foldlog.runtime import Agent, Evidence, postcondition
from foldlog.runtime.ports.tools import Tool

from tests.runners.test_runners import gone

from .conftest import Place, call, calls, says

pytestmark = pytest.mark.anyio


def tools_over(root: Path, **options: Any) -> tuple[Tool, ...]:
    root.mkdir()
    workspace = Workspace(root)
    return builtin_tools(workspace, runner=SubprocessRunner(workspace), **options)


def shell(call_id: str, script: str, **arguments: object) -> dict[str, object]:
    return call("shell", call_id, command=["sh", "-c", script], **arguments)


async def test_an_agent_runs_commands_and_is_told_how_they_ended(
    place: Place, script: Callable[..., str], tmp_path: Path
) -> None:
    model = script(
        calls(
            shell("c1", "echo hello | tee a; exit 3"),
            shell("c2", "sleep 120", timeout_s=0.2),
            shell("c3", "cat a; rm a"),
            shell("c4", "true", cwd=".."),
            shell("c5", "true", timeout_s=601),
            call("shell", "c6", command=["no-such-program"]),
            call("shell", "c7", command=[]),
        ),
        says("done"),
    )
    agent = Agent("operator", model=model, tools=tools_over(tmp_path / "ws", on_error="report"))
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    results = {
        event.tool_call_id: event for event in await place.events(run) if isinstance(event, ToolResult)
    }
    assert [results[f"c{n}"].result for n in (1, 2, 3)] == [
        {"exit_code": 3, "output": "hello\n"},
        {"exit_code": 124, "output": "", "timed_out": True},
        {"exit_code": 0, "output": "hello\n"},
    ]
    assert results["c6"].result["exit_code"] == 127  # type: ignore[index,call-overload]
    assert [results[f"c{n}"].success for n in (1, 4, 5, 6, 7)] == [True, False, False, True, False]
    assert results["c4"].error == "..: is outside the workspace"
    assert "600" in (results["c5"].error or "")
    assert "empty" in (results["c7"].error or "")


async def test_a_command_that_is_out_of_its_time_is_in_doubt_and_people_see_how_it_ended(
    place: Place, script: Callable[..., str], tmp_path: Path
) -> None:
    model = script(calls(shell("c1", "sleep 120", timeout_s=0.2)), says("done"))
    agent = Agent("operator", model=model, tools=tools_over(tmp_path / "ws"))
    await place.open(agent)
    run = await place.start(agent)
    ended = {"exit_code": 124, "output": "", "timed_out": True}
    async for event in run.stream():
        if isinstance(event, ApprovalRequested):
            assert (event.kind, event.reason) == ("unverifiable", "timed out after 0.2 s")
            assert event.result == ended
            await run.resolve(event.approval_id, "approved", outcome="succeeded")
    assert (await run.result()).output == "done"
    (result,) = [event for event in await place.events(run) if isinstance(event, ToolResult)]
    assert (result.success, result.result) == (True, ended)
    trace = await load_trace(place.log, run.run_id)
    assert sum(event.type == "tool_started" for event in trace.events) == 1


@pytest.mark.parametrize("done", [True, False])
async def test_a_probe_settles_a_command_that_is_out_of_its_time(
    cheap: Place, script: Callable[..., str], tmp_path: Path, done: bool
) -> None:
    def look() -> Evidence:
        return Evidence(data={"done": done})

    shell_of = shell_tool(SubprocessRunner(Workspace(tmp_path)))
    deployed = postcondition({"json_path": {"path": "$.done", "equals": True}}, probe=look)(shell_of)
    model = script(calls(shell("c1", "sleep 120", timeout_s=0.2)), says("done"))
    agent = Agent("operator", model=model, tools=[deployed])
    await cheap.open(agent)
    run = await cheap.start(agent)
    assert (await run.result()).output == "done"
    (result,) = [event for event in await cheap.events(run) if isinstance(event, ToolResult)]
    assert result.success is done
    assert "postcondition" in result.metadata


@pytest.mark.parametrize("effect", ["pure", "idempotent"])
async def test_a_command_that_may_run_again_is_told_to_be_out_of_its_time(
    cheap: Place, script: Callable[..., str], tmp_path: Path, effect: ToolEffect
) -> None:
    shell_of = shell_tool(SubprocessRunner(Workspace(tmp_path)), effect=effect)
    model = script(calls(shell("c1", "sleep 120", timeout_s=0.2)), says("done"))
    agent = Agent("operator", model=model, tools=[shell_of])
    await cheap.open(agent)
    run = await cheap.start(agent)
    assert (await run.result()).output == "done"
    (result,) = [event for event in await cheap.events(run) if isinstance(event, ToolResult)]
    assert result.result == {"exit_code": 124, "output": "", "timed_out": True}


async def test_cancelling_a_run_stops_its_command_with_all_that_it_started(
    place: Place, script: Callable[..., str], tmp_path: Path
) -> None:
    model = script(calls(shell("c1", "setsid sleep 120 & echo $! > pids; exec sleep 120")), says("never"))
    agent = Agent("operator", model=model, tools=tools_over(tmp_path / "ws"))
    await place.open(agent)
    run = await place.start(agent)
    pids = tmp_path / "ws" / "pids"
    while not (pids.exists() and pids.read_text().endswith("\n")):  # noqa: ASYNC110 - no event for a command
        await asyncio.sleep(0.01)
    left = pids.read_text()
    await run.cancel()
    with pytest.raises(RunCancelled):
        await run.result()
    assert await asyncio.to_thread(gone, left)


async def test_a_plan_is_kept_as_events_of_the_run(
    place: Place, script: Callable[..., str], tmp_path: Path
) -> None:
    first = [{"step": "look", "status": "in_progress"}, {"step": "fix", "status": "pending"}]
    then = [{"step": "look", "status": "completed"}, {"step": "fix", "status": "in_progress"}]
    model = script(
        calls(call("update_plan", "c1", plan=first)),
        calls(call("update_plan", "c2", plan=then, explanation="seen")),
        calls(call("update_plan", "c3", plan=[{**each, "status": "in_progress"} for each in first])),
        says("done"),
    )
    agent = Agent("planner", model=model, tools=tools_over(tmp_path / "ws"))
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    events = await place.events(run)
    assert [(event.name, event.data) for event in events if isinstance(event, Custom)] == [
        ("plan", {"steps": first}),
        ("plan", {"steps": then, "explanation": "seen"}),
    ]
    results = [event for event in events if isinstance(event, ToolResult)]
    assert [result.result or result.error for result in results] == [
        "Plan updated",
        "Plan updated",
        "at most one step of a plan can be in_progress",
    ]
