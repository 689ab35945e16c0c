"""Agents as records of the log: checked against workers, kept in versions, run without a restart (W57)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from foldlog.eventlog import AgentConfigError, ConfigError, MemoryLog, NotRegistered, ScheduleUpdated, decode
from foldlog.eventlog.errors import AgentChanged, AgentNotFound
from foldlog.eventlog.events import Actor
from foldlog.eventlog.faults import Fault, FaultyLog, LostAck, SpuriousConflict, StaleRead
from foldlog.eventlog.names import hook_subject, schedule_subject
from foldlog.eventlog.ports import Log, Presence
from foldlog.runtime import Agent, EventHook, Registry, Runtime, Schedule, Worker, tool
from foldlog.runtime.catalog.checking import offer_of
from foldlog.runtime.driving.host import Host

from tests.runtime.conftest import HeldTool, call, calls, says

Script = Callable[..., str]
DOCS = {"command": "docs-server", "env": {"TOKEN": "${DOCS_TOKEN}"}}


class Vault:
    tools = ("search",)

    async def read(self) -> str:
        return "hunter-22"


@tool(effect="pure")
def search(q: str) -> str:
    """Look something up."""
    return f"found {q}"


@tool(effect="pure")
def brought(q: str) -> str:
    """A tool that an agent brings with it."""
    return q


@tool(effect="pure")
def weigh(q: str) -> str:
    """A tool that only another worker has."""
    return q


def a_registry(*tools: Any) -> Registry:
    coded = Agent("coded", model="scripted:none.json", tools=[brought], mcp_servers={"docs": DOCS})
    return Registry(agents=[coded], tools=tools or [search], secrets={"VAULT": Vault()})


@contextlib.asynccontextmanager
async def working(log: Log, registry: Registry, name: str = "w1") -> AsyncIterator[Worker]:
    """Run a worker that serves stored agents, as `foldlog worker` does; yields it when others see it."""
    worker = Worker(Host(log=log, registry=registry, worker=name), stored=True)
    task = asyncio.create_task(worker.serve())
    await present(log, lambda each: each.worker == name)
    yield worker
    worker.stop()
    await task


async def present(log: Log, holds: Callable[[Presence], bool]) -> Presence:
    """Return the process of which this holds, once there is one."""
    async with asyncio.timeout(120):
        while True:
            found = next(filter(holds, await log.leases.present()), None)
            if found is not None:
                return found
            await asyncio.sleep(0.01)


async def scheduled(log: Log, holds: Callable[[ScheduleUpdated], bool]) -> ScheduleUpdated:
    """Return the schedule once this holds."""
    subject = schedule_subject("daily", log.events.shards)
    async with asyncio.timeout(120), contextlib.aclosing(log.events.follow(subject)) as stored:  # type: ignore[type-var]
        async for each in stored:
            (event,) = decode(each.data).events
            assert isinstance(event, ScheduleUpdated)
            if holds(event):
                return event
    raise AssertionError


@contextlib.asynccontextmanager
async def opened(log: Log, registry: Registry | None = None) -> AsyncIterator[Runtime]:
    async with Runtime.open(log=log, registry=registry) as runtime:
        yield runtime


async def test_an_agent_that_is_saved_while_a_worker_works_is_run_by_it(script: Script) -> None:
    log = MemoryLog()
    async with working(log, a_registry()), opened(log) as runtime:
        table = {
            "name": "clerk",
            "model": script(calls(call("search", q="order 7")), says("done")),
            "tools": ["search"],
        }
        saved = await runtime.agents.save(table, version=0, note="first", by=Actor(by="ada", via="console"))
        assert (saved.version, saved.by, saved.via, saved.note) == (1, "ada", "console", "first")
        run = await runtime.start(await runtime.agents.load("clerk"), "Go", executor="durable")
        assert (await run.result()).output == "done"
        events = [event async for event in run.stream(detailed=True)]
        assert [event.result for event in events if event.type == "tool_result"] == ["found order 7"]
        submitted = (await run.state()).submitted
        assert submitted is not None
        assert submitted.config_digest == saved.digest
        served = await present(log, lambda each: "clerk" in each.serves)
        assert served.serves == ("clerk", "coded")


async def test_a_worker_that_starts_later_serves_the_agents_that_it_can_run(script: Script) -> None:
    log = MemoryLog()
    async with opened(log, a_registry()) as runtime:
        await runtime.agents.save({"name": "clerk", "model": script(says("done")), "tools": ["search"]})
        await runtime.agents.save({"name": "poor", "model": script(says("done"))})
        run = await runtime.start(await runtime.agents.load("clerk"), "Go", executor="durable")
        async with working(log, a_registry(brought), "w0"):  # has no `search`
            served = await present(log, lambda each: "poor" in each.serves)
            assert "clerk" not in served.serves
            async with working(log, a_registry()):
                assert (await run.result()).output == "done"


async def test_a_run_keeps_the_version_that_it_began_with(script: Script) -> None:
    log, held = MemoryLog(), HeldTool()
    registry = a_registry(search, held.wait)
    async with working(log, registry), opened(log) as runtime:
        first = script(calls(call("wait")), calls(call("search", "c2", q="old")), says("by the old one"))
        await runtime.agents.save({"name": "clerk", "model": first, "tools": ["wait", "search"]})
        old = await runtime.start(await runtime.agents.load("clerk"), "Go", executor="durable")
        await asyncio.wait_for(held.entered.wait(), 120)
        second = await runtime.agents.save({"name": "clerk", "model": script(says("by the new one"))})
        new = await runtime.start(await runtime.agents.load("clerk"), "Go", executor="durable")
        assert (await new.result()).output == "by the new one"
        held.let_go.set()
        assert (await old.result()).output == "by the old one"
        again = await runtime.start(await runtime.agents.load("clerk", 1), "Go", executor="durable")
        assert (await again.result()).output == "by the old one"
        assert second.version == 2


async def test_all_that_is_wrong_is_told_at_once_each_with_its_key() -> None:
    log = MemoryLog()
    async with working(log, a_registry()), opened(log) as runtime:
        wrong = {
            "name": "clerk",
            "model": "opnai:gpt",
            "fallback_models": ["scripted:a.json", "acme:b"],
            "max_steps": 0,
            "modle": "x",
            "tools": ["serch", "brought"],
            "hitl_tools": ["missing"],
            "instructions": "Use secret://VAULT and secret://VALT",
            "instructions_function": "make",
            "mcp_servers": {"docs": {}, "dox": {}},
            "retry": {"attemps": 3},
        }
        problems = await runtime.agents.check(wrong)
        found = {problem.key: problem for problem in problems}
        assert set(found) == {
            "model",
            "fallback_models",
            "max_steps",
            "modle",
            "tools",
            "hitl_tools",
            "instructions",
            "instructions_function",
            "mcp_servers.dox",
            "retry.attemps",
        }
        assert found["tools"].message == "tools: no worker has a tool 'serch'; did you mean 'search'?"
        assert (found["tools"].nearest, found["instructions"].nearest) == ("search", "VAULT")
        assert "no worker has a model provider 'acme'" in found["fallback_models"].message
        assert found["mcp_servers.dox"].nearest == "docs"
        with pytest.raises(AgentConfigError) as refused:
            await runtime.agents.save(wrong)
        assert [*refused.value.problems] == [*problems]
        assert [*await runtime.agents.list()] == []


async def test_a_server_of_workers_is_taken_by_name_and_no_other_can_be_brought_in() -> None:
    log = MemoryLog()
    async with working(log, a_registry()), opened(log) as runtime:
        base = {"name": "clerk", "model": "scripted:a.json"}
        saved = await runtime.agents.save({**base, "mcp_servers": {"docs": {}}})
        assert saved.config["mcp_servers"] == {"docs": DOCS}
        assert await runtime.agents.save(saved.config) == saved
        for entry in ({"command": "sh"}, {**DOCS, "args": ["-c", "id"]}):
            (problem,) = await runtime.agents.check({**base, "mcp_servers": {"docs": entry}})
            assert problem.key == "mcp_servers.docs"


async def test_an_agent_whose_names_no_one_worker_has_together_is_refused() -> None:
    log, other = MemoryLog(), Registry(tools=[weigh])
    async with working(log, a_registry()), working(log, other, "w2"), opened(log) as runtime:
        table = {"name": "clerk", "model": "scripted:a.json", "tools": ["search"]}
        assert not await runtime.agents.check(table)
        (problem,) = await runtime.agents.check({**table, "tools": ["search", "weigh"]})
        assert (
            problem.message == "no one worker has all that the agent names: w1 lacks weigh; w2 lacks search"
        )
        (taken,) = await runtime.agents.check({**table, "name": "coded"})
        assert taken.message == "name: 'coded' is an agent in the code of w1; choose another name"


async def test_a_worker_that_drains_has_nothing_for_a_new_version() -> None:
    log, leaving = MemoryLog(), Presence(worker="w-old", offer=offer_of(a_registry()), draining=True)
    table = {"name": "clerk", "model": "scripted:a.json", "tools": ["search"]}
    async with log.leases.presence(leaving), opened(log) as runtime:
        problems = await runtime.agents.check(table)
        assert {each.key for each in problems} == {"model", "tools"}
        async with working(log, Registry(tools=[weigh])):
            (problem,) = await runtime.agents.check(table)
            assert (problem.key, "w-old" in problem.message) == ("tools", False)


async def test_without_a_worker_the_names_are_those_of_this_process_or_nobodys() -> None:
    log = MemoryLog()
    async with opened(log) as runtime:
        (problem,) = await runtime.agents.check({"name": "clerk", "model": "scripted:a.json"})
        assert problem.message.endswith("no worker is present that could say what there is")
    async with opened(log, a_registry()) as runtime:
        assert not await runtime.agents.check(
            {"name": "clerk", "model": "scripted:a.json", "tools": ["brought"]}
        )


async def test_a_stored_agent_runs_in_this_process_with_its_tools(script: Script) -> None:
    log = MemoryLog()
    async with opened(log, a_registry()) as runtime:
        model = script(calls(call("brought", q="mine")), says("done"))
        await runtime.agents.save({"name": "clerk", "model": model, "tools": ["brought"]})
        result = await runtime.run(await runtime.agents.load("clerk"), "Go")
        assert result.output == "done"
    async with opened(log, Registry(tools=[search])) as runtime:
        with pytest.raises(NotRegistered, match="brought"):
            await runtime.run(await runtime.agents.load("clerk"), "Go")


async def test_versions_changes_and_differences_are_kept_also_of_one_that_was_removed() -> None:
    async with opened(MemoryLog(), a_registry()) as runtime:
        agents, base = runtime.agents, {"name": "clerk", "model": "scripted:a.json"}
        first = await agents.save(base, by="ada")
        assert await agents.save(base, by="bo") == first  # already so
        await agents.save({**base, "max_steps": 3, "retry": {"attempts": 9}}, note="less", by="bo")
        found = await agents.diff("clerk", 1)
        assert [(each.key, each.before, each.after) for each in found] == [
            ("max_steps", first.config["max_steps"], 3),
            ("retry.attempts", first.config["retry"]["attempts"], 9),
        ]
        await agents.remove("clerk", by="cy")
        await agents.remove("clerk", by="cy")
        assert [*await agents.list()] == []
        with pytest.raises(AgentNotFound, match="was removed"):
            await agents.load("clerk")
        assert (await agents.get("clerk", 1)).digest == first.digest
        with pytest.raises(AgentNotFound, match="has no version 7; it has 1 to 2"):
            await agents.get("clerk", 7)
        assert (await agents.save(base, version=0, by="ada")).version == 3
        told = [(each.kind, each.version, each.by, each.note) for each in await agents.changes("clerk")]
        assert told == [
            ("saved", 1, "ada", ""),
            ("saved", 2, "bo", "less"),
            ("removed", 2, "cy", ""),
            ("saved", 3, "ada", ""),
        ]
        assert [each.version for each in await agents.versions("clerk")] == [1, 2, 3]
        with pytest.raises(AgentNotFound, match="did you mean 'clerk'"):
            await agents.get("clerc")
        with pytest.raises(ConfigError, match="the agent 'a b' must be"):
            await agents.get("a b")


async def test_of_two_changes_of_one_version_the_second_is_refused() -> None:
    log = MemoryLog()
    async with opened(log, a_registry()) as mine, opened(log, a_registry()) as theirs:
        base = {"name": "clerk", "model": "scripted:a.json"}
        await mine.agents.save(base, version=0)
        await theirs.agents.save({**base, "max_steps": 3}, version=1, by="bo")
        with pytest.raises(
            AgentChanged, match="is not at version 1: it was saved as version 2 by bo"
        ) as refused:
            await mine.agents.save({**base, "max_steps": 4}, version=1)
        assert refused.value.version == 2
        with pytest.raises(AgentChanged):
            await mine.agents.remove("clerk", version=1)
        with pytest.raises(AgentChanged, match="is not at version 0"):
            await mine.agents.save({**base, "max_steps": 4}, version=0)
        same = await mine.agents.save({**base, "max_steps": 3}, version=1)  # the change that is there already
        assert same.version == 2


async def test_changes_at_once_are_all_stored_and_each_once() -> None:
    log = MemoryLog()
    async with opened(log, a_registry()) as mine, opened(log, a_registry()) as theirs:
        tables = [
            {"name": f"clerk{n % 3}", "model": "scripted:a.json", "max_steps": n + 1} for n in range(12)
        ]
        await asyncio.gather(*((mine, theirs)[n % 2].agents.save(table) for n, table in enumerate(tables)))
        for name in ("clerk0", "clerk1", "clerk2"):
            assert [each.version for each in await mine.agents.versions(name)] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "fault",
    [LostAck(1), SpuriousConflict(1), StaleRead(1, "events.read", 0)],
    ids=lambda each: type(each).__name__,
)
async def test_an_append_without_an_answer_and_a_stale_read_neither_double_nor_lose(fault: Fault) -> None:
    log = MemoryLog()
    base = {"name": "clerk", "model": "scripted:a.json"}
    if isinstance(fault, StaleRead):
        async with opened(log, a_registry()) as runtime:
            await runtime.agents.save(base, by="bo")
    faulty = FaultyLog(log, [fault])
    async with opened(faulty, a_registry()) as runtime:
        saving = asyncio.create_task(runtime.agents.save({**base, "max_steps": 2}, by="ada"))
        reading = asyncio.create_task(runtime.agents.get("clerk"))
        await asyncio.sleep(0.05)
        await faulty.release()
        saved = await saving
        with contextlib.suppress(
            AgentNotFound
        ):  # it may have been read before it was saved, if bo had not saved it
            await reading
        assert faulty.fired == [fault]
        versions = [each.version for each in await runtime.agents.versions("clerk")]
        assert versions == list(range(1, saved.version + 1))
        assert saved.version == (2 if isinstance(fault, StaleRead) else 1)


@pytest.mark.nightly
async def test_nothing_is_started_of_a_removed_agent_by_its_schedule(script: Script) -> None:
    log = MemoryLog()
    async with working(log, a_registry()), opened(log) as runtime:
        await runtime.agents.save({"name": "clerk", "model": script(*[says("done")] * 5)})
        await runtime.schedules.apply(Schedule("daily", "clerk", every="24h"))
        await present(log, lambda each: "clerk" in each.serves)
        await runtime.schedules.trigger("daily")
        await scheduled(log, lambda each: each.counts.started == 1)
        await runtime.agents.remove("clerk")
        await runtime.schedules.trigger("daily")
        skipped = await scheduled(log, lambda each: each.counts.skipped == 1)
        assert skipped.recent[-1].reason == "it could not be started: the stored agent 'clerk' was removed"


async def test_the_end_of_a_run_starts_a_stored_agent_that_was_saved_while_the_worker_worked(
    script: Script,
) -> None:
    log = MemoryLog()
    writer = Agent("writer", model=script(says("a text"), says("another")))
    registry = Registry(agents=[writer], tools=[search])
    hook = EventHook(name="after", on="run.completed", of=("writer",), agent="reader")
    worker = Worker(Host(log=log, registry=registry, worker="w1"), stored=True, hooks=[hook])
    serving = asyncio.create_task(worker.serve())
    async with opened(log, registry) as runtime:
        await present(log, lambda each: each.worker == "w1")
        await runtime.agents.save({"name": "reader", "model": script(says("read"))})
        await present(log, lambda each: "reader" in each.serves)
        places = [hook_subject(shard, "after") for shard in range(log.events.shards)]
        async with asyncio.timeout(120):  # what ended before the hook was followed starts nothing
            while not all([await log.events.head(place) for place in places]):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await runtime.start(writer, "Go", executor="durable")
        async with asyncio.timeout(120), contextlib.aclosing(runtime.follow()) as events:
            ends = 0
            async for event in events:
                ends += event.is_end
                if ends == 2:
                    break
        (row,) = [row for row in await runtime.list_runs() if row.agent == "reader"]
        state = await runtime.get_run(row.run_id).state()
        assert state.submitted is not None
        assert (state.output, state.submitted.input) == ("read", "a text")
    worker.stop()
    await serving


@pytest.mark.parametrize("kind", ["swarm", "ralph", "workflow"])
async def test_what_is_no_agent_is_refused_with_what_to_do_instead(kind: str) -> None:
    async with opened(MemoryLog(), a_registry()) as runtime:
        table = {"kind": kind, "name": "all", "agents": [], "steps": []}
        (problem,) = await runtime.agents.check(table)
        assert (problem.key, f"only agents are stored, not a {kind}" in problem.message) == ("kind", True)
        with pytest.raises(AgentConfigError, match="foldlog run FILE"):
            await runtime.agents.save(table)
