"""Forks of swarms and loops: nodes that are over stay, others go on where they were, and the family is whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, NotRegistered, RunFailed
from foldlog.eventlog.memory import MemoryLog
from foldlog.replay import (
    canonical,
    check_trace,
    compare,
    export,
    import_archive,
    load_trace,
    read_archive,
    replay,
)
from foldlog.runtime import Agent, Registry, RunHandle, Runtime, Swarm, ToolContext, tool
from foldlog.runtime.agents.loop import RalphLoop
from foldlog.runtime.agents.loop_config import Stop
from foldlog.runtime.core.loop.config import Scored
from foldlog.runtime.forks import storage

from .conftest import Place, call, calls, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]


class Company:
    """A swarm with a sub-agent, a loop and a predicate in it, and what its tool did."""

    def __init__(self, script: Script) -> None:
        self.did: list[str] = []

        @tool(effect="unsafe")
        async def send(what: str) -> str:
            """Send."""
            self.did.append(what)
            return f"sent {what}"

        def worker(name: str) -> Agent[Any]:
            return Agent(name, model=script(calls(call("send", what=name)), says(name.upper())), tools=[send])

        self.inner = worker("inner")

        @tool(effect="unsafe", timeout_s=None)
        async def ask(context: ToolContext) -> str:
            """Ask the other."""
            return await context.run(self.inner, "inner question")

        boss = Agent("boss", model=script(calls(call("ask")), says("BOSS")), tools=[ask])
        self.scored: list[str] = []

        def quality(scored: Scored) -> float:
            self.scored.append(scored.output)
            return scored.iteration / 2

        polish = RalphLoop(
            worker("writer"), name="polish", scorers={"quality": quality}, stop=Stop(score_threshold=1.0)
        )
        self.swarm = Swarm(
            [worker("a"), worker("b"), boss, polish, worker("d")],
            "a >> (b | boss | polish) >> {fine: d, else: pass}",
            name="company",
            predicates={"fine": lambda _: True},
        )

    EVERYTHING = ("a", "b", "inner", "writer", "writer", "d")


async def answered(place: Place, run: RunHandle[Any]) -> int:
    """Approve all that anybody below asks for, until the run is over; how often that was."""
    count = 0
    async for event in run.stream():
        if event.type == "approval_requested":
            await place.runtime.get_run(event.run_id).resolve(event.approval_id, "approved")  # type: ignore[attr-defined]
            count += 1
    return count


async def whole(place: Place, run: RunHandle[Any]) -> Any:
    return canonical(await load_trace(place.log, run.run_id))


async def test_a_fork_of_a_swarm_does_from_every_revision_on_what_was_not_done_there_and_nothing_else(
    cheap: Place, script: Script
) -> None:
    company = Company(script)
    await cheap.open(company.swarm)
    parent = await cheap.start(company.swarm)
    expected = await parent.result()
    assert sorted(company.did) == sorted(company.EVERYTHING)
    form, left = await whole(cheap, parent), len(company.EVERYTHING)
    for at in range(1, (await parent.state()).head.rev + 1):
        company.did.clear()
        fork = await cheap.fork(parent, at=at, tools="run")
        result = await fork.result()
        assert (result.output, result.usage) == (expected.output, expected.usage)
        found = compare(form, await whole(cheap, fork))
        assert found.equal, (at, found.render())
        assert len(company.did) <= left
        left = len(company.did)
    assert left == 0


async def test_a_fork_of_a_swarm_that_replays_runs_nothing_and_asks_nobody(
    cheap: Place, script: Script
) -> None:
    company = Company(script)
    runtime = await cheap.open(company.swarm)
    parent = await cheap.start(company.swarm)
    expected = await parent.result()
    for at in range(1, (await parent.state()).head.rev + 1):
        company.did.clear()
        plan = await runtime.plan_fork(parent.run_id, at=at, tools="replay")
        assert {call.becomes for call in plan.behind} <= {"recorded"}
        fork = await cheap.fork(parent, at=at, tools="replay")
        assert (await fork.result()).output == expected.output
        assert company.did == []
    outer = Swarm([company.swarm], "company*2", name="outer")
    async with Runtime.open("memory://", registry=Registry(agents=[outer])) as rt:
        run = await rt.start(outer, "question")
        await run.result()
        company.did.clear()
        assert (await (await rt.fork(run.run_id, at=4, tools="replay")).result()).output == "D"
        assert company.did == []


async def test_a_fork_within_a_group_shares_what_each_node_has_done(place: Place, script: Script) -> None:
    gate, inside = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    @tool(effect="unsafe")
    async def note(what: str) -> str:
        """Note."""
        done.append(what)
        return what

    @tool(effect="pure")
    async def hold() -> str:
        """Wait."""
        inside.set()
        await gate.wait()
        return "held"

    quick = Agent("quick", model=script(calls(call("note", what="quick")), says("Q")), tools=[note])
    slow = Agent(
        "slow",
        model=script(calls(call("note", "n", what="slow"), call("hold", "h")), says("S")),
        tools=[note, hold],
    )
    late = Agent("late", model=script(says("L")))
    swarm = Swarm([quick, slow, late], "(quick | slow) >> late", name="team")
    runtime = await place.open(swarm)
    parent = await place.start(swarm)
    async with asyncio.timeout(120):
        seen = set[str]()
        async for event in parent.stream(detailed=True):
            seen |= {event.type + event.agent_path}
            if {"child_finishedteam", "tool_resultteam/slow"} <= seen:
                break
    at = (await parent.state()).head.rev
    plan = await runtime.plan_fork(parent.run_id, at=at)
    assert (plan.kind, plan.status, plan.first) == ("swarm", "running", "nodes")
    assert [(n.agent_path, n.becomes, n.status) for n in plan.nodes] == [
        ("team/quick", "kept", "completed"),
        ("team/slow", "goes_on", "running"),
    ]
    assert {c.tool_name: c.becomes for c in plan.open} == {"note": "kept", "hold": "run"}
    fork = await place.fork(parent, at=at)
    gate.set()
    assert (await fork.result()).output == (await parent.result()).output == "L"
    assert sorted(done) == ["quick", "slow"]
    assert compare(await whole(place, parent), await whole(place, fork)).equal
    runs = {row.run_id: row for row in await runtime.list_runs()}
    below = {row.agent: row for row in runs.values() if row.root_id == fork.run_id}
    assert below.keys() == {"team", "quick", "slow", "late"}
    assert runs[below["slow"].forked_from or ""].root_id == parent.run_id
    assert below["late"].forked_from is None


async def test_a_swarm_that_failed_goes_on_with_another_model_where_its_node_failed(
    cheap: Place, script: Script
) -> None:
    company = Company(script)
    failing = Agent("b", model=script({"text": ["x"], "error": {"type": "auth", "times": 9}}))
    after = Agent("c", model=script({"text": ["x"], "error": {"type": "auth", "times": 9}}))
    swarm = Swarm([company.swarm.members["a"], failing, after], "a >> b >> c", name="chain")
    runtime = await cheap.open(swarm)
    parent = await cheap.start(swarm)
    with pytest.raises(RunFailed, match="node 'b' failed"):
        await parent.result()
    other = script(says("better"))
    last = (await parent.state()).head.rev
    plan = await runtime.plan_fork(parent.run_id, at=last, model=other)
    assert [(n.agent_path, n.becomes) for n in plan.nodes] == [("chain/a", "kept"), ("chain/b", "goes_on")]
    assert (plan.model, plan.model_was) == (other, "")
    fork = await cheap.fork(parent, at=last, model=other)
    assert (await fork.result()).output == "better"
    assert company.did == ["a"]
    once_more = await cheap.fork(fork, at=5)  # the model stays with what is forked of it
    await once_more.result()
    for run in (fork, once_more):
        for node in (await run.state()).nodes[1:]:
            submitted = (await runtime.get_run(node.child_run).state()).submitted
            assert submitted is not None
            assert submitted.config["model"] == other


async def test_a_loop_goes_on_from_every_revision_and_asks_no_scorer_twice(
    cheap: Place, script: Script
) -> None:
    company = Company(script)
    loop = company.swarm.members["polish"]
    await cheap.open(loop)
    parent = await cheap.start(loop)
    expected = await parent.result()
    events = (await load_trace(cheap.log, parent.run_id)).events
    own = [event for event in events if event.run_id == parent.run_id]
    form = await whole(cheap, parent)
    for at in range(1, len(own) + 1):
        company.scored.clear()
        fork = await cheap.fork(parent, at=at, tools="run")
        assert (await fork.result()).output == expected.output
        assert compare(form, await whole(cheap, fork)).equal, at
        assert len(company.scored) == 2 - sum(event.type == "evaluated" for event in own[:at])


async def test_what_failed_at_the_end_of_a_loop_is_open_again_and_an_iteration_before_it_is_not(
    cheap: Place, script: Script
) -> None:
    failing = script({"text": ["x"], "error": {"type": "auth", "times": 9}})
    writer = Agent("writer", model=failing)

    def refuse(scored: Scored) -> float:
        raise ValueError(scored.output)

    loop = RalphLoop(writer, stop=Stop(max_iterations=2))
    judged = RalphLoop(writer, name="judged", scorers={"quality": refuse}, stop=Stop(max_iterations=1))
    runtime = await cheap.open(loop, judged)
    parent = await cheap.start(loop)
    with pytest.raises(RunFailed):
        await parent.result()
    good = script(says("good"))
    last = (await parent.state()).head.rev
    plan = await runtime.plan_fork(parent.run_id, at=last, model=good)
    assert [(n.becomes, n.status) for n in plan.nodes] == [("kept", "error"), ("goes_on", "error")]
    fork = await cheap.fork(parent, at=last, model=good)
    assert (await fork.result()).output == "good"
    assert [i.status for i in (await fork.state()).iterations] == ["failed", "completed"]

    refused = await cheap.fork(await _failed(cheap, judged), at=4, model=good)
    with pytest.raises(RunFailed, match="scorer quality"):
        await refused.result()
    again = await cheap.fork(refused, at=(await refused.state()).head.rev)
    with pytest.raises(RunFailed, match="scorer quality"):  # asked again, and failing again
        await again.result()
    assert len((await again.state()).evaluations["quality"]) == 1


async def _failed(place: Place, loop: RalphLoop) -> RunHandle[Any]:
    run = await place.start(loop)
    with pytest.raises(RunFailed):
        await run.result()
    return run


async def test_a_cancelled_swarm_goes_on_in_a_fork(cheap: Place, script: Script) -> None:
    inside = asyncio.Event()
    free = asyncio.Event()

    @tool(effect="pure")
    async def hold() -> str:
        """Wait."""
        inside.set()
        await free.wait()
        return "held"

    a = Agent("a", model=script(calls(call("hold")), says("A")), tools=[hold])
    b = Agent("b", model=script(says("B")))
    swarm = Swarm([a, b], "a >> b")
    await cheap.open(swarm)
    parent = await cheap.start(swarm)
    await asyncio.wait_for(inside.wait(), 120)
    await parent.cancel("enough")
    free.set()
    fork = await cheap.fork(parent, at=(await parent.state()).head.rev)
    assert (await fork.result()).output == "B"


async def test_a_node_that_waits_for_an_approval_asks_again_in_the_fork(cheap: Place, script: Script) -> None:
    company = Company(script)
    careful = Agent(
        "b",
        model=script(calls(call("send", what="b")), says("B")),
        tools=list(company.inner.tools.values()),
        hitl_tools=["send"],
    )
    swarm = Swarm([company.swarm.members["a"], careful], "a >> b")
    await cheap.open(swarm)
    parent = await cheap.start(swarm)
    async with asyncio.timeout(120):
        async for event in parent.stream():
            if event.type == "approval_requested":
                break
    fork = await cheap.fork(parent, at=(await parent.state()).head.rev, tools="run")
    assert await answered(cheap, fork) == 1
    assert (await fork.result()).output == "B"
    assert company.did == ["a", "b"]
    assert await answered(cheap, parent) == 1


async def test_what_a_swarm_is_told_stands_in_the_place_of_its_input_until_a_node_has_begun(
    cheap: Place, script: Script
) -> None:
    a = Agent("a", model=script(says("A")))
    swarm = Swarm([a], "a")
    await cheap.open(swarm)
    parent = await cheap.start(swarm, "one question")
    await parent.result()
    early = await cheap.fork(parent, at=2, input="another question")
    await early.result()
    (node,) = (await early.state()).nodes
    assert "another question" in str(await cheap.runtime.get_run(node.child_run).history())
    with pytest.raises(ConfigError, match="before its first node: fork it at revision 4 or before"):
        await cheap.fork(parent, at=(await parent.state()).head.rev, input="and then?")


async def test_a_swarm_within_a_swarm_is_forked_with_it_and_alone(cheap: Place, script: Script) -> None:
    company = Company(script)
    last = Agent("last", model=script(says("LAST")))
    outer = Swarm([company.swarm, last], "company >> last", name="outer")
    served = [company.swarm] if cheap.executor == "durable" else []
    runtime = await cheap.open(outer, *served)
    parent = await cheap.start(outer)
    await parent.result()
    inner = runtime.get_run((await parent.state()).nodes[0].child_run)
    company.did.clear()
    fork = await cheap.fork(inner, at=(await inner.state()).head.rev - 3, tools="run")
    assert (await fork.result()).output == "D"
    assert (company.did, (await fork.state()).path) == ([], "company")
    above = await cheap.fork(parent, at=7, tools="run")
    assert (await above.result()).output == "LAST"
    assert compare(await whole(cheap, parent), await whole(cheap, above)).equal


async def test_a_fork_of_a_swarm_is_forked_exported_and_stands_alone(cheap: Place, script: Script) -> None:
    company = Company(script)
    await cheap.open(company.swarm)
    parent = await cheap.start(company.swarm)
    await parent.result()
    first = await cheap.fork(parent, at=12, tools="run")
    await first.result()
    company.did.clear()
    second = await cheap.fork(first, at=(await first.state()).head.rev, tools="run")
    await second.result()
    assert company.did == []
    lines = b"".join([line async for line in export(cheap.log, second.run_id, artifacts=True)])
    elsewhere = MemoryLog()
    await import_archive(read_archive(lines), elsewhere)
    alone = await load_trace(elsewhere, second.run_id)
    assert check_trace(alone) == []
    assert replay(alone).agrees
    assert compare(await whole(cheap, parent), canonical(alone)).equal


async def test_a_run_is_forked_straight_from_an_archive(cheap: Place, script: Script) -> None:
    @tool(effect="idempotent")
    async def keep(context: ToolContext) -> str:
        """Keep something large."""
        await context.artifact(b"x" * 100, "text/plain")
        return "y" * 50_000

    keeper = Agent("keeper", model=script(calls(call("keep")), says("kept")), tools=[keep])
    company = Company(script)
    swarm = Swarm([keeper, company.swarm.members["a"]], "keeper >> a")
    await cheap.open(swarm, company.swarm)
    async with Runtime.open("memory://", registry=Registry(agents=[swarm])) as elsewhere:
        there = await elsewhere.start(swarm, "question", run_id="there")
        await there.result()
        lines = b"".join([line async for line in export(elsewhere.log, "there", artifacts=True)])
        lacking = b"".join([line async for line in export(elsewhere.log, "there")])
        form = canonical(await load_trace(elsewhere.log, "there"))
        last = (await there.state()).head.rev
    company.did.clear()
    with pytest.raises(ConfigError, match="export it with --artifacts"):
        await cheap.runtime.plan_fork("there", at=last, archive=read_archive(lacking))
    fork = await cheap.fork(cheap.runtime.get_run("there"), at=last, archive=read_archive(lines))
    assert (await fork.result()).output == "A"
    assert company.did == []
    assert compare(form, await whole(cheap, fork)).equal
    assert {row.root_id for row in await cheap.runtime.list_runs()} == {fork.run_id}


async def test_all_that_a_fork_lacks_is_named_before_anything_is_stored(
    cheap: Place, script: Script, tmp_path: Path
) -> None:
    company = Company(script)
    await cheap.open(company.swarm)
    parent = await cheap.start(company.swarm)
    await parent.result()
    before = len(await cheap.runtime.list_runs())
    with pytest.raises(ConfigError, match="nobody:x") as unknown:
        await cheap.fork(parent, at=5, model="nobody:x")
    assert "agents 'a', 'b', 'boss', 'writer', 'd': the model 'nobody:x'" in str(unknown.value)
    other = Agent("a", model=company.inner.config.model)
    async with Runtime.open(
        log=cheap.log, registry=Registry(agents=[Swarm([other], "a", name="company")])
    ) as rt:
        with pytest.raises(NotRegistered) as lacking:
            await rt.fork(parent.run_id, at=5)
    told = str(lacking.value)
    assert "agent 'a' has no tool 'send'" in told
    assert all(name in told for name in ("company/b", "company/boss", "company/polish", "company/d"))
    (tmp_path / "gone.json").write_text(json.dumps({"turns": [says("x")]}))
    fallback = Agent(
        "fallback",
        model=script(says("done")),
        fallback_models=[f"scripted:{tmp_path / 'gone.json'}"],
    )
    async with Runtime.open(log=cheap.log, registry=Registry(agents=[fallback])) as rt:
        run = await rt.start(fallback, "question")
        await run.result()
        (tmp_path / "gone.json").unlink()
        with pytest.raises(ConfigError, match=r"agent 'fallback'.*gone\.json"):
            await rt.fork(run.run_id, at=3)
    helper = Agent("helper", model="nobody:x", tools=[])
    boss = Agent("boss", model=script(calls(call("helper", input="x")), says("done")))
    led = Agent("boss", model=boss.config.model, tools=[helper.as_tool()])
    async with Runtime.open(log=cheap.log, registry=Registry(agents=[boss])) as rt:
        run = await rt.start(boss, "question")
        await run.result()
        with pytest.raises(ConfigError, match="nobody:x"):
            await rt.fork(run.run_id, at=3, agent=led)
    assert len(await cheap.runtime.list_runs()) == before + 2


async def test_a_family_that_one_batch_does_not_hold_is_refused_by_name(
    cheap: Place, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    company = Company(script)
    await cheap.open(company.swarm)
    parent = await cheap.start(company.swarm)
    await parent.result()
    before = len(await cheap.runtime.list_runs())
    monkeypatch.setattr(storage, "COMMITS_MAX", 5)
    with pytest.raises(ConfigError, match=r"would share 9 runs, more than one batch .* the run of a node"):
        await cheap.fork(parent, at=(await parent.state()).head.rev)
    assert len(await cheap.runtime.list_runs()) == before
    early = await cheap.fork(parent, at=4, tools="replay")
    assert (await early.result()).output == "D"
