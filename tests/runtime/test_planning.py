"""A planner before the first step, on both executors and both logs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from foldlog.eventlog import RunFailed
from foldlog.eventlog.events import Context
from foldlog.replay import load_trace, rerun
from foldlog.replay.traces.recording import Recording
from foldlog.runtime import Agent, ToolContext, tool

from .conftest import Place, Turn, call, calls, names, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]


@tool(effect="pure")
async def search(query: str, ctx: ToolContext) -> str:
    """Search for something."""
    ctx.progress(1, 1)
    return f"found {query}"


@tool
async def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"


def planner(directory: Path, *turns: Turn) -> str:
    """A model that plans by these turns."""
    path = directory / "planner.json"
    usage = {"input_tokens": 30, "output_tokens": 20}
    path.write_text(json.dumps({"turns": [], "planner": [{"usage": usage, **turn} for turn in turns]}))
    return f"scripted:{path}"


async def test_a_plan_is_made_with_tools_and_only_the_plan_is_seen(
    place: Place, script: Script, tmp_path: Path
) -> None:
    looks = calls(call("search", "a", query="x"), call("send", "b", to="ann"))
    agent = Agent(
        "helper",
        model=script(calls(call("search", "a", query="y")), says("done")),
        instructions="Be brief.",
        tools=[search, send],
        planning_enabled=True,
        planning_model=planner(tmp_path, looks, says("1. Search.")),
    )
    await place.open(agent)
    run = await place.start(agent)
    result = await run.result()
    assert (result.output, result.steps, result.usage.total_tokens) == ("done", 2, 110)
    assert names(await place.events(run)) == [
        "status(starting)",
        "step(started)",
        "usage",
        "tool_call",
        "mcp_progress",
        "tool_result",
        "step(completed)",
        "step(started)",
        "text",
        "usage",
        "step(completed)",
        "status(completed)",
    ]
    history = await run.history()
    assert [message.role for message in history] == ["system", "user", "assistant", "tool", "assistant"]
    assert history[0].content == "Be brief.\n\n<plan>\n1. Search.\n</plan>"
    trace = await load_trace(place.log, run.run_id)
    answers = {e.tool_call_id: e for e in trace.events if e.type == "planner_tool_returned"}
    assert (answers["a"].result, answers["b"].error) == ("found x", "not available while planning")
    (row,) = await place.runtime.list_runs()
    assert row.usage == result.usage


async def test_a_planner_is_shown_large_results_in_part_and_can_read_on(
    place: Place, script: Script, tmp_path: Path
) -> None:
    text = "".join(f"{number:06d} " for number in range(20_000))
    artifact = hashlib.sha256(text.encode()).hexdigest()

    @tool(effect="pure")
    async def survey() -> str:
        """Look at everything."""
        return text

    reads = call("retrieve_artifact", "b", id=artifact, offset=70_000, limit=6)
    plans = planner(tmp_path, calls(call("survey", "a")), calls(reads), says("1. Go on."))
    agent = Agent(
        "helper", model=script(says("done")), tools=[survey], planning_enabled=True, planning_model=plans
    )
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    trace = await load_trace(place.log, run.run_id)
    answers = {e.tool_call_id: e for e in trace.events if e.type == "planner_tool_returned"}
    assert (answers["a"].result, answers["a"].offloaded_artifact_id) == (text, artifact)
    assert answers["b"].result == "010000\n[characters 70000 to 70006 of 140000]"
    assert await place.log.artifacts.find(artifact) == text.encode()
    recorded = Recording(trace).runs[run.run_id].answers
    shown = recorded[1].prompt.messages[-1].content
    assert len(shown) < 4_000
    assert f'retrieve_artifact(id="{artifact}", offset=2000) reads on' in shown


async def test_an_empty_plan_changes_nothing(place: Place, script: Script, tmp_path: Path) -> None:
    agent = Agent(
        "helper",
        model=script(says("done")),
        planning_enabled=True,
        planning_model=planner(tmp_path, says("  ")),
    )
    await place.open(agent)
    run = await place.start(agent)
    assert (await run.result()).output == "done"
    assert [message.role for message in await run.history()] == ["user", "assistant"]


async def test_a_planner_that_fails_ends_the_run_before_its_first_step(
    place: Place, script: Script, tmp_path: Path
) -> None:
    refused = {"error": {"type": "auth"}, **says("never")}
    agent = Agent(
        "helper",
        model=script(says("done")),
        planning_enabled=True,
        planning_model=planner(tmp_path, refused),
    )
    await place.open(agent)
    run = await place.start(agent)
    with pytest.raises(RunFailed) as failure:
        await run.result()
    assert failure.value.error_type == "planner_failed"
    assert names(await place.events(run)) == ["status(starting)", "error", "status(error)"]


@pytest.mark.parametrize("times", [1, 3], ids=["once", "again"])
async def test_a_planner_whose_request_does_not_fit_has_the_history_compacted_once(
    place: Place, script: Script, tmp_path: Path, times: int
) -> None:
    full = {"error": {"type": "context_overflow", "times": times}, **says("1. Search.")}
    agent = Agent(
        "helper",
        model=script(says("done")),
        planning_enabled=True,
        planning_model=planner(tmp_path, full),
        context={"overflow": "truncate"},
    )
    await place.open(agent)
    history = [
        message
        for number in range(3)
        for message in (
            {"role": "user", "content": f"question {number}"},
            {"role": "assistant", "content": f"answer {number}"},
        )
    ]
    run = await place.start(agent, messages=history)
    if times == 1:
        assert (await run.result()).output == "done"
        told = [message.content for message in await run.history()]
        assert told[1:] == ["question 0", "question 1", "question 2", "question", "done"]
        again = await rerun(await load_trace(place.log, run.run_id))
        assert names(again.events)[-1] == "status(completed)"
    else:
        with pytest.raises(RunFailed, match="the planner failed: context_overflow") as failure:
            await run.result()
        assert failure.value.error_type == "planner_failed"
    (cut,) = [event for event in await place.events(run) if isinstance(event, Context)]
    assert (cut.action, cut.before_count, cut.after_count) == ("compact", 7, 4)


async def test_a_planned_run_runs_again_from_its_recording(
    place: Place, script: Script, tmp_path: Path
) -> None:
    agent = Agent(
        "helper",
        model=script(calls(call("search", "a", query="y")), says("done")),
        tools=[search],
        planning_enabled=True,
        planning_model=planner(tmp_path, calls(call("search", "a", query="x")), says("1. Search.")),
    )
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    recorded = await load_trace(place.log, run.run_id)
    again = await rerun(recorded)
    planned = [e for e in again.events if e.type in {"planner_tool_returned", "plan_made"}]
    assert [getattr(e, "result", None) or getattr(e, "plan", None) for e in planned] == [
        "found x",
        "1. Search.",
    ]
    assert [e.digest for e in again.events if e.type == "model_requested"] == [
        e.digest for e in recorded.events if e.type == "model_requested"
    ]
