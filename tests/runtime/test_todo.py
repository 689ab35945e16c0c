"""A list of things to do that is what the log says of it, on both executors and both logs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from foldlog.replay import load_trace, rerun
from foldlog.runtime import Agent

from .conftest import Place, call, calls, says

pytestmark = pytest.mark.anyio


async def test_what_is_noted_and_done_is_part_of_the_run(place: Place, script: Callable[..., str]) -> None:
    agent = Agent(
        "helper",
        model=script(
            calls(call("add_todo", "a", text="buy milk"), call("add_todo", "b", text="call Ann")),
            calls(call("complete_todo", "c", id="1.1"), call("complete_todo", "d", id="9.9")),
            calls(call("get_todo", "e")),
            says("done"),
        ),
        tools=["add_todo", "complete_todo", "get_todo"],
    )
    await place.open(agent)
    run = await place.start(agent)
    assert (await run.result()).output == "done"
    todos = (await run.state()).todos
    assert [(todo.id, todo.text, todo.done) for todo in todos] == [
        ("1.0", "buy milk", False),
        ("1.1", "call Ann", True),
    ]
    results = {e.tool_call_id: e for e in await place.events(run) if e.type == "tool_result"}
    assert results["e"].result == [
        {"id": "1.0", "text": "buy milk", "done": False},
        {"id": "1.1", "text": "call Ann", "done": True},
    ]
    assert "known: 1.0, 1.1" in (results["d"].error or "")
    again = await rerun(await load_trace(place.log, run.run_id))
    assert [e.result for e in again.events if e.type == "tool_result"] == [
        results[name].result for name in "abcde"
    ]


async def test_a_call_finds_what_the_calls_before_it_in_its_step_have_written(
    place: Place, script: Callable[..., str]
) -> None:
    agent = Agent(
        "helper",
        model=script(
            calls(
                call("add_todo", "a", text="buy milk"),
                call("complete_todo", "b", id="1.0"),
                call("get_todo", "c"),
            ),
            says("done"),
        ),
        tools=["add_todo", "complete_todo", "get_todo"],
    )
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    results = {e.tool_call_id: e.result for e in await place.events(run) if e.type == "tool_result"}
    assert results == {"a": "1.0", "b": "done", "c": [{"id": "1.0", "text": "buy milk", "done": True}]}


async def test_what_is_wrong_is_told_and_changes_nothing_and_done_is_done(
    place: Place, script: Callable[..., str]
) -> None:
    agent = Agent(
        "helper",
        model=script(
            calls(
                call("add_todo", "empty", text=""),
                call("add_todo", "number", text=3),
                call("add_todo", "a", text="日本 🐟"),
                call("add_todo", "b", text="日本 🐟"),
            ),
            calls(call("complete_todo", "none"), call("complete_todo", "c", id="1.3")),
            calls(call("complete_todo", "again", id="1.3"), call("complete_todo", "other", id="1.0")),
            calls(call("get_todo", "e")),
            says("done"),
        ),
        tools=["add_todo", "complete_todo", "get_todo"],
        hitl_tools=["get_todo"],
    )
    await place.open(agent)
    run = await place.start(agent)
    async for event in run.stream():
        if event.type == "approval_requested":
            await place.hand_over(run)  # the next driver has the same list
            await run.resolve(event.approval_id, "approved")
    results = {e.tool_call_id: e for e in await place.events(run) if e.type == "tool_result"}
    assert results["empty"].error == results["number"].error == "give the text of what is to be done"
    assert (results["a"].result, results["b"].result) == ("1.2", "1.3")
    assert results["none"].error == "there is no None to do; known: 1.2, 1.3"
    assert results["other"].error == "there is no '1.0' to do; known: 1.2, 1.3"
    assert results["again"].result == "done"
    assert results["e"].result == [
        {"id": "1.2", "text": "日本 🐟", "done": False},
        {"id": "1.3", "text": "日本 🐟", "done": True},
    ]
