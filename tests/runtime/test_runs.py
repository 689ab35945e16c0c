"""The behaviour of a run on both executors and both logs, cancels included (R19, W22)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from anyio import wait_all_tasks_blocked
from foldlog.adapters.models import ScriptedProvider
from foldlog.eventlog import (
    Log,
    RunCancelled,
    RunConflict,
    RunFailed,
    RunFinished,
    RunNotFound,
    Selector,
    Stored,
    Subject,
    decode,
)
from foldlog.runtime import Agent, Custom, Retryable, Runtime, ToolContext, ToolFailed, tool

from .conftest import HeldClock, HeldTool, Place, call, calls, names, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]


@tool(effect="pure")
async def search(query: str, ctx: ToolContext) -> str:
    """Search for something."""
    ctx.progress(1, 2)
    ctx.progress(2, 2)
    return f"found {query}"


async def test_a_tool_call_with_progress_gives_the_canonical_trace(place: Place, script: Script) -> None:
    agent = Agent(
        "helper", model=script(calls(call("search", query="x")), says("Final ", "answer")), tools=[search]
    )
    await place.open(agent)
    run = await place.start(agent)
    result = await run.result()
    assert (result.output, result.steps, result.usage.total_tokens, result.reason) == (
        "Final answer",
        2,
        10,
        "",
    )
    assert names(await place.events(run)) == [
        "status(starting)",
        "step(started)",
        "usage",
        "tool_call",
        "mcp_progress",
        "mcp_progress",
        "tool_result",
        "step(completed)",
        "step(started)",
        "text",
        "usage",
        "step(completed)",
        "status(completed)",
    ]


async def test_one_bad_call_never_stops_its_siblings(place: Place, script: Script) -> None:
    @tool(effect="pure")
    async def broken(n: int) -> int:
        """Fail."""
        raise ValueError(f"no {n}")

    turn = calls(
        call("search", "a", query="x"),
        call("broken", "b", n=1),
        call("broken", "c", n="not a number"),
        call("missing", "d"),
        {"id": "e", "name": "search", "arguments": "{not json"},
    )
    agent = Agent("helper", model=script(turn, says("done")), tools=[search, broken])
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    results = {e.tool_call_id: e for e in await place.events(run) if e.type == "tool_result"}
    assert {k: r.success for k, r in results.items()} == {
        "a": True,
        "b": False,
        "c": False,
        "d": False,
        "e": False,
    }
    assert "ValueError: no 1" in (results["b"].error or "")
    assert "'n'" in (results["c"].error or "") or "n:" in (results["c"].error or "")
    assert "missing" in (results["d"].error or "")
    assert "JSON" in (results["e"].error or "")
    history = await run.history()
    assert [m.tool_call_id for m in history if m.role == "tool"] == ["a", "b", "c", "d", "e"]


async def test_max_steps_is_an_error_after_the_last_step_completed(place: Place, script: Script) -> None:
    turns = [calls(call("search", f"c{n}", query=str(n))) for n in range(3)]
    agent = Agent("helper", model=script(*turns), tools=[search], max_steps=2)
    await place.open(agent)
    run = await place.start(agent)
    with pytest.raises(RunFailed) as failure:
        await run.result()
    assert (failure.value.error_type, failure.value.steps) == ("max_steps", 2)
    assert names(await place.events(run))[-3:] == ["step(completed)", "error", "status(error)"]


async def test_three_identical_rounds_end_the_run_whatever_is_written_besides(
    place: Place, script: Script
) -> None:
    turns = [calls(call("search", f"c{n}", query="same", why=f"try {n}")) for n in range(4)]
    agent = Agent("helper", model=script(*turns), tools=[search], injected_tool_args={"why": "the reason"})
    await place.open(agent)
    run = await place.start(agent)
    with pytest.raises(RunFailed) as failure:
        await run.result()
    assert (failure.value.error_type, failure.value.steps) == ("loop_detected", 3)


async def test_a_model_that_keeps_failing_ends_the_run_with_its_error(place: Place, script: Script) -> None:
    turn = {"text": ["x"], "error": {"type": "transient", "times": 9}}
    agent = Agent("helper", model=script(turn), retry={"attempts": 3, "base_s": 0.01})
    await place.open(agent)
    run = await place.start(agent)
    with pytest.raises(RunFailed) as failure:
        await run.result()
    assert (failure.value.error_type, failure.value.steps) == ("transient", 0)
    assert names(await place.events(run)) == ["status(starting)", "step(started)", "error", "status(error)"]


async def test_a_transient_failure_is_retried_invisibly(place: Place, script: Script) -> None:
    turn = {"text": ["ok"], "error": {"type": "rate_limit", "times": 2}}
    agent = Agent("helper", model=script(turn), retry={"base_s": 0.01})
    await place.open(agent)
    run = await place.start(agent)
    assert (await run.result()).output == "ok"
    assert names(await place.events(run))[1:4] == ["step(started)", "text", "usage"]


async def test_an_error_that_no_retry_mends_is_not_retried(place: Place, script: Script) -> None:
    agent = Agent("helper", model=script({"text": ["x"], "error": {"type": "auth", "times": 1}}))
    await place.open(agent)
    run = await place.start(agent)
    with pytest.raises(RunFailed) as failure:
        await run.result()
    assert failure.value.error_type == "auth"


async def test_a_pure_tool_that_asks_for_it_is_tried_again(place: Place, script: Script) -> None:
    attempts: list[int] = []

    @tool(effect="idempotent")
    async def flaky() -> str:
        """Fail at first."""
        attempts.append(1)
        if len(attempts) < 2:
            raise Retryable("not yet", after_s=0.01)
        return "now"

    agent = Agent("helper", model=script(calls(call("flaky")), says("done")), tools=[flaky])
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    result = next(e for e in await place.events(run) if e.type == "tool_result")
    assert (result.success, result.result, result.metadata["attempt"], len(attempts)) == (True, "now", 2, 2)


async def test_a_tool_that_takes_too_long_gives_the_model_a_time_out(place: Place, script: Script) -> None:
    @tool(effect="pure", timeout_s=0.05)
    async def slow() -> str:
        """Never end."""
        await asyncio.Event().wait()
        return ""

    agent = Agent("helper", model=script(calls(call("slow")), says("done")), tools=[slow])
    await place.open(agent)
    run = await place.start(agent)
    assert (await run.result()).output == "done"
    result = next(e for e in await place.events(run) if e.type == "tool_result")
    assert (result.success, result.metadata["status"], result.error) == (
        False,
        "timed_out",
        "timed out after 0.05 s",
    )


async def test_an_exclusive_tool_runs_alone_and_the_others_together(place: Place, script: Script) -> None:
    running: set[str] = set()
    overlaps: set[frozenset[str]] = set()
    both = asyncio.Event()

    async def work(name: str) -> str:
        running.add(name)
        overlaps.add(frozenset(running))
        if name in {"a", "b"} and len(running) > 1:
            both.set()
        if name in {"a", "b"}:
            await both.wait()
        await asyncio.sleep(0)
        running.discard(name)
        return name

    @tool(effect="pure")
    async def shared(name: str) -> str:
        """Share."""
        return await work(name)

    @tool(effect="pure", parallel=False)
    async def alone(name: str) -> str:
        """Be alone."""
        return await work(name)

    turn = calls(
        call("shared", "1", name="a"),
        call("shared", "2", name="b"),
        call("alone", "3", name="x"),
        call("shared", "4", name="c"),
    )
    agent = Agent("helper", model=script(turn, says("done")), tools=[shared, alone])
    await place.open(agent)
    await (await place.start(agent)).result()
    assert frozenset({"a", "b"}) in overlaps
    assert all(seen == {"x"} for seen in overlaps if "x" in seen)


async def test_an_injected_message_reaches_the_next_step(place: Place, script: Script) -> None:
    held = HeldTool()
    agent = Agent("helper", model=script(calls(call("wait")), says("done")), tools=[held.wait])
    await place.open(agent)
    run = await place.start(agent)
    await held.entered.wait()
    await run.inject("hurry up")
    held.let_go.set()
    await run.result()
    events = await place.events(run)
    at = names(events).index("message_injected")
    assert (names(events)[at - 1], names(events)[at + 1]) == ("step(completed)", "step(started)")
    assert [m.content for m in await run.history() if m.role == "user"] == ["question", "hurry up"]
    with pytest.raises(RunFinished):
        await run.inject("too late")


async def test_a_message_that_comes_with_the_final_answer_makes_another_step(
    place: Place, script: Script
) -> None:
    held = HeldClock()
    agent = Agent("helper", model=script({**says("one"), "delay_ms": 1}, says("two")))
    await place.open(agent, providers={"scripted": ScriptedProvider(held)})
    run = await place.start(agent)
    await held.asked.wait()
    await run.inject("and?")
    held.let_go.set()
    assert (await run.result()).output == "two"


async def test_a_run_pauses_at_the_step_boundary_and_goes_on_when_resumed(
    place: Place, script: Script
) -> None:
    held = HeldTool()
    agent = Agent("helper", model=script(calls(call("wait")), says("done")), tools=[held.wait])
    await place.open(agent)
    run = await place.start(agent)
    await held.entered.wait()
    await run.pause()
    held.let_go.set()
    async for event in run.stream():
        if event.type == "status" and event.status == "paused":
            break
    assert (await run.state()).status == "paused"
    await run.resume()
    assert (await run.result()).output == "done"
    middle = [n for n in names(await place.events(run)) if n.startswith(("status", "step"))]
    assert middle[2:5] == ["step(completed)", "status(paused)", "status(resumed)"]


async def test_a_cancel_before_anybody_claims_leaves_exactly_two_events(place: Place, script: Script) -> None:
    agent = Agent("helper", model=script(says("done")))
    await place.open(agent, workers=0)
    run = await place.start(agent, executor="durable")  # nobody serves it
    assert await run.cancel("changed my mind") == "cancelled"
    assert await run.cancel() == "already_cancelled"
    assert names(await place.events(run)) == ["status(starting)", "status(cancelled)"]
    with pytest.raises(RunCancelled) as cancelled:
        await run.result()
    assert cancelled.value.reason == "changed my mind"


async def test_a_cancel_is_seen_while_the_tool_still_blocks(place: Place, script: Script) -> None:
    entered, left = asyncio.Event(), asyncio.Event()

    @tool(effect="pure")
    async def block() -> str:
        """Block."""
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return ""

    agent = Agent("helper", model=script(calls(call("block")), says("done")), tools=[block])
    await place.open(agent)
    run = await place.start(agent)
    await entered.wait()
    assert await run.cancel("stop") == "cancelled"
    with pytest.raises(RunCancelled):
        await run.result()
    await asyncio.wait_for(left.wait(), 120)
    assert names(await place.events(run))[-2:] == ["tool_call", "status(cancelled)"]


async def test_a_finished_run_cannot_be_cancelled(place: Place, script: Script) -> None:
    agent = Agent("helper", model=script(says("done")))
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    assert await run.cancel() == "already_completed"


async def test_a_rejected_call_tells_the_model_and_an_approved_one_runs(place: Place, script: Script) -> None:
    ran: list[str] = []

    @tool
    async def deploy(service: str) -> str:
        """Deploy."""
        ran.append(service)
        return f"deployed {service}"

    turn = calls(
        call("deploy", "a", service="web"), call("deploy", "b", service="db"), call("search", "c", query="x")
    )
    agent = Agent("ops", model=script(turn, says("done")), tools=[deploy, search], hitl_tools=["deploy"])
    await place.open(agent)
    run = await place.start(agent)
    requests = []
    async for event in run.stream(detailed=True):
        if event.type == "approval_requested":
            requests.append(event)
        if event.type == "tool_result":
            break
    assert [r.tool_call_id for r in requests] == ["a", "b"]
    await run.resolve(requests[0].approval_id, "approved", arguments={"service": "web-2"}, by="ann")
    await run.resolve(requests[1].approval_id, "rejected", note="not today")
    assert (await run.result()).output == "done"
    assert ran == ["web-2"]
    results = {e.tool_call_id: e for e in await place.events(run) if e.type == "tool_result"}
    assert results["a"].metadata["edited_arguments"] == {"service": "web-2"}
    assert (results["b"].metadata["status"], "not today" in (results["b"].error or "")) == ("rejected", True)
    paused = [n for n in names(await place.events(run)) if n in {"status(paused)", "status(resumed)"}]
    assert paused == ["status(paused)", "status(resumed)"]


async def test_output_that_misses_the_schema_gets_two_more_chances(place: Place, script: Script) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    good = Agent("good", model=script(says("no json"), says("[]"), says('{"n": 1}')), output_schema=schema)
    bad = Agent("bad", model=script(says("no"), says("{}"), says("[]")), output_schema=schema)
    await place.open(good, bad)
    assert (await (await place.start(good)).result()).steps == 3
    with pytest.raises(RunFailed) as failure:
        await (await place.start(bad)).result()
    assert failure.value.error_type == "output_invalid"


async def test_runs_of_one_session_go_one_after_the_other(place: Place, script: Script) -> None:
    order: list[str] = []

    @tool(effect="pure")
    async def note(name: str) -> str:
        """Note."""
        order.append(name)
        return name

    agents = [
        Agent(
            f"agent{n}",
            model=script(
                calls(call("note", name=f"{n}a")), calls(call("note", "d", name=f"{n}b")), says("x")
            ),
            tools=[note],
        )
        for n in range(3)
    ]
    await place.open(*agents, workers=2)
    runs = [await place.start(agent, session="talk") for agent in agents]
    for run in runs:
        await run.result()
    assert order == ["0a", "0b", "1a", "1b", "2a", "2b"]


async def test_the_same_key_gives_the_same_run_also_at_once(place: Place, script: Script) -> None:
    ran: list[int] = []

    @tool(effect="pure")
    async def count() -> int:
        """Count."""
        ran.append(1)
        return len(ran)

    agent = Agent("helper", model=script(calls(call("count")), says("done")), tools=[count])
    await place.open(agent)
    runs = await asyncio.gather(*[place.start(agent, idempotency_key="k") for _ in range(5)])
    assert len({run.run_id for run in runs}) == 1
    await runs[0].result()
    assert ran == [1]
    with pytest.raises(RunConflict):
        await place.start(agent, "another question", idempotency_key="k")


async def test_who_submits_an_abandoned_run_again_drives_it_on(log: Log, script: Script) -> None:
    held = HeldTool()
    agent = Agent("helper", model=script(calls(call("wait")), says("done")), tools=[held.wait])
    async with Runtime.open(log=log) as first:
        run = await first.start(agent, "question", idempotency_key="k")
        await held.entered.wait()
    held.let_go.set()
    async with Runtime.open(log=log) as second:
        again = await second.start(agent, "question", idempotency_key="k")
        assert again.run_id == run.run_id
        assert (await again.result()).output == "done"


async def test_a_run_id_of_ones_own_is_taken_once(place: Place, script: Script) -> None:
    agent = Agent("helper", model=script(says("done")))
    await place.open(agent)
    first = await place.start(agent, run_id="mine")
    again = await place.start(agent, run_id="mine")
    assert first.run_id == again.run_id == "mine"
    with pytest.raises(RunConflict):
        await place.start(agent, "else", run_id="mine")
    assert (await place.runtime.get_run("mine").result()).output == "done"


async def test_an_unknown_run_is_not_found(place: Place, script: Script) -> None:
    await place.open(Agent("helper", model=script(says("x"))))
    with pytest.raises(RunNotFound):
        await place.runtime.get_run("nothing").result()


async def test_a_time_out_leaves_the_run_alone(place: Place, script: Script) -> None:
    held = HeldClock()
    agent = Agent("helper", model=script({**says("done"), "delay_ms": 1}))
    await place.open(agent, providers={"scripted": ScriptedProvider(held)})
    run = await place.start(agent)
    with pytest.raises(TimeoutError):
        await run.result(timeout_s=0.01)
    held.let_go.set()
    assert (await run.result()).output == "done"


async def test_a_tools_own_events_are_stored_within_its_call(place: Place, script: Script) -> None:
    @tool(effect="pure")
    async def report(ctx: ToolContext) -> str:
        """Report."""
        ctx.emit(Custom("note", {"n": 1}))
        return "ok"

    agent = Agent("helper", model=script(calls(call("report")), says("done")), tools=[report])
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    events = await place.events(run)
    custom = next(e for e in events if e.type == "custom")
    assert (custom.name, custom.data, custom.tool_call_id, custom.agent_path) == (
        "note",
        {"n": 1},
        "c1",
        "helper",
    )


def _delegating(inner: Agent[Any], script: Script) -> Agent[Any]:
    @tool(effect="pure")
    async def delegate(ctx: ToolContext) -> str:
        """Delegate."""
        return await ctx.run(inner, "sub question")

    return Agent("outer", model=script(calls(call("delegate")), says("done")), tools=[delegate])


async def test_a_tool_runs_a_child_agent_whose_events_stand_within_the_call(
    place: Place, script: Script
) -> None:
    inner = Agent(
        "inner", model=script(calls(call("search", query="deep")), says("inner answer")), tools=[search]
    )

    outer = _delegating(inner, script)
    await place.open(outer, inner)
    run = await place.start(outer)
    assert (await run.result()).output == "done"
    events = await place.events(run)
    result = next(e for e in events if e.type == "tool_result" and e.agent == "outer")
    assert result.result == "inner answer"
    inside = [i for i, e in enumerate(events) if e.agent_path == "outer/inner"]
    assert names(events)[inside[0] - 1] == "child_started"
    assert names(events)[inside[-1] + 1] == "child_finished"
    assert inside == list(range(inside[0], inside[-1] + 1))


async def test_cancelling_a_parent_cancels_its_child_first(place: Place, script: Script) -> None:
    entered = asyncio.Event()

    @tool(effect="pure")
    async def block() -> str:
        """Block."""
        entered.set()
        await asyncio.Event().wait()
        return ""

    inner = Agent("inner", model=script(calls(call("block")), says("x")), tools=[block])

    outer = _delegating(inner, script)
    await place.open(outer, inner)
    run = await place.start(outer)
    await entered.wait()
    await run.cancel("all of it")
    with pytest.raises(RunCancelled):
        await run.result()
    ends = [e.agent_path for e in await place.events(run) if e.type == "status" and e.status == "cancelled"]
    assert ends == ["outer/inner", "outer"]


async def test_a_child_that_hears_of_the_cancel_before_its_parent_says_what_became_of_its_call(
    cheap: Place, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, told, gate = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool(effect="pure")
    async def hold() -> str:
        """Hold on, for a while even when told to let go."""
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.set()
            await gate.wait()
        return ""

    inner = Agent("inner", model=script(calls(call("hold")), says("x")), tools=[hold])

    outer = _delegating(inner, script)
    follow = cheap.log.events.follow

    async def hearing_late(selector: Selector, after: int = 0) -> AsyncIterator[Stored]:
        async for stored in follow(selector, after):
            if isinstance(selector, Subject) and selector.id == selector.root:
                await told.wait()
            yield stored

    monkeypatch.setattr(cheap.log.events, "follow", hearing_late)
    await cheap.open(outer, inner)
    run = await cheap.start(outer)
    await entered.wait()
    child = cheap.runtime.get_run(next(iter((await run.state()).open_children)))
    await run.cancel("all of it")
    await told.wait()
    await wait_all_tasks_blocked()  # the parent has ended, too, as far as it can
    gate.set()
    async with asyncio.timeout(120):
        async for stored in cheap.log.events.follow(await cheap.runtime.locate(child.run_id)):
            if any(event.type == "late_outcome" for event in decode(stored.data).events):
                break


async def test_cancelling_a_child_leaves_its_parent_running(place: Place, script: Script) -> None:
    entered = asyncio.Event()

    @tool(effect="pure")
    async def block() -> str:
        """Block."""
        entered.set()
        await asyncio.Event().wait()
        return ""

    inner = Agent("inner", model=script(calls(call("block")), says("x")), tools=[block])

    outer = _delegating(inner, script)
    await place.open(outer, inner)
    run = await place.start(outer)
    await entered.wait()
    child = next(iter((await run.state()).open_children))
    assert await place.runtime.get_run(child).cancel() == "cancelled"
    assert (await run.result()).output == "done"
    result = next(e for e in await place.events(run) if e.type == "tool_result" and e.agent == "outer")
    assert (result.success, result.error) == (False, "child cancelled")
    assert (result.metadata["status"], result.metadata["attempt"]) == ("aborted", 1)


async def test_a_failing_tool_may_return_content_with_its_error(place: Place, script: Script) -> None:
    @tool(effect="pure")
    async def half() -> str:
        """Half."""
        raise ToolFailed("half done", result={"done": 1})

    agent = Agent("helper", model=script(calls(call("half")), says("done")), tools=[half])
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    result = next(e for e in await place.events(run) if e.type == "tool_result")
    assert (result.success, result.error, result.result) == (False, "half done", {"done": 1})
