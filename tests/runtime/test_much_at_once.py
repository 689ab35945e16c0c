"""The calls of one answer, and their results, may be larger than one commit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog import PlannerToolReturned, ToolCall, ToolResult
from foldlog.eventlog.ports import COMMIT_BYTES_MAX
from foldlog.replay import load_trace, replay
from foldlog.runtime import Agent, tool
from foldlog.runtime.core import tool_calls as runtime_calls
from foldlog.runtime.journal import journal

from tests.runtime.conftest import USAGE, Place, call, calls, says
from tests.runtime.test_approvals import parked

Script = Callable[..., str]
PAGE = "y" * 30_000
"""A result that stays in its event."""


@tool(effect="pure")
async def read(page: int) -> str:
    """Read a page."""
    return PAGE


SMALL = 100_000
"""Size of a commit in tests that fill one with calls."""


@pytest.fixture
def _small_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "COMMIT_BYTES_MAX", SMALL)
    monkeypatch.setattr(journal, "EVENTS_BYTES_MAX", SMALL - 2048)
    monkeypatch.setattr(runtime_calls, "CALLS_BYTES_MAX", SMALL * 7 // 8)


def reads(count: int, **arguments: Any) -> dict[str, Any]:
    return calls(*(call("read", f"c{number}", page=number, **arguments) for number in range(count)))


async def test_results_that_are_too_large_together_are_all_stored(cheap: Place, script: Script) -> None:
    agent = Agent("reader", model=script(reads(300), says("done")), tools=[read])
    await cheap.open(agent)
    run = await cheap.start(agent)
    assert (await run.result()).output == "done"
    results = [e.result for e in await cheap.events(run) if isinstance(e, ToolResult)]
    assert results == [PAGE] * 300
    assert 300 * len(PAGE) > 9 * COMMIT_BYTES_MAX


async def test_what_a_planner_is_told_may_be_too_large_for_one_commit(cheap: Place, tmp_path: Path) -> None:
    planner = [{"usage": USAGE, **turn} for turn in (reads(40), says("a plan"))]
    file = tmp_path / "planned.json"
    file.write_text(json.dumps({"turns": [{"usage": USAGE, **says("done")}], "planner": planner}))
    agent = Agent("reader", model=f"scripted:{file}", planning_enabled=True, tools=[read])
    await cheap.open(agent)
    run = await cheap.start(agent)
    assert (await run.result()).output == "done"
    trace = await load_trace(cheap.log, run.run_id)
    assert [e.result for e in trace.events if isinstance(e, PlannerToolReturned)] == [PAGE] * 40


@pytest.mark.usefixtures("_small_commits")
@pytest.mark.parametrize(("count", "padding"), [(400, 0), (200, 900)])
async def test_calls_beyond_what_a_step_holds_are_left_out_and_the_model_is_told(
    cheap: Place, script: Script, count: int, padding: int
) -> None:
    asked = [
        call("nothing", f"c{n}", page=n, **({"pad": "p" * padding} if padding else {})) for n in range(count)
    ]
    agent = Agent("greedy", model=script(calls(*asked), says("done")), tools=[read])
    await cheap.open(agent)
    run = await cheap.start(agent)
    assert (await run.result()).output == "done"
    events = await cheap.events(run)
    made = [e for e in events if isinstance(e, ToolCall)]
    (*results, beyond) = sorted(
        (e for e in events if isinstance(e, ToolResult)), key=lambda e: int((e.tool_call_id or "")[1:])
    )
    assert 50 < len(made) == len(results) + 1 < count
    assert all("unknown tool 'nothing'" in (e.error or "") for e in results)
    assert "this call and all calls after it were not made" in (beyond.error or "")
    stored = [s async for s in cheap.log.events.read(await run._located())]
    assert max(len(each.data) for each in stored) <= SMALL


@pytest.mark.usefixtures("_small_commits")
async def test_no_more_approvals_are_asked_for_than_one_commit_holds(cheap: Place, script: Script) -> None:
    asked = reads(400)
    agent = Agent("greedy", model=script(asked, says("done")), tools=[read], hitl_tools=["read"])
    await cheap.open(agent)
    run = await cheap.start(agent)
    await parked(run)
    state = await run.state()
    assert 50 < len(state.pending_approvals) == len(state.calls) - 1 < 400
    last = list(state.calls.values())[-1]
    assert last.approval_id is None
    assert last.result is not None
    await run.cancel()


async def test_names_and_ids_of_any_length_end_no_run(cheap: Place, script: Script) -> None:
    asked = [call("n" * 400_000, "i" * 400_000, page=1), call("read", "c2", page=1)]
    agent = Agent("wordy", model=script(calls(*asked), says("done")), tools=[read])
    await cheap.open(agent)
    run = await cheap.start(agent)
    assert (await run.result()).output == "done"
    first, second = [e for e in await cheap.events(run) if isinstance(e, ToolCall)]
    assert (first.tool_call_id, len(first.tool_name)) == ("call-1-0", 256)
    assert (second.tool_call_id, second.tool_name) == ("c2", "read")
    assert replay(await load_trace(cheap.log, run.run_id)).divergence is None
