"""Questions of running tools: the attempt ends, people answer a form, and the call is run again with the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog import Custom, McpProgress
from foldlog.eventlog.errors import ApprovalError
from foldlog.eventlog.memory import MemoryLog
from foldlog.replay import compare, load_trace, rerun
from foldlog.runtime import Agent, Registry, RunHandle, Runtime, ToolContext, tool
from foldlog.runtime.core.decide import pending
from foldlog.runtime.core.effects import CallTool
from foldlog.runtime.ports.tools import ToolFailed

from tests.replay.scenarios import ShiftedClock
from tests.runtime.conftest import Place, call, calls, names, says
from tests.runtime.test_approvals import asked, parked, results

Script = Callable[..., str]
FORM = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Travel:
    """A tool that asks where to go and whether really; `done` is what its body did, each time it ran."""

    def __init__(self, script: Script, **options: Any) -> None:
        self.done: list[str] = []
        done = self.done

        @tool(**options)
        async def travel(ctx: ToolContext) -> str:
            """Travel."""
            done.append("ran")
            await ctx.memo("ticket", lambda: done.append("bought a ticket"))
            ctx.progress(len(done))
            where = await ctx.ask("Where to?", FORM)
            if not where.accepted:
                return f"stayed: {where.action}, {where.note}"
            really = await ctx.ask(f"Really {(where.content or {})['city']}?", name="really")
            return f"{(where.content or {})['city']}: {really.action} by {really.by}"

        @tool
        async def other() -> str:
            """Do something else."""
            done.append("other")
            return "other"

        turn = calls(call("travel", "t"), call("other", "o"))
        self.agent = Agent("traveller", model=script(turn, says("done")), tools=[travel, other])


async def question(run: RunHandle[Any]) -> str:
    """The id of the one question that is pending, once the run has parked for it."""
    await parked(run)
    (approval,) = (await run.state()).pending_approvals
    assert approval.request.kind == "elicitation"
    return approval.request.approval_id


@pytest.mark.parametrize("effect", ["pure", "unsafe"])
async def test_a_call_that_asks_waits_without_a_worker_and_goes_on_with_the_answers(
    place: Place, script: Script, effect: str
) -> None:
    travel = Travel(script, effect=effect)
    await place.open(travel.agent)
    run = await place.start(travel.agent)
    where = await question(run)
    state = await run.state()
    assert (state.owner, state.status) == (None, "paused")
    assert state.approvals[where].request.arguments == {
        "name": "question-0",
        "message": "Where to?",
        "schema": FORM,
    }
    for wrong in (None, {"city": 7}, {"town": "Rome"}):
        with pytest.raises(ApprovalError, match="does not fit the form"):
            await run.resolve(where, "approved", arguments=wrong)
    await run.resolve(where, "approved", arguments={"city": "Rome"}, by="ann")
    async with asyncio.timeout(120):
        journal = await run._journal()
        await journal.follow_until(lambda state: len(state.approvals) == 2 and state.parked is not None)
    really = await question(run)
    with pytest.raises(ApprovalError, match="has no form"):
        await run.resolve(really, "approved", arguments={"city": "Rome"})
    await run.resolve(really, "approved", by="bob")
    assert (await run.result()).output == "done"
    found = (await results(place, run))["t"]
    assert (found.result, found.metadata["attempt"]) == ("Rome: accept by bob", 3)
    assert "edited_arguments" not in found.metadata
    assert found.metadata["approval_status"] == "not_required"
    assert sorted(travel.done) == ["bought a ticket", "other", "ran", "ran", "ran"]
    seen = names(await place.events(run))
    assert [n for n in seen if "paused" in n or "resumed" in n] == ["status(paused)", "status(resumed)"] * 2
    assert seen.count("mcp_progress") == 1


async def test_declining_and_not_answering_are_distinguished(script: Script) -> None:
    travel, clock = Travel(script), ShiftedClock()
    log, registry = MemoryLog(clock=clock), Registry(agents=[travel.agent])
    declined = silent = ""
    async with Runtime.open(log=log, registry=registry) as runtime:
        run = await runtime.start(travel.agent, "question")
        await run.resolve(await question(run), "rejected", note="not today")
        await run.result()
        declined = (await run.history())[2].content
        waiting = await runtime.start(travel.agent, "question")
        silent = waiting.run_id
        await question(waiting)
    clock.ahead_s = 8 * 24 * 3600.0
    async with Runtime.open(log=log, registry=registry) as later:
        await later.drive(silent)
        await later.get_run(silent).result()
        assert (await later.get_run(silent).history())[2].content == "stayed: cancel, "
    assert declined == "stayed: decline, not today"


async def test_a_question_is_asked_once_beside_a_call_that_still_runs(place: Place, script: Script) -> None:
    """The run is not parked when the answer comes, and the same driver runs the call again."""
    entered, go = asyncio.Event(), asyncio.Event()

    @tool(effect="pure")
    async def slow() -> str:
        """Take a while."""
        entered.set()
        await go.wait()
        return "slow"

    @tool(effect="pure")
    async def curious(ctx: ToolContext) -> str:
        """Ask."""
        return (await ctx.ask("Sure?")).action

    turn = calls(call("slow", "s"), call("curious", "q"))
    agent = Agent("asker", model=script(turn, says("done")), tools=[slow, curious])
    await place.open(agent)
    run = await place.start(agent)
    await entered.wait()
    async with asyncio.timeout(120):
        async for event in run.stream():
            if event.type == "approval_requested":
                await run.resolve(event.approval_id, "approved")
            if event.type == "approval_resolved":
                break
        async for event in run.stream(detailed=True):
            if event.type == "tool_result":
                assert (event.tool_call_id, event.result) == ("q", "accept")
                break
    go.set()
    await run.result()
    assert names(await place.events(run)).count("approval_requested") == 1


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"type": "nonsense"}, "must be a JSON Schema: not a valid JSON Schema at $.type"),
        ({"type": "string"}, "must be a JSON Schema of an object, not of type 'string'"),
    ],
)
async def test_a_form_that_nobody_can_fill_in_fails_the_call(
    script: Script, form: dict[str, Any], told: str
) -> None:
    @tool(effect="pure")
    async def clumsy(ctx: ToolContext) -> str:
        """Ask badly."""
        return (await ctx.ask("?", form)).action

    agent = Agent("asker", model=script(calls(call("clumsy")), says("done")), tools=[clumsy])
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        await run.result()
        assert f"the form of a question {told}" in (await run.history())[2].content


async def test_whatever_a_tool_makes_of_the_end_of_its_attempt_the_question_stands(script: Script) -> None:
    @tool(effect="pure")
    async def stubborn(ctx: ToolContext) -> str:
        """Ask, in a group of tasks."""
        try:
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(ctx.ask("Sure?"))
        except BaseExceptionGroup:
            raise ToolFailed("caught") from None
        return asking.result().action

    agent = Agent("asker", model=script(calls(call("stubborn")), says("done")), tools=[stubborn])
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        (approval,) = await asked(run)
        await run.resolve(approval, "approved")
        await run.result()
        assert (await run.history())[2].content == "accept"


async def test_a_question_of_an_mcp_server_is_an_approval_with_a_form(
    script: Script, mcp_server: dict[str, Any]
) -> None:
    """Every process, and the server, are gone between the question and the answer."""
    entry = {**mcp_server, "env": {"FAKE_MCP_KEY": "k" * 32}}
    model = script(calls(call("mcp__srv__confirmed")), says("done"))
    agent = Agent("careful", model=model, mcp_servers={"srv": entry})
    log = MemoryLog()
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        approval = await question(run)
    async with Runtime.open(log=log) as passing:
        request = (await passing.get_run(run.run_id).state()).approvals[approval].request
        assert (request.tool_name, request.arguments["message"]) == ("mcp__srv__confirmed", "Really?")
        assert request.arguments["schema"]["properties"]["approve"]["type"] == "boolean"
        with pytest.raises(ApprovalError, match="does not fit the form"):
            await passing.get_run(run.run_id).resolve(approval, "approved", arguments={"approve": "maybe"})
        await passing.get_run(run.run_id).resolve(approval, "approved", arguments={"approve": True})
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as later:
        await later.drive(run.run_id)
        await later.get_run(run.run_id).result()
        assert (await later.get_run(run.run_id).history())[2].content == "True"


async def test_fields_of_a_form_that_are_left_out_have_their_defaults(place: Place, script: Script) -> None:
    fields = {
        "city": {"type": "string"},
        "nights": {"type": "integer", "default": 2},
        "sea": {"type": "boolean", "default": True},
    }
    form = {"type": "object", "properties": fields, "required": ["city", "nights"]}

    @tool
    async def travel(ctx: ToolContext) -> Any:
        """Travel."""
        return (await ctx.ask("Where to?", form)).content

    agent = Agent("traveller", model=script(calls(call("travel", "t")), says("done")), tools=[travel])
    await place.open(agent)
    run = await place.start(agent)
    where = await question(run)
    with pytest.raises(ApprovalError, match="'city' is a required property"):
        await run.resolve(where, "approved", arguments={"nights": 3})
    await run.resolve(where, "approved", arguments={"city": "Rome", "sea": False})
    await run.result()
    (result,) = (await results(place, run)).values()
    assert result.result == {"city": "Rome", "nights": 2, "sea": False}


async def test_an_mcp_call_that_is_out_of_time_is_cancelled_at_the_server(
    script: Script, mcp_server: dict[str, Any]
) -> None:
    """Its rounds run in tasks of their own, so that they can be stored; the end of time reaches them all the same."""
    entry = {**mcp_server, "timeout_s": 1.0, "effects": {"slow": "idempotent"}}
    turns = [
        calls(call("mcp__srv__slow", "a")),
        calls(call("mcp__srv__wait_until_slow_is_cancelled", "b")),
        says("done"),
    ]
    agent = Agent("patient", model=script(*turns), mcp_servers={"srv": entry})
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        await run.result()
        told = [event async for event in run.stream(detailed=True) if event.type == "tool_result"]
    assert [(event.metadata["status"], event.result) for event in told] == [
        ("timed_out", None),
        ("success", "cancelled"),
    ]


async def test_what_a_tool_shows_around_its_questions_and_parts_is_stored_once_and_whole(
    place: Place, script: Script
) -> None:
    """Events emitted within a memo, or only before an answer, are not shown again and do not shift later ones."""

    @tool(effect="pure")
    async def guide(ctx: ToolContext) -> str:
        """Ask twice."""

        def show(name: str) -> str:
            ctx.emit(Custom(name))
            return name

        show("begun")
        await ctx.memo("map", lambda: [show("drawing"), show("drawn")])
        if ctx.answer("where") is None:
            show("asking")
        await ctx.ask("Where to?", name="where")
        show("knows where")
        await ctx.memo("way", lambda: show("found"))
        await ctx.ask("Now?", name="now")
        return show("gone")

    agent = Agent("guide", model=script(calls(call("guide")), says("done")), tools=[guide])
    await place.open(agent)
    run = await place.start(agent)
    await run.resolve(await question(run), "approved")
    async with asyncio.timeout(120):
        journal = await run._journal()
        await journal.follow_until(lambda state: len(state.approvals) == 2 and state.parked is not None)
    await run.resolve(await question(run), "approved")
    await run.result()
    shown = [event.name for event in await place.events(run) if isinstance(event, Custom)]
    assert shown == ["begun", "drawing", "drawn", "asking", "knows where", "found", "gone"]
    again = await rerun(await load_trace(place.log, run.run_id))
    assert compare(await load_trace(place.log, run.run_id), again).equal


async def test_progress_of_every_round_of_an_mcp_call_is_stored(
    script: Script, mcp_server: dict[str, Any]
) -> None:
    """The SDK's server resolves what it asks for in each round again, and says so each time."""
    entry = {**mcp_server, "env": {"FAKE_MCP_KEY": "k" * 32}}
    model = script(calls(call("mcp__srv__reported")), says("done"))
    agent = Agent("careful", model=model, mcp_servers={"srv": entry})
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        await run.resolve(await question(run), "approved", arguments={"approve": True})
        await run.result()
        shown = [event.message async for event in run.stream() if isinstance(event, McpProgress)]
    assert shown == ["asking", "asking", "doing", "done"]


@pytest.mark.parametrize("how", ["asks", "needs an approval"])
async def test_a_call_that_people_answer_for_does_not_run_beside_one_that_runs_alone(
    place: Place, script: Script, how: str
) -> None:
    inside: list[str] = []
    entered, free = asyncio.Event(), asyncio.Event()

    @tool(effect="pure", parallel=False)
    async def first(context: ToolContext) -> str:
        """Ask, and be alone."""
        if how == "asks":
            await context.ask("Go on?")
        assert inside == []
        return "alone"

    @tool(effect="pure", parallel=False)
    async def second() -> str:
        """Be alone until it is free."""
        inside.append("second")
        entered.set()
        await free.wait()
        inside.remove("second")
        return "alone, too"

    turn = calls(call("first", "a"), call("second", "b"))
    hitl = [] if how == "asks" else ["first"]
    agent = Agent("helper", model=script(turn, says("done")), tools=[first, second], hitl_tools=hitl)
    await place.open(agent)
    run = await place.start(agent)
    await asyncio.wait_for(entered.wait(), 120)
    async for event in run.stream():
        if event.type == "approval_requested":
            await run.resolve(event.approval_id, "approved")  # type: ignore[attr-defined]
            break
    assert [effect.call_id for effect in await _running(run)] == ["b"]
    free.set()
    assert (await run.result()).output == "done"
    answers = [m.content for m in await run.history() if m.role == "tool"]
    assert answers == ["alone", "alone, too"]


async def _running(run: RunHandle[Any]) -> list[Any]:
    """The calls that the core would have run now."""
    effects = pending(await run.state(), 1e12)
    return [effect for effect in effects if isinstance(effect, CallTool)]
