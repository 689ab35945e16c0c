"""The history and the messages that a run gets, and their order; and turns that are undone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, SessionBusy
from foldlog.eventlog.memory import MemoryLog
from foldlog.runtime import Agent, RunHandle, tool

from .conftest import HeldTool, Place, call, calls, says, when

pytestmark = pytest.mark.anyio
Script = Callable[..., str]


@pytest.fixture(params=["local", "durable"])
async def cheap(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """A place in memory."""
    async with contextlib.AsyncExitStack() as stack:
        place = Place(MemoryLog(), request.param, stack)
        yield place
        await place.check_rules()


async def said(run: RunHandle[Any]) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in await run.history()]


async def test_what_is_remembered_stands_before_what_the_caller_says_and_that_before_the_input(
    cheap: Place, script: Script
) -> None:
    @tool(effect="pure")
    async def look(n: int) -> str:
        """Look."""
        return f"seen {n}"

    agent = Agent(
        "helper",
        model=script(calls(call("look", "c1", n=1)), says("first answer")),
        instructions="Be brief.",
        tools=[look],
        memory={"scope": "session"},
    )
    await cheap.open(agent)
    first = await cheap.start(agent, "first", session="ß/…")
    await first.result()
    told = [
        {"role": "user", "content": "before"},
        {"role": "assistant", "tool_calls": [{"id": "c1", "name": "look", "arguments": '{"n":9}'}]},
        {"role": "tool", "tool_call_id": "c1", "content": "seen 9"},
    ]
    second = await cheap.start(
        agent,
        "second",
        session="ß/…",
        messages=told,
        metadata={"secret": "never shown", "n": [1, None, {"ä": 1.5}]},
    )
    await second.result()
    history = await said(second)
    assert history[:9] == [
        ("system", "Be brief."),
        ("user", "first"),
        ("assistant", ""),
        ("tool", "seen 1"),
        ("assistant", "first answer"),
        ("user", "before"),
        ("assistant", ""),
        ("tool", "seen 9"),
        ("user", "second"),
    ]
    assert "never shown" not in str(history)
    ids = [each.id for message in await second.history() for each in message.tool_calls]
    assert len(ids) == len(set(ids)) == 3
    submitted = (await second.state()).submitted
    assert submitted is not None
    assert submitted.metadata == {"secret": "never shown", "n": [1, None, {"ä": 1.5}]}


async def test_undone_turns_are_not_recalled_and_undoing_none_stores_no_event(
    cheap: Place, script: Script
) -> None:
    agent = Agent("helper", model=script(says("yes")), memory={"scope": "session"})
    runtime = await cheap.open(agent)
    for text in ("one", "two", "three"):
        await (await cheap.start(agent, text, session="s")).result()
    before = await runtime.history("s")
    assert await runtime.drop_last_user_turns("s", 0) == 0
    assert await runtime.history("s") == before
    assert await runtime.drop_last_user_turns("s", 2) == 2
    assert [turn.messages[0].content for turn in (await runtime.history("s")).turns] == ["one"]
    run = await cheap.start(agent, "four", session="s")
    await run.result()
    assert [text for role, text in await said(run) if role == "user"] == ["one", "four"]
    assert await runtime.drop_last_user_turns("s", 99) == 2
    history = await runtime.history("s")
    assert (history.turn_count(), history.raw_items(), history.estimate_tokens()) == (0, (), 0)
    assert await runtime.drop_last_user_turns("s", 1) == 0
    assert await runtime.drop_last_user_turns("nobody", 5) == 0
    for wrong in (-1, True, 1.0):
        with pytest.raises(ConfigError, match="0 or more"):
            await runtime.drop_last_user_turns("s", wrong)  # type: ignore[arg-type] # what it is about


async def test_while_a_run_is_open_nothing_is_taken_back_and_the_next_one_waits_for_it(
    cheap: Place, script: Script
) -> None:
    held = HeldTool()
    agent = Agent(
        "helper",
        model=script(calls(call("wait")), says("done")),
        tools=[held.wait],
        memory={"scope": "session"},
    )
    runtime = await cheap.open(agent)
    first = await cheap.start(agent, "one", session="s")
    second = await cheap.start(agent, "two", session="s")
    await held.entered.wait()
    with pytest.raises(SessionBusy, match=first.run_id):
        await runtime.drop_last_user_turns("s", 1)
    assert await runtime.drop_last_user_turns("s", 0) == 0
    assert (await second.state()).status == "queued"
    held.let_go.set()
    await second.result()
    assert [text for role, text in await said(second) if role == "user"] == ["one", "two"]


async def test_a_run_that_was_cancelled_within_a_round_is_remembered_with_aborted_calls(
    cheap: Place, script: Script
) -> None:
    entered = asyncio.Event()

    @tool(effect="pure")
    async def stay() -> str:
        """Stay."""
        entered.set()
        await asyncio.Event().wait()
        return ""

    both = calls(call("stay", "a"), call("stay", "b"))
    model = script(both, scenes=[when("two", says("ok"))])
    agent = Agent("helper", model=model, tools=[stay], memory={"scope": "session"})
    runtime = await cheap.open(agent)
    run = await cheap.start(agent, "one", session="s")
    await entered.wait()
    assert [m.role for m in await run.history()] == ["user"]
    await run.cancel()
    history = await runtime.history("s")
    assert [(m.role, m.content) for m in history.raw_items()] == [
        ("user", "one"),
        ("assistant", ""),
        ("tool", "aborted"),
        ("tool", "aborted"),
    ]
    assert tuple(await run.history()) == history.raw_items()
    again = await cheap.start(agent, "two", session="s")
    await again.result()
    assert [text for role, text in await said(again) if role == "tool"] == ["aborted", "aborted"]


@pytest.mark.parametrize(
    ("memory", "told"),
    [
        ({"scope": {"session_id": "other"}}, ["over there", "asked"]),
        ({"scope": {"user_id": "ada"}}, ["asked"]),
        ({}, ["here", "asked"]),
        ({"backend": "log"}, ["here", "asked"]),
    ],
)
async def test_metadata_says_whose_memory_it_is_for_this_run(
    cheap: Place, script: Script, memory: dict[str, Any], told: list[str]
) -> None:
    agent = Agent("helper", model=script(says("yes")))
    await cheap.open(agent)
    await (await cheap.start(agent, "here", session="s")).result()
    await (await cheap.start(agent, "over there", session="other")).result()
    run = await cheap.start(agent, "asked", session="s", metadata={"memory": memory})
    await run.result()
    assert [text for role, text in await said(run) if role == "user"] == told


@pytest.mark.parametrize(
    ("scope", "named", "told"),
    [
        ("session", {"user_id": "ada"}, ["by ada", "asked"]),
        ("user", {"session_id": "s"}, ["here", "asked"]),
        ("task", {"session_id": "s", "user_id": "ada"}, ["here", "asked"]),
        ("user", {"session_id": "s", "user_id": "ada"}, ["by ada", "asked"]),
    ],
)
async def test_the_key_that_a_run_names_goes_before_the_scope_of_its_agent(
    cheap: Place, script: Script, scope: str, named: dict[str, str], told: list[str]
) -> None:
    agent = Agent("helper", model=script(says("yes")), memory={"scope": scope})
    await cheap.open(agent)
    ada, bob = ({"memory": {"scope": {"user_id": name}}} for name in ("ada", "bob"))
    await (await cheap.start(agent, "here", session="s", metadata=bob)).result()
    await (await cheap.start(agent, "by ada", session="t", metadata=ada)).result()
    run = await cheap.start(agent, "asked", session="u", metadata={"memory": {"scope": named}})
    await run.result()
    assert [text for role, text in await said(run) if role == "user"] == told


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        ("session", "metadata\\['memory'\\]"),
        ({"scop": {}}, "metadata\\['memory'\\].*scop"),
        ({"scope": {"user": "ada"}}, "metadata\\['memory'\\].*user"),
        ({"scope": {"user_id": 3}}, "metadata\\['memory'\\].*str"),
        ({"backend": "lgo"}, "there is no memory backend 'lgo'; did you mean 'log'\\?"),
    ],
)
async def test_a_memory_of_another_shape_is_refused_before_anything_is_stored(
    cheap: Place, script: Script, memory: Any, message: str
) -> None:
    agent = Agent("helper", model=script(says("yes")))
    runtime = await cheap.open(agent)
    with pytest.raises(ConfigError, match=message):
        await cheap.start(agent, "asked", session="s", metadata={"memory": memory})
    assert await runtime.list_runs() == []
