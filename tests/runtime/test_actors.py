"""Every action of a person has its actor in the log, and a program that says nothing costs no byte."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, decode
from foldlog.eventlog.events import (
    Actor,
    ApprovalResolved,
    CancelRequested,
    LaneUpdated,
    MessageQueued,
    PauseRequested,
    Status,
    Submitted,
    Trigger,
)
from foldlog.replay import canonical, compare, load_trace, replay
from foldlog.runtime import Agent, RunHandle, tool

from tests.runtime.conftest import Place, call, calls, says

Script = Callable[..., str]
ADA = Actor(by="ada", via="console", request_id="r-17")


def author(event: Any) -> tuple[str, str, str]:
    return event.by, event.via, event.request_id


async def steered(
    place: Place, script: Script, *authors: str | Actor, **options: Any
) -> list[RunHandle[Any]]:
    """A run for each author, who started it, told it something, paused and resumed it, and allowed a call."""

    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        await started.wait()
        await runs[-1].inject("look again", by=authors[len(runs) - 1])
        await runs[-1].pause(by=authors[len(runs) - 1])
        return "seen"

    @tool(effect="pure")
    async def touch() -> str:
        """Touch."""
        return "touched"

    runs: list[RunHandle[Any]] = []
    started = asyncio.Event()
    model = script(calls(call("look")), calls(call("touch", "c2")), says("done"))
    agent = Agent("hand", model=model, tools=[look, touch], hitl_tools=["touch"])
    await place.open(agent)
    for by in authors:
        started.clear()
        run = await place.start(agent, by=by, **options)
        runs.append(run)
        started.set()
        assert not [event async for event in run.until_waiting()][-1].is_end
        await run.resume(by=by)
        events = [event async for event in run.until_waiting()]
        (asked,) = [event.approval_id for event in events if event.type == "approval_requested"]
        await run.resolve(asked, "approved", by=by)
        await run.result()
    return runs


async def test_every_action_of_a_person_tells_who_did_it_and_how(place: Place, script: Script) -> None:
    (run,) = await steered(place, script, ADA, session="s")
    trace = await load_trace(place.log, run.run_id)
    (submitted,) = [event for event in trace.events if isinstance(event, Submitted)]
    assert submitted.trigger == Trigger(kind="api", by="ada", via="console", request_id="r-17")
    authors = {
        event.type: author(event)
        for event in trace.events
        if isinstance(event, MessageQueued | PauseRequested | ApprovalResolved)
        or (isinstance(event, Status) and event.reason == "manual" and event.status == "resumed")
    }
    kinds = {"message_queued", "pause_requested", "approval_resolved", "status"}
    assert authors == dict.fromkeys(kinds, ("ada", "console", "r-17"))
    assert replay(trace).divergence is None
    assert await place.runtime.drop_last_user_turns("s", 1, by=ADA) == 1
    dropped = [
        event
        for shard in range(place.log.events.shards)
        async for stored in place.log.events.heads(shard, "lane")
        for event in decode(stored.data).events
        if isinstance(event, LaneUpdated) and event.dropped
    ]
    assert [author(event) for event in dropped] == [("ada", "console", "r-17")]


async def test_runs_that_others_steered_through_other_doors_are_equal(cheap: Place, script: Script) -> None:
    one, other, silent = [
        await load_trace(cheap.log, run.run_id) for run in await steered(cheap, script, ADA, "bo", "")
    ]
    assert compare(one, other).equal
    assert compare(one, silent).equal


async def test_a_cancel_a_fork_and_a_retry_have_their_actors(cheap: Place, script: Script) -> None:
    agent = Agent("hand", model=script(says("done")))
    runtime = await cheap.open(agent)
    run = await cheap.start(agent)
    await run.result()
    fork = await cheap.fork(run, at=2, by=ADA)
    again = await runtime.retry(run.run_id, by=ADA)
    for each, kind in ((fork, "api"), (again, "retry")):
        submitted = (await each.state()).submitted
        assert submitted is not None
        assert submitted.trigger is not None
        assert (submitted.trigger.kind, author(submitted.trigger)) == (kind, ("ada", "console", "r-17"))
        await each.result()
    served_by_nobody = await cheap.runtime.start(Agent("idle", model="scripted:x"), "x", executor="durable")
    await served_by_nobody.cancel("enough", by=ADA)
    trace = await load_trace(cheap.log, served_by_nobody.run_id)
    assert [author(e) for e in trace.events if isinstance(e, CancelRequested)] == [author(ADA)]


async def test_a_program_that_says_nothing_stores_nothing_about_itself(cheap: Place, script: Script) -> None:
    agent = Agent("hand", model=script(says("done")))
    await cheap.open(agent)
    run = await cheap.start(agent)
    await run.result()
    trace = await load_trace(cheap.log, run.run_id)
    stored = b"".join(each.data for each in trace.stored)
    assert [word for word in (b"trigger", b'"by"', b'"via"', b"request_id") if word in stored] == []
    row = await (await cheap.runtime.index()).run(run.run_id)
    assert row.trigger == Trigger(kind="api")
    assert canonical(trace).boundaries


@pytest.mark.parametrize(
    "by",
    [7, Actor(by="a" * 600), Actor(via="fax"), Actor(by="\ud800")],  # type: ignore[arg-type] # on purpose
)
async def test_an_actor_that_cannot_be_stored_is_refused(cheap: Place, script: Script, by: Any) -> None:
    agent = Agent("hand", model=script(says("done")))
    await cheap.open(agent)
    with pytest.raises(ConfigError, match="actor"):
        await cheap.start(agent, by=by)
    run = await cheap.start(agent)
    await run.result()
    for act in (run.pause, run.resume, run.cancel):
        with pytest.raises(ConfigError, match="actor"):
            await act(by=by)
    with pytest.raises(ConfigError, match="actor"):
        await run.inject("hello", by=by)
