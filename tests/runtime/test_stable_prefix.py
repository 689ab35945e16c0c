"""The same bytes are sent twice: the beginning of a prompt, and a picture, which the log has once, by its digest."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import msgspec
import pytest
from foldlog.eventlog.ports import Shard
from foldlog.runtime import Agent, File, ModelSettings, tool
from foldlog.runtime.ports.models import CallDelta, Delta, Finished, ModelRequest, TextDelta

from .conftest import Place

pytestmark = pytest.mark.anyio
STEPS = 20
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
DIGEST = hashlib.sha256(PNG).hexdigest()


class Counting:
    """Calls a tool in every step but the last one, thinks about it, and keeps what it was sent."""

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []
        self.tools: list[bytes] = []

    def check(self, model: str) -> None:
        """Every model can be called."""

    def unknown_settings(self, model: str, settings: ModelSettings) -> dict[str, str]:
        return {}

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        self.sent.append([msgspec.json.encode(message) for message in request.messages])
        self.tools.append(msgspec.json.encode(request.tools))
        step = len(self.sent)
        if step < STEPS:
            yield CallDelta(index=0, id=f"c{step}", name="look", arguments=f'{{"at": "{step}"}}')
        else:
            yield TextDelta("done")
        yield Finished(reason="stop", reply_items=[{"thought": step, "signature": "s" * step}])

    async def aclose(self) -> None:
        """Nothing to close."""


async def test_over_twenty_steps_each_request_begins_with_the_bytes_of_the_one_before(place: Place) -> None:
    @tool(effect="pure")
    def look(at: str) -> list[str | File]:
        """Look, and bring the same picture each time."""
        return [f"seen {at}", File.from_bytes(PNG, name="cat.png")]

    sim = Counting()
    agent = Agent(
        "seer", model="sim:large", instructions="Be brief.", tools=[look], max_steps=STEPS, loop_threshold=0
    )
    await place.open(agent, providers={"sim": sim})
    picture = File.from_bytes(PNG, name="cat.png")
    run = await place.runtime.start(agent, ["Look.", picture], executor=place.executor)
    assert (await run.result()).steps == STEPS
    for before, after in zip(sim.sent, sim.sent[1:], strict=False):
        assert after[: len(before)] == before
    assert len(set(sim.tools)) == 1
    assert len(sim.sent[-1]) == 2 * STEPS


async def test_the_log_has_a_picture_once_for_each_event_that_brings_it(place: Place) -> None:
    sim = Counting()

    @tool(effect="pure")
    def look(at: str) -> str:
        """Look."""
        return f"seen {at}"

    agent = Agent("seer", model="sim:large", tools=[look], max_steps=STEPS, loop_threshold=0)
    await place.open(agent, providers={"sim": sim})
    picture = File.from_bytes(PNG, name="cat.png")
    run = await place.runtime.start(agent, ["Look.", picture], executor=place.executor)
    await run.result()
    assert sum(DIGEST.encode() in message for message in sim.sent[-1]) == 1
    events = place.log.events
    stored = [each.data for shard in range(events.shards) async for each in events.read(Shard(shard))]
    assert b"".join(stored).count(DIGEST.encode()) == 1
