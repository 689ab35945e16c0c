"""A stored agent that is saved while a server runs is started through every door, as one in code is."""

from __future__ import annotations

import asyncio
import contextlib
from typing import cast

import nats
import pytest
from a2a.client.errors import A2AClientError
from a2a.utils.errors import A2AError
from foldlog.adapters.cli.protocols import protocol_routes
from foldlog.eventlog import ConfigError, MemoryLog
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.runtime import Registry, Runtime
from mcp import Client
from nats.errors import NoRespondersError
from openai import BadRequestError

from tests.javascript.packages import installed_packages
from tests.protocols import test_a2a, test_agui, test_mcp_server, test_nats_agents, test_responses
from tests.protocols.counter import Counter

pytestmark = pytest.mark.anyio
CLERK = {"name": "clerk", "model": "scripted:greeter.json"}


async def offered(client: Client, name: str, *, there: bool = True) -> None:
    """Wait until the server offers the tool, or no longer does: it follows the log."""
    async with asyncio.timeout(120):
        while True:
            if (name in [tool.name for tool in (await client.list_tools()).tools]) is there:
                return
            await asyncio.sleep(0.01)


async def test_a_stored_agent_is_asked_by_mcp_responses_a2a_and_ag_ui(counter: Counter) -> None:
    await counter.runtime.agents.save(CLERK)
    async with test_mcp_server.connected(counter) as client:
        await offered(client, "clerk")
        done = await client.call_tool("clerk", {"input": "Hello"})
        assert test_mcp_server.text(done) == "Hello there."
    async with test_responses.client(counter) as ai:
        assert "clerk" in [each.id async for each in ai.models.list()]
        assert (await ai.responses.create(model="clerk", input="Hello")).output_text == "Hello there."
    async with test_a2a.connected(counter, "clerk") as task:
        _, states, texts = await test_a2a.told(task.send_message(test_a2a.says("Hello")))
        assert (states[-1], texts[-1]) == ("completed", "Hello there.")
    async with test_agui.opened(await installed_packages(), counter, "clerk") as page:
        told = await page.tell("run", runId="r1", text="Hello")
        assert (told["error"], told["last"]["result"]) == ("", "Hello there.")
    rows = [row for row in await counter.runtime.list_runs() if row.agent == "clerk"]
    assert {row.executor for row in rows} == {counter.executor}
    assert len(rows) == 4
    await counter.runtime.agents.remove("clerk")
    async with test_mcp_server.connected(counter) as client:
        await offered(client, "clerk", there=False)
    async with test_responses.client(counter) as ai:
        with pytest.raises(BadRequestError, match="there is no agent 'clerk'"):
            await ai.responses.create(model="clerk", input="Hello")
    with pytest.raises((A2AError, A2AClientError)):
        async with test_a2a.connected(counter, "clerk"):
            pass


async def test_a_stored_agent_is_found_and_prompted_over_nats() -> None:
    async with EphemeralServer() as server:
        registry = Counter(MemoryLog(), "local", {}).registry
        client = await nats.connect(server.url)
        async with test_nats_agents.served(server, "local", registry) as runtime:
            await runtime.agents.save(CLERK)
            async with asyncio.timeout(120):
                while True:
                    with contextlib.suppress(NoRespondersError):
                        await client.request("agents.status.foldlog.local.clerk", timeout=60)
                        break
                    await asyncio.sleep(0.01)
                subject = await test_nats_agents.subject_of(client, "clerk", "local")
            stream = await test_nats_agents.Stream(client).ask(subject, b"Hello")
            assert "".join(stream.said("response")) == "Hello there."
        await client.close()


async def test_protocols_without_any_agent_are_refused_and_with_a_stored_one_they_are_not() -> None:
    registry = Counter(MemoryLog(), "local", {}).registry
    log, nobody = MemoryLog(), cast("None", None)
    async with Runtime.open(log=log, registry=Registry()) as runtime:
        with pytest.raises(ConfigError, match="or store one: foldlog agents save FILE"):
            async with protocol_routes(("mcp",), runtime, nobody, executor="durable"):  # type: ignore[arg-type]
                pass
        async with Runtime.open(log=log, registry=registry) as other:
            await other.agents.save(CLERK)
        async with protocol_routes(("mcp",), runtime, nobody, executor="durable") as routes:  # type: ignore[arg-type]
            assert routes
