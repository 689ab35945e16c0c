"""Reasoning sent back over the real SDK: the server refuses a request that lacks or alters it."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from foldlog.adapters.models.endpoint import Api, HttpOptions
from foldlog.adapters.models.openai import OpenAIProvider
from foldlog.eventlog import ReplyState
from foldlog.eventlog.memory import MemoryLog
from foldlog.projections.messages import CallRequest, Message, ReplyItems
from foldlog.replay import Trace, check_trace, compare, load_trace, replay, rerun
from foldlog.runtime import Agent, Registry, Runtime, Worker, tool
from foldlog.runtime.driving.host import Host
from foldlog.runtime.ports.models import InvalidRequest, ModelRequest

from ..fakes import anthropic_server
from ..fakes.openai_server import Call, OpenAIServer, Reply, serve
from ..fakes.reasoning_server import ReasoningServer
from .wires import KEY, WIRES

pytestmark = pytest.mark.anyio
BACK = HttpOptions(reasoning_back="reasoning_content")


@tool(effect="pure")
def look(at: str) -> str:
    """Look at something."""
    return f"saw {at}"


def looks(number: int, *more: str) -> Reply:
    calls = [
        Call(id=f"c{number}-{at}", name="look", arguments=(f'{{"at":"{at}{number}"}}',))
        for at in ("a", *more)
    ]
    return Reply(
        text=("I ", f"look {number}."), reasoning=("I have to ", f"look: {number}."), calls=tuple(calls)
    )


DONE = Reply(text=("done",), reasoning=("That is all.",))
both_apis = pytest.mark.parametrize("api", ["chat", "responses"])


@asynccontextmanager
async def reasoning(
    *replies: Reply, api: Api, name: str
) -> AsyncIterator[tuple[OpenAIServer, OpenAIProvider]]:
    async with serve(*replies, kind=ReasoningServer) as server:
        provider = OpenAIProvider(name=name, api=api, base_url=server.url, api_key_env=None, options=BACK)
        yield server, provider
        await provider.aclose()


@both_apis
async def test_a_tool_loop_sends_back_what_the_model_thought_at_its_place(api: Api) -> None:
    async with reasoning(looks(1, "b"), looks(2), DONE, api=api, name="here") as (server, provider):
        agent = Agent("thinker", model="here:gpt-5", tools=[look])
        registry = Registry(agents=[agent], providers={"here": provider})
        async with Runtime.open("memory://", registry=registry) as rt:
            result = await rt.run(agent, "What is there?")
            trace = await load_trace(rt.log, result.run_id)
    states = [event for event in trace.events if isinstance(event, ReplyState)]
    assert (result.output, len(server.requests)) == ("done", 3)
    assert [(state.provider, state.model) for state in states] == [("here", "gpt-5")] * 3


@both_apis
@pytest.mark.parametrize("change", ["drop", "alter"])
async def test_the_server_of_these_tests_refuses_what_lacks_or_alters_a_thought(
    api: Api, change: str
) -> None:
    async with reasoning(looks(1), DONE, api=api, name="here") as (server, provider):
        ask = Message(role="user", content="What is there?")
        *_, finished = [
            delta async for delta in provider.stream(ModelRequest(model="gpt-5", messages=(ask,)))
        ]
        items = finished.reply_items  # type: ignore[union-attr] # the last delta
        said = Message(
            role="assistant",
            content="I look 1.",
            tool_calls=(CallRequest(id="c1-a", name="look", arguments='{"at":"a1"}'),),
            reply_state=ReplyItems(provider="here", model="gpt-5", items=items),
        )
        saw = Message(role="tool", content="saw a1", tool_call_id="c1-a")
        altered: Any = json.loads(json.dumps(items).replace("look: 1", "look: 2").replace("==", "=+"))
        kept = None if change == "drop" else ReplyItems(provider="here", model="gpt-5", items=altered)
        wrong = msgspec.structs.replace(said, reply_state=kept)
        with pytest.raises(InvalidRequest, match="reasoning"):
            await anext(provider.stream(ModelRequest(model="gpt-5", messages=(ask, wrong, saw))))
        right = ModelRequest(model="gpt-5", messages=(ask, said, saw))
        assert [delta async for delta in provider.stream(right)]
        assert len(server.requests) == 3


async def test_a_fallback_in_a_tool_loop_gets_no_foreign_thoughts_and_replay_agrees() -> None:
    down = Reply(status=500, body={"error": {"message": "down"}})
    log = MemoryLog()
    async with (
        reasoning(looks(1), down, looks(3), DONE, api="responses", name="first") as (first, one),
        reasoning(looks(2), api="chat", name="second") as (second, other),
    ):
        agent = Agent(
            "wavering",
            model="first:gpt-5",
            fallback_models=["second:deep"],
            tools=[look],
            retry={"attempts": 1},
        )
        registry = Registry(agents=[agent], providers={"first": one, "second": other})
        async with Runtime.open(log=log, registry=registry) as rt:
            result = await rt.run(agent, "What is there?")
            found = replay(await load_trace(rt.log, result.run_id))
    assert result.output == "done"
    assert (len(first.requests), len(second.requests)) == (4, 1)
    assert found.divergence is None
    assert found.requests == 5
    (asked,) = second.requests
    assert "encrypted" not in json.dumps(asked.body)
    thoughts = [item for item in first.requests[2].body["input"] if item.get("type") == "reasoning"]
    assert len(thoughts) == 2  # its own, of the first answer, and nothing of the other's


async def a_wavering_run(executor: str) -> tuple[Trace, list[Any], list[Any]]:
    """A tool loop that Claude begins, GPT goes on with, and Claude ends; the requests that each of them got."""
    overloaded = Reply(status=529, body=anthropic_server.error_body("overloaded_error", "Overloaded"))
    log = MemoryLog()
    async with (
        WIRES["anthropic"].served(looks(1, "b"), overloaded, looks(3), DONE) as (claude, one),
        reasoning(looks(2), api="responses", name="gpt") as (gpt, other),
    ):
        agent = Agent(
            "wavering",
            model="anthropic:claude-sonnet-5",
            fallback_models=["gpt:gpt-5"],
            tools=[look],
            retry={"attempts": 1},
        )
        registry = Registry(agents=[agent], providers={"anthropic": one, "gpt": other})
        worker = Worker(Host(log=log, registry=registry, worker="w"))
        async with Runtime.open(log=log, registry=registry) as rt:
            serving = asyncio.create_task(worker.serve()) if executor == "durable" else None
            result = await rt.run(agent, "What is there?", executor=executor, run_id="wavering")
            trace = await load_trace(log, result.run_id)
            if serving is not None:
                worker.stop()
                await serving
    assert result.output == "done"
    return trace, [each.body for each in claude.requests], [each.body for each in gpt.requests]


async def test_a_fallback_from_anthropic_to_openai_in_a_tool_loop_is_equal_on_both_executors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    local, claude, gpt = await a_wavering_run("local")
    durable, *others = await a_wavering_run("durable")
    assert compare(local, durable).equal, compare(local, durable).render()
    assert [len(claude), len(gpt)] == [4, 1]
    assert [claude, gpt] == others
    for trace in (local, durable):
        assert not check_trace(trace)
        assert replay(trace).divergence is None
        assert compare(trace, await rerun(trace)).equal
        assert compare(trace, await rerun(trace, executor="durable")).equal
        states = [event.provider for event in trace.events if isinstance(event, ReplyState)]
        assert states == ["anthropic", "gpt", "anthropic", "anthropic"]
    (asked,) = map(json.dumps, gpt)
    assert "saw a1" in asked
    assert "signed/" not in asked
    assert "redacted/" not in asked
    last = json.dumps(claude[-1])
    assert "saw a2" in last
    assert "encrypted_content" not in last
    assert anthropic_server.signature("I have to look: 1.") in last
    assert "I have to look: 2." not in last


@both_apis
async def test_the_prefix_of_the_requests_of_twenty_steps_is_equal_to_the_byte(api: Api) -> None:
    steps = [looks(number) for number in range(20)]
    async with reasoning(*steps, DONE, api=api, name="here") as (server, provider):
        agent = Agent(
            "thinker",
            model="here:gpt-5",
            instructions="Be brief.",
            tools=[look],
            max_steps=30,
            settings={"cache": "auto"},
        )
        registry = Registry(agents=[agent], providers={"here": provider})
        async with Runtime.open("memory://", registry=registry) as rt:
            assert (await rt.run(agent, "What is there?")).output == "done"
    key = "messages" if api == "chat" else "input"
    bodies = [request.body for request in server.requests]
    assert len(bodies) == 21
    for before, after in itertools.pairwise(bodies):
        prefix = json.dumps(before[key])
        assert json.dumps(after[key]).startswith(prefix.removesuffix("]"))
        assert len(after[key]) > len(before[key])
        rest = [{name: value for name, value in body.items() if name != key} for body in (before, after)]
        assert json.dumps(rest[0]) == json.dumps(rest[1])
