"""Named lanes of a session: runs of one lane go one after the other, those of two lanes side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from foldlog.eventlog import ConfigError
from foldlog.runtime import Agent, RunHandle, tool

from tests.runtime.conftest import HeldTool, Place, call, calls, says, when

Script = Callable[..., str]


async def test_lanes_of_one_session_run_side_by_side_and_each_in_order(place: Place, script: Script) -> None:
    order: list[str] = []
    mail, chat = HeldTool(), HeldTool()

    @tool(effect="pure")
    async def note(name: str) -> str:
        """Note."""
        order.append(f"{name} begins")
        held = {"mail-1": mail, "chat-1": chat}.get(name)
        if held is not None:
            held.entered.set()
            await held.let_go.wait()
        order.append(f"{name} ends")
        return name

    scenes = [
        when(name, calls(call("note", name=name)), says(f"{name} is done"))
        for name in ("mail-1", "mail-2", "chat-1")
    ]
    agent = Agent("desk", model=script(scenes=scenes), tools=[note])
    await place.open(agent)

    async def start(name: str) -> RunHandle[str]:
        return await place.runtime.start(
            agent, name, executor=place.executor, session="ada", lane=name.partition("-")[0]
        )

    first, second, other = [await start(name) for name in ("mail-1", "mail-2", "chat-1")]
    async with asyncio.timeout(120):
        await mail.entered.wait()
        await chat.entered.wait()
    assert [each for each in order if "mail-2" in each] == []
    assert (await second.pending()).behind == (first.run_id,)
    chat.let_go.set()
    await other.result()
    assert "mail-1 ends" not in order
    mail.let_go.set()
    await second.result()
    assert order.index("mail-1 ends") < order.index("mail-2 begins")
    said = [message.content for message in await second.history() if message.role in {"user", "assistant"}]
    assert [each for each in said if each] == ["mail-1", "mail-1 is done", "mail-2", "mail-2 is done"]
    assert (await place.runtime.history("ada", "mail")).turn_count() == 2
    assert (await place.runtime.history("ada", "chat")).turn_count() == 1
    assert (await place.runtime.history("ada")).turn_count() == 0
    assert await place.runtime.drop_last_user_turns("ada", 1, "mail") == 1
    assert (await place.runtime.history("ada", "mail")).turn_count() == 1
    assert len(await place.runtime.list_runs(session="ada")) == 3


async def test_a_lane_needs_a_session_and_a_name(place: Place, script: Script) -> None:
    agent = Agent("desk", model=script(says("done")))
    await place.open(agent)
    with pytest.raises(ConfigError, match="the lane 'mail' is a lane of a session: give the session, too"):
        await place.runtime.start(agent, "hello", lane="mail")
    for lane in ("", "a b", "x" * 65):
        with pytest.raises(ConfigError, match=r"the lane .* must be 1 to 64 letters"):
            await place.runtime.start(agent, "hello", session="ada", lane=lane)
