"""Memory of earlier runs and stored knowledge in a run, on both executors and both logs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, RunFailed
from foldlog.replay import load_trace, rerun
from foldlog.runtime import Agent, tool
from foldlog.runtime.ports.knowledge import KnowledgeItem, KnowledgeUnavailable

from .conftest import HeldTool, Place, call, calls, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]


@tool(effect="pure")
async def search(query: str) -> str:
    """Search for something."""
    return f"found {query}"


class Shelf:
    """Knowledge of one thing, that counts who asks."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def search(self, query: str, limit: int) -> Sequence[KnowledgeItem]:
        self.asked.append(query)
        return [KnowledgeItem(id="1", text="Otto is a fish.", source="notes", score=1.0)]

    async def add(self, text: str, source: str = "") -> Sequence[KnowledgeItem]:
        return ()


async def test_a_run_is_told_of_the_runs_before_it_and_runs_again_from_its_recording(
    place: Place, script: Script
) -> None:
    agent = Agent(
        "helper",
        model=script(calls(call("search", query="x")), says("done")),
        instructions="Be brief.",
        tools=[search],
        memory={"scope": "session"},
    )
    await place.open(agent)
    first = await place.start(agent, "one", session="talk")
    await first.result()
    second = await place.start(agent, "two", session="talk")
    assert (await second.result()).output == "done"
    told = [(message.role, message.content) for message in await second.history()]
    assert told[:6] == [
        ("system", "Be brief."),
        ("user", "one"),
        ("assistant", ""),
        ("tool", "found x"),
        ("assistant", "done"),
        ("user", "two"),
    ]
    ids = [item.id for message in await second.history() for item in message.tool_calls]
    assert len(set(ids)) == 2
    recorded = await load_trace(place.log, second.run_id)
    again = await rerun(recorded)
    assert [e.digest for e in again.events if e.type == "model_requested"] == [
        e.digest for e in recorded.events if e.type == "model_requested"
    ]


async def test_a_session_carries_its_history_without_being_asked_to_and_looks_nothing_up(
    place: Place, script: Script
) -> None:
    shelf = Shelf()
    agent = Agent("helper", model=script(says("done")))
    await place.open(agent, knowledge=shelf)
    for text in ("one", "two"):
        run = await place.start(agent, text, session="talk")
        await run.result()
    assert [message.content for message in await run.history()] == ["one", "done", "two", "done"]
    assert shelf.asked == []


async def test_an_agent_whose_memory_has_no_scope_is_told_nothing_of_its_session(
    place: Place, script: Script
) -> None:
    agent = Agent("helper", model=script(says("done")), memory={"scope": "none"})
    await place.open(agent)
    for text in ("one", "two"):
        run = await place.start(agent, text, session="talk")
        await run.result()
    assert [message.content for message in await run.history()] == ["two", "done"]


async def test_messages_that_a_caller_hands_over_stand_in_for_the_history_of_the_session(
    place: Place, script: Script
) -> None:
    agent = Agent("helper", model=script(says("done")))
    await place.open(agent)
    await (await place.start(agent, "one", session="talk")).result()
    given = [{"role": "user", "content": "Call me Ada."}]
    run = await place.start(agent, "two", session="talk", messages=given)
    await run.result()
    assert [message.content for message in await run.history()] == ["Call me Ada.", "two", "done"]


@pytest.mark.parametrize(
    ("fields", "asked", "told"),
    [
        ({"knowledge": True}, ["one", "two"], ["one", "done", "two", "done"]),
        ({"knowledge": True, "memory": {"scope": "none"}}, ["one", "two"], ["two", "done"]),
        ({"knowledge": False, "memory": {"scope": "session"}}, [], ["one", "done", "two", "done"]),
        ({"memory": {"scope": "session"}}, ["one", "two"], ["one", "done", "two", "done"]),
    ],
)
async def test_memory_and_knowledge_can_be_had_apart(
    place: Place, script: Script, fields: dict[str, Any], asked: list[str], told: list[str]
) -> None:
    shelf = Shelf()
    agent = Agent("helper", model=script(says("done")), **fields)
    await place.open(agent, knowledge=shelf)
    for text in ("one", "two"):
        run = await place.start(agent, text, session="talk")
        await run.result()
    assert shelf.asked == asked
    assert [message.content for message in await run.history() if message.role != "system"] == told


async def test_metadata_gives_a_run_another_memory(place: Place, script: Script) -> None:
    agent = Agent("helper", model=script(says("done")))
    await place.open(agent)
    ada: dict[str, Any] = {"memory": {"scope": {"user_id": "ada"}}}
    for text in ("one", "two"):
        run = await place.start(agent, text, metadata=ada)
        await run.result()
    assert [message.content for message in await run.history()] == ["one", "done", "two", "done"]


async def test_knowledge_that_fits_stands_in_the_system_prompt(place: Place, script: Script) -> None:
    shelf = Shelf()
    agent = Agent(
        "helper", model=script(says("a fish")), instructions="Be brief.", memory={"scope": "session"}
    )
    await place.open(agent, knowledge=shelf)
    run = await place.start(agent, "Who is Otto?", session="talk")
    await run.result()
    system = (await run.history())[0].content
    assert system == "Be brief.\n\n<knowledge>\n[notes]\nOtto is a fish.\n</knowledge>"
    assert shelf.asked == ["Who is Otto?"]


async def test_knowledge_is_looked_up_after_the_history_was_cut_and_before_the_planner_also_after_a_takeover(
    place: Place, tmp_path: Path
) -> None:
    turns = {"planner": [{"text": "1. Answer."}], "turns": [{"text": "done"}]}
    (tmp_path / "planned.json").write_text(json.dumps(turns))

    entered, go = asyncio.Event(), asyncio.Event()

    class Slow(Shelf):
        async def search(self, query: str, limit: int) -> Sequence[KnowledgeItem]:
            self.asked.append(query)
            entered.set()
            await go.wait()
            return []

    shelf = Slow()
    agent = Agent(
        "helper",
        model=f"scripted:{tmp_path / 'planned.json'}",
        memory={"scope": "session"},
        context={"history_messages_max": 2, "overflow": "truncate"},
        planning_enabled=True,
    )
    await place.open(agent, knowledge=shelf)
    before = [{"role": "user", "content": f"old {number}"} for number in range(4)]
    run = await place.start(agent, "new", session="talk", messages=before)
    await entered.wait()
    assert [message.content for message in await run.history()] == ["new"]
    leaving = asyncio.create_task(place.hand_over(run))
    go.set()
    await leaving
    assert (await run.result()).output == "done"
    types = [event.type for event in (await load_trace(place.log, run.run_id)).events]
    order = ["memory_hydrated", "prepared", "context", "knowledge_found", "plan_made", "step"]
    assert [kind for kind in dict.fromkeys(types) if kind in order] == order
    assert types.count("knowledge_found") == 1


async def test_a_shelf_that_cannot_be_read_fails_the_run_before_its_first_step(
    place: Place, script: Script
) -> None:
    class Locked(Shelf):
        async def search(self, query: str, limit: int) -> Sequence[KnowledgeItem]:
            raise KnowledgeUnavailable("the shelf is locked: try again")

    agent = Agent("helper", model=script(says("done")), memory={"scope": "session"})
    await place.open(agent, knowledge=Locked())
    run = await place.start(agent, session="talk")
    with pytest.raises(RunFailed, match="the shelf is locked: try again"):
        await run.result()
    seen = [(e.type, getattr(e, "status", None)) async for e in run.stream(detailed=True)]
    assert seen == [("status", "starting"), ("error", None), ("status", "error")]


async def test_what_was_read_once_is_never_read_again(place: Place, script: Script) -> None:
    shelf = Shelf()
    held = HeldTool()
    agent = Agent(
        "helper",
        model=script(calls(call("wait")), says("done")),
        tools=[held.wait],
        memory={"scope": "session"},
    )
    await place.open(agent, knowledge=shelf)
    run = await place.start(agent, session="talk", executor="durable" if place.workers else "local")
    await held.entered.wait()
    if place.workers:
        await place.add_worker("next")
        worker, task = place.workers[0]
        held.let_go.set()
        worker.stop()
        await asyncio.wait({task}, timeout=120)
    held.let_go.set()
    assert (await run.result()).output == "done"
    assert len(shelf.asked) == 1
    trace = await load_trace(place.log, run.run_id)
    assert [event.type for event in trace.events].count("memory_hydrated") == 1


async def test_a_scope_without_its_key_is_refused_before_anything_is_stored(
    place: Place, script: Script
) -> None:
    agent = Agent("helper", model=script(says("x")), memory={"scope": "session"})
    runtime = await place.open(agent)
    with pytest.raises(ConfigError, match="needs a session"):
        await place.start(agent)
    with pytest.raises(ConfigError, match="memory backend"):
        await place.start(agent, session="talk", metadata={"memory": {"backend": "nowhere"}})
    assert await runtime.list_runs() == []
