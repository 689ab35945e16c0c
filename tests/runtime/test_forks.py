"""Forks: they share what was finished, go on live under their policy, and leave the run that they left alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foldlog.adapters.cli.traces import events_of
from foldlog.eventlog import (
    ApprovalRequested,
    ConfigError,
    NotRegistered,
    RunConflict,
    RunFailed,
    RunNotFound,
)
from foldlog.eventlog.faults import FaultyLog, LateAppend, LostAck
from foldlog.eventlog.memory import MemoryLog
from foldlog.replay import canonical, compare, export, import_archive, load_trace, read_archive, rerun
from foldlog.runtime import Agent, Registry, RunHandle, Runtime, ToolContext, tool

from .conftest import Place, call, calls, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]


class Effects:
    """Tools of every effect, and how often each ran with which text."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def tools(self) -> list[Any]:
        @tool(effect="pure")
        async def look(what: str) -> str:
            """Look."""
            self.ran.append(f"look {what}")
            return f"saw {what}"

        @tool(effect="idempotent")
        async def put(what: str) -> str:
            """Put."""
            self.ran.append(f"put {what}")
            return f"put {what}"

        @tool(effect="unsafe")
        async def send(what: str) -> str:
            """Send."""
            await self.gate.wait()
            self.ran.append(f"send {what}")
            return f"sent {what}"

        return [look, put, send]


ROUND = calls(call("look", "a", what="x"), call("put", "b", what="x"), call("send", "c", what="x"))
AGAIN = calls(call("look", "d", what="y"), call("send", "e", what="y"))


async def _approve_all(run: RunHandle[Any]) -> int:
    """Answer every approval until the run is over; how many there were."""
    answered = 0
    async for event in run.stream():
        if event.type == "status" and getattr(event, "status", "") == "paused":
            for approval in (await run.state()).pending_approvals:
                await run.resolve(approval.request.approval_id, "approved")
                answered += 1
    return answered


async def _paused(run: RunHandle[Any]) -> None:
    async with asyncio.timeout(120):
        async for event in run.stream():
            if event.type == "status" and getattr(event, "status", "") == "paused":
                return


async def test_a_fork_that_replays_is_equal_to_its_parent_from_every_revision_on_and_runs_nothing(
    cheap: Place, script: Script
) -> None:
    effects = Effects()
    agent = Agent("helper", model=script(ROUND, AGAIN, says("done")), tools=effects.tools())
    await cheap.open(agent)
    parent = await cheap.start(agent)
    await parent.result()
    ran, whole = list(effects.ran), canonical(await load_trace(cheap.log, parent.run_id))
    last = (await parent.state()).head.rev
    for at in range(1, last + 1):
        fork = await cheap.fork(parent, at=at, tools="replay")
        assert (await fork.result()).output == "done"
        found = compare(whole, canonical(await load_trace(cheap.log, fork.run_id)))
        assert found.equal, (at, found.render())
        taken = [
            e.metadata
            for e in await cheap.events(fork)
            if e.type == "tool_result" and "recorded_from" in e.metadata
        ]
        assert all(each["deduplicated"] for each in taken)
        assert taken or at > 1
    assert effects.ran == ran


async def test_of_equal_calls_in_a_round_each_has_the_result_that_is_its_own(
    cheap: Place, script: Script
) -> None:
    effects = Effects()
    turn = calls(*(call("send", name, what="x") for name in "abc"))
    agent = Agent("helper", model=script(turn, says("done")), tools=effects.tools())
    await cheap.open(agent)
    parent = await cheap.start(agent)
    await parent.result()
    revisions = [e.revision or 0 for e in await cheap.events(parent) if e.type == "tool_result"]
    for at in (revisions[0] - 1, *revisions):
        fork = await cheap.fork(parent, at=at, tools="replay")
        assert (await fork.result()).output == "done"
        assert (await fork.state()).approvals == {}
    assert effects.ran == ["send x"] * 3


async def test_a_fork_runs_from_every_revision_on_what_has_no_result_there_and_nothing_else(
    cheap: Place, script: Script
) -> None:
    effects = Effects()
    agent = Agent(
        "helper", model=script(ROUND, AGAIN, says("done")), tools=effects.tools(), hitl_tools=["look"]
    )
    await cheap.open(agent)
    parent = await cheap.start(agent)
    assert await _approve_all(parent) == 2
    trace = await load_trace(cheap.log, parent.run_id)
    results = {e.revision: e.tool_call_id for e in trace.events if e.type == "tool_result"}
    everything = {"a": "look x", "b": "put x", "c": "send x", "d": "look y", "e": "send y"}
    asked = {"run": {"a", "d"}, "ask": {"a", "b", "c", "d", "e"}}
    for at in range(1, (await parent.state()).head.rev + 1):
        left = everything.keys() - {call for revision, call in results.items() if (revision or 0) <= at}
        for policy, approved in asked.items():
            effects.ran.clear()
            fork = await cheap.fork(parent, at=at, tools=policy)
            assert await _approve_all(fork) == len(left & approved), (at, policy)
            assert (await fork.result()).output == "done"
            assert sorted(effects.ran) == sorted(everything[call] for call in left), (at, policy)


async def test_a_fork_within_a_round_keeps_the_results_that_are_there_and_asks_about_the_others(
    place: Place, script: Script
) -> None:
    effects = Effects()
    effects.gate.clear()
    agent = Agent("helper", model=script(ROUND, says("done")), tools=effects.tools())
    runtime = await place.open(agent)
    parent = await place.start(agent)
    async with asyncio.timeout(120):
        seen = 0
        async for event in parent.stream(detailed=True):
            seen += event.type == "tool_result"
            if seen == 2:
                break
    at = (await parent.state()).head.rev
    plan = await runtime.plan_fork(parent.run_id, at=at)
    assert (plan.status, plan.first, plan.step, plan.tools) == ("running", "calls", 1, "ask")
    assert {call.tool_call_id: call.becomes for call in plan.open} == {"a": "kept", "b": "kept", "c": "asked"}
    fork = await place.fork(parent, at=at)
    await _paused(fork)
    (approval,) = (await fork.state()).pending_approvals
    assert (approval.request.kind, approval.request.tool_call_id) == ("policy", "c")
    await fork.resolve(approval.request.approval_id, "rejected", "not twice")
    assert (await fork.result()).output == "done"
    assert "send x" not in effects.ran
    effects.gate.set()
    assert (await parent.result()).output == "done"
    assert sorted(effects.ran) == ["look x", "put x", "send x"]


async def test_a_fork_of_a_paused_run_asks_again_and_leaves_the_approval_of_the_other_alone(
    place: Place, script: Script
) -> None:
    effects = Effects()
    agent = Agent(
        "helper",
        model=script(calls(call("send", "c", what="x")), says("done")),
        tools=effects.tools(),
        hitl_tools=["send"],
    )
    await place.open(agent)
    parent = await place.start(agent)
    await _paused(parent)
    at = (await parent.state()).head.rev
    (mine,) = (await parent.state()).pending_approvals
    fork = await place.fork(parent, at=at, tools="run")
    await _paused(fork)
    (other,) = (await fork.state()).pending_approvals
    assert other.request.approval_id != mine.request.approval_id
    assert other.request.kind == "tool"
    await parent.resolve(mine.request.approval_id, "approved")
    await parent.result()
    answered = await place.fork(parent, at=(await parent.state()).head.rev, tools="run")
    assert (await answered.result()).output == "done"
    assert (await fork.state()).paused == "approval"
    await fork.resolve(other.request.approval_id, "rejected")
    await fork.result()
    assert effects.ran == ["send x"]


async def test_a_failed_run_goes_on_in_a_fork_with_another_model(cheap: Place, script: Script) -> None:
    failing = script(ROUND, {"text": ["x"], "error": {"type": "auth", "times": 9}})
    effects = Effects()
    agent = Agent("helper", model=failing, tools=effects.tools())
    await cheap.open(agent)
    parent = await cheap.start(agent)
    with pytest.raises(RunFailed):
        await parent.result()
    other = script(ROUND, says("better"))
    fork = await cheap.fork(parent, at=(await parent.state()).head.rev, model=other)
    result = await fork.result()
    assert (result.output, result.steps) == ("better", 2)
    assert len(effects.ran) == 3
    submitted = (await fork.state()).submitted
    assert submitted is not None
    assert submitted.config["model"] == other


async def test_what_a_fork_is_told_stands_in_the_place_of_an_input_that_no_model_has_seen(
    cheap: Place, script: Script
) -> None:
    agent = Agent("helper", model=script(says("first"), says("second")))
    await cheap.open(agent)
    parent = await cheap.start(agent, "one question")
    await parent.result()
    early = await cheap.fork(parent, at=2, input="another question")
    assert (await early.result()).output == "first"
    assert [m.content for m in await early.history() if m.role == "user"] == ["another question"]
    late = await cheap.fork(parent, at=(await parent.state()).head.rev, input="and then?")
    assert (await late.result()).output == "second"
    assert [m.content for m in await late.history() if m.role == "user"] == ["one question", "and then?"]


async def test_a_fork_of_a_finished_run_at_its_end_ends_as_that_did(cheap: Place, script: Script) -> None:
    agent = Agent("helper", model=script(says("done")))
    await cheap.open(agent)
    parent = await cheap.start(agent)
    expected = await parent.result()
    fork = await cheap.fork(parent, at=(await parent.state()).head.rev)
    found = await fork.result()
    assert (found.output, found.usage, found.steps) == (expected.output, expected.usage, expected.steps)


async def test_a_cancelled_run_goes_on_in_a_fork_and_stays_cancelled(cheap: Place, script: Script) -> None:
    effects = Effects()
    effects.gate.clear()
    agent = Agent(
        "helper", model=script(calls(call("send", "c", what="x")), says("done")), tools=effects.tools()
    )
    await cheap.open(agent)
    parent = await cheap.start(agent)
    async for event in parent.stream():
        if event.type == "tool_call":
            break
    await parent.cancel("enough")
    effects.gate.set()
    fork = await cheap.fork(parent, at=(await parent.state()).head.rev, tools="run")
    assert (await fork.result()).output == "done"
    assert (await parent.state()).status == "cancelled"


async def test_a_child_run_is_forked_as_a_root_of_its_own(cheap: Place, script: Script) -> None:
    effects = Effects()
    inner = Agent("inner", model=script(ROUND, says("inner done")), tools=effects.tools())

    @tool(effect="unsafe")
    async def ask(ctx: ToolContext) -> str:
        """Ask the other."""
        return await ctx.run(inner, "inner question")

    outer = Agent("outer", model=script(calls(call("ask", "q")), says("outer done")), tools=[ask])
    await cheap.open(outer, inner)
    parent = await cheap.start(outer)
    await parent.result()
    trace = await load_trace(cheap.log, parent.run_id)
    child = next(c.commit.run for c in trace.commits if c.commit.run != parent.run_id)
    revisions = [e.revision or 0 for e in trace.events if e.run_id == child and e.type == "tool_result"]
    fork = await cheap.fork(cheap.runtime.get_run(child), at=max(revisions), tools="ask")
    assert (await fork.result()).output == "inner done"
    state = await fork.state()
    assert (state.root, state.path, len(effects.ran)) == (fork.run_id, "inner", 3)
    assert compare(await events_of(cheap.log, child), await events_of(cheap.log, fork.run_id)).equal
    above = await cheap.fork(parent, at=(await parent.state()).head.rev)
    assert (await above.result()).output == "outer done"
    assert len(effects.ran) == 3


@pytest.mark.parametrize("tools", ["ask", "replay", "run"])
async def test_the_policy_of_a_fork_holds_for_the_runs_below_it(
    cheap: Place, script: Script, tools: Any
) -> None:
    effects = Effects()
    inner = Agent(
        "inner", model=script(calls(call("send", "c", what="x")), says("sent")), tools=effects.tools()
    )

    @tool(effect="pure", timeout_s=None)
    async def delegate(ctx: ToolContext) -> str:
        """Ask the other."""
        return await ctx.run(inner, "inner question")

    outer = Agent("outer", model=script(calls(call("delegate", "q")), says("done")), tools=[delegate])
    await cheap.open(outer, inner)
    parent = await cheap.start(outer)
    started = await cheap.events(parent)
    asked = next(e.revision for e in started if e.type == "tool_call" and e.agent_path == "outer")
    fork = await cheap.fork(parent, at=(asked or 0) - 1, tools=tools)
    if tools == "ask":
        async for event in fork.stream():
            if isinstance(event, ApprovalRequested):
                assert (event.agent_path, event.kind, effects.ran) == ("outer/inner", "policy", ["send x"])
                await cheap.runtime.get_run(event.run_id).resolve(event.approval_id, "rejected")
    assert (await fork.result()).output == "done"
    assert effects.ran == ["send x"] * (2 if tools == "run" else 1)


async def test_a_fork_can_be_forked_and_each_says_where_it_comes_from(cheap: Place, script: Script) -> None:
    effects = Effects()
    agent = Agent("helper", model=script(ROUND, AGAIN, says("done")), tools=effects.tools())
    runtime = await cheap.open(agent)
    first = await cheap.start(agent)
    await first.result()
    second = await cheap.fork(first, at=8, tools="replay")
    await second.result()
    end = (await second.state()).head.rev
    third = await cheap.fork(second, at=end - 4, tools="replay")
    assert (await third.result()).output == "done"
    assert len(effects.ran) == 5
    rows = {row.run_id: row for row in await runtime.list_runs()}
    assert (rows[first.run_id].forked_from, rows[first.run_id].forked_at) == (None, None)
    assert (rows[second.run_id].forked_from, rows[second.run_id].forked_at) == (first.run_id, 8)
    assert (rows[third.run_id].forked_from, rows[third.run_id].forked_at) == (second.run_id, end - 4)


async def test_the_same_fork_id_is_the_same_fork_and_never_another(cheap: Place, script: Script) -> None:
    agent = Agent("helper", model=script(says("done")))
    await cheap.open(agent)
    parent = await cheap.start(agent, run_id="parent")
    await parent.result()
    forks = [await cheap.fork(parent, at=3, fork_id="other") for _ in range(2)]
    assert {fork.run_id for fork in forks} == {"other"}
    await forks[0].result()
    revision = (await forks[0].state()).head.rev
    await cheap.fork(parent, at=3, fork_id="other")
    assert (await forks[0].state()).head.rev == revision
    for wish in ({"at": 4}, {"at": 3, "tools": "run"}, {"at": 3, "input": "else"}):
        with pytest.raises(RunConflict, match="other"):
            await cheap.fork(parent, fork_id="other", **wish)
    with pytest.raises(RunConflict, match="parent"):
        await cheap.fork(parent, at=3, fork_id="parent")


async def test_what_cannot_be_forked_is_refused_before_anything_is_stored(
    cheap: Place, script: Script
) -> None:
    agent = Agent("helper", model=script(says("done")))
    runtime = await cheap.open(agent)
    parent = await cheap.start(agent)
    await parent.result()
    wrong: list[dict[str, Any]] = [
        {"at": 99},
        {"at": 3, "tools": "never"},
        {"at": 3, "input": ""},
        {"at": 3, "model": "nonsense"},
        {"at": 3, "model": "nobody:knows"},
        {"at": 3, "executor": "unknown"},
    ]
    for options in wrong:
        with pytest.raises(ConfigError):
            await cheap.fork(parent, **options)
    with pytest.raises(RunNotFound):
        await runtime.fork("nobody", at=1)
    assert len(await runtime.list_runs()) == 1
    async with Runtime.open(log=cheap.log) as stranger:
        with pytest.raises(NotRegistered):
            await stranger.fork(parent.run_id, at=3)


async def test_a_process_whose_tool_has_changed_forks_no_run_that_was_prepared_with_the_old_one(
    cheap: Place, script: Script
) -> None:
    @tool(effect="unsafe")
    async def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    agent = Agent("ops", model=script(calls(call("pay", amount=5)), says("done")), tools=[pay])
    await cheap.open(agent)
    parent = await cheap.start(agent)
    await parent.result()

    @tool(effect="unsafe", name="pay")
    async def pay_in(amount: int, currency: str) -> str:
        """Pay."""
        return "paid"

    changed = Agent("ops", model=agent.config.model, tools=[pay_in])
    async with Runtime.open(log=cheap.log, registry=Registry(agents=[changed])) as later:
        with pytest.raises(NotRegistered, match="the tool 'pay' has changed: it now requires 'currency'"):
            await later.fork(parent.run_id, at=6)
        assert [row.run_id for row in await later.list_runs()] == [parent.run_id]


async def test_a_history_larger_than_a_commit_is_taken_over_whole(place: Place, script: Script) -> None:
    @tool(effect="pure")
    async def page(number: int) -> str:
        """Give a page."""
        return f"{number}" * 15_000

    turns = [calls(*(call("page", f"c{s}-{n}", number=10 + n) for n in range(20))) for s in range(2)]
    agent = Agent("helper", model=script(*turns, says("done")), tools=[page], model_idle_timeout_s=5)
    await place.open(agent)
    parent = await place.start(agent)
    await parent.result()
    fork = await place.fork(parent, at=(await parent.state()).head.rev, input="go on", tools="ask")
    async for event in fork.stream(detailed=True):
        if event.type == "message_injected":
            break
    await fork.cancel()
    trace = await load_trace(place.log, fork.run_id)
    submitted = (await fork.state()).submitted
    assert submitted is not None
    assert submitted.fork is not None
    shared = [commit for commit in trace.commits if commit.last_rev <= submitted.fork.shared]
    assert (len(shared), shared[-1].last_rev) == (2, submitted.fork.shared)
    before = canonical(await load_trace(place.log, parent.run_id)).boundaries
    assert [b.label for b in canonical(trace).boundaries][: len(before) - 1] == [b.label for b in before][:-1]


@pytest.mark.parametrize("fault", [LostAck, LateAppend])
async def test_a_fork_whose_answer_is_lost_or_late_is_stored_once(script: Script, fault: Any) -> None:
    agent = Agent("helper", model=script(says("done")))
    plain = MemoryLog()
    async with Runtime.open(log=plain) as runtime:
        await (await runtime.start(agent, "question", run_id="parent")).result()
    faulty = FaultyLog(plain, [fault(1, operation="events.append")])
    async with Runtime.open(log=faulty) as runtime:
        fork = await runtime.fork("parent", at=3, agent=agent)
        assert (await fork.result()).output == "done"
        assert len(await runtime.list_runs()) == 2
    assert len(faulty.fired) == 1


async def test_a_fork_is_exported_and_read_without_the_run_it_left(cheap: Place, script: Script) -> None:
    effects = Effects()
    agent = Agent("helper", model=script(ROUND, AGAIN, says("done")), tools=effects.tools())
    await cheap.open(agent)
    parent = await cheap.start(agent)
    await parent.result()
    fork = await cheap.fork(parent, at=9, tools="replay")
    await fork.result()
    lines = [line async for line in export(cheap.log, fork.run_id, artifacts=True)]
    elsewhere = MemoryLog()
    await import_archive(read_archive(b"".join(lines)), elsewhere)
    found = compare(
        canonical(await load_trace(elsewhere, fork.run_id)),
        canonical(await load_trace(cheap.log, fork.run_id)),
    )
    assert found.equal
    again = await rerun(await load_trace(elsewhere, fork.run_id))
    assert again.root != fork.run_id
    assert compare(canonical(await load_trace(cheap.log, fork.run_id)), canonical(again)).equal


async def test_a_planned_run_is_forked_at_every_revision_and_keeps_a_plan_that_was_made(
    cheap: Place, script: Script, tmp_path: Path
) -> None:
    effects = Effects()
    planner = {"turns": [], "planner": [calls(call("look", "p", what="map")), says("1. Look.")]}
    (tmp_path / "planner.json").write_text(json.dumps(planner))
    agent = Agent(
        "helper",
        model=script(calls(call("look", "a", what="x")), says("done")),
        instructions="Be brief.",
        tools=effects.tools(),
        planning_enabled=True,
        planning_model=f"scripted:{tmp_path / 'planner.json'}",
    )
    await cheap.open(agent)
    parent = await cheap.start(agent)
    await parent.result()
    history = await parent.history()
    events = [event.type for event in (await load_trace(cheap.log, parent.run_id)).events]
    planned = events.index("plan_made") + 1
    for at in range(1, len(events) + 1):
        effects.ran.clear()
        fork = await cheap.fork(parent, at=at, tools="run")
        assert (await fork.result()).output == "done"
        assert await fork.history() == history
        assert at < planned or "look map" not in effects.ran
