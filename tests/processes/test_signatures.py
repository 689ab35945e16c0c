"""Reply state of a model survives the death of its worker: the next one sends it back, byte for byte."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest
from foldlog.eventlog import Claimed, McpProgress, ReplyState
from foldlog.runtime import Agent

from tests.fakes import anthropic_server, gemini_server, openai_server
from tests.fakes.anthropic_server import AnthropicServer, serve_anthropic
from tests.fakes.gemini_server import GeminiServer, serve_gemini
from tests.fakes.openai_server import Call, OpenAIServer, Reply, Search, serve
from tests.fakes.reasoning_server import ReasoningServer
from tests.processes import workshop
from tests.processes.support import PATIENCE_S, Place, stored

THINKS = Reply(
    reasoning=("I have to", " wait."),
    text=("Wait.",),
    calls=(Call(id="call_a", name="wait", arguments=("{}",)),),
)
ANSWERS = Reply(text=("At last",))
SEARCHES = Reply(
    searches=(Search(id="srv_1", query="who is Ann?", found="https://example.com/ann"),), text=("Found.",)
)
KINDS: dict[type[OpenAIServer], Callable[[Reply], Iterator[Any]]] = {
    ReasoningServer: lambda reply: openai_server.response_events("gpt-5", reply),
    AnthropicServer: lambda reply: anthropic_server.message_events("claude-sonnet-5", reply),
    GeminiServer: lambda reply: gemini_server.chunks("gemini-3-pro-preview", reply),
}
"""The events in which a server answers, by its kind."""


async def signed_thoughts_survive(
    place: Place, agent: Agent[str], serving: AbstractAsyncContextManager[Any], variable: str
) -> None:
    async with serving as server:
        reached = {variable: server.url if variable == "OPENAI_BASE_URL" else server.url.removesuffix("/v1")}
        keys = dict.fromkeys(("ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "OPENAI_API_KEY"), "made-up")
        victim = await place.worker(**reached, **keys)
        run = await place.runtime.start(agent, "question", executor="durable")
        await stored(run, ReplyState)
        await stored(run, McpProgress)
        await place.worker(**reached, **keys)
        victim.kill()
        await stored(run, Claimed, count=2)
        workshop.open_gate()
        assert (await run.result(timeout_s=PATIENCE_S)).output == "At last"
        assert len(server.requests) == 2
    await place.form(run)


async def a_search_survives(place: Place, agent: Agent[str], kind: type[OpenAIServer], variable: str) -> None:
    """The worker dies while the provider searches: the next one asks again, and one search is recorded."""
    before = list(KINDS[kind](SEARCHES))
    within = next(n for n, event in enumerate(before) if "srv_1" in json.dumps(event)) + 1
    stalled = replace(SEARCHES, events=tuple(before), fault="stall", fault_after=within)
    async with serve(stalled, SEARCHES, kind=kind) as server:
        reached = {variable: server.url if variable == "OPENAI_BASE_URL" else server.url.removesuffix("/v1")}
        keys = dict.fromkeys(("ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "OPENAI_API_KEY"), "made-up")
        victim = await place.worker(**reached, **keys)
        run = await place.runtime.start(agent, "question", executor="durable")
        async with asyncio.timeout(PATIENCE_S):
            await server.asked.wait()
        await place.worker(**reached, **keys)
        victim.kill()
        assert (await run.result(timeout_s=PATIENCE_S)).output == "Found."
        assert len(server.requests) == 2
    told = [event async for event in run.stream(detailed=True) if event.type in {"tool_call", "tool_result"}]
    assert [(event.type, event.tool_name, event.executed_by) for event in told] == [
        ("tool_call", "web_search", "provider"),
        ("tool_result", "web_search", "provider"),
    ]
    await place.form(run)


async def test_a_search_of_openai_that_a_sigkill_broke_off_is_made_again(place: Place):
    await a_search_survives(place, workshop.gpt_searches, ReasoningServer, "OPENAI_BASE_URL")


@pytest.mark.nightly
async def test_a_search_of_anthropic_that_a_sigkill_broke_off_is_made_again(place: Place):
    await a_search_survives(place, workshop.claude_searches, AnthropicServer, "ANTHROPIC_BASE_URL")


@pytest.mark.nightly
async def test_a_search_of_gemini_that_a_sigkill_broke_off_is_made_again(place: Place):
    await a_search_survives(place, workshop.gemini_searches, GeminiServer, "GOOGLE_GEMINI_BASE_URL")


async def test_signed_thinking_of_anthropic_survives_a_sigkill(place: Place):
    serving = serve_anthropic(THINKS, ANSWERS)
    await signed_thoughts_survive(place, workshop.claude, serving, "ANTHROPIC_BASE_URL")


async def test_reasoning_items_of_openai_survive_a_sigkill(place: Place):
    serving = serve(THINKS, ANSWERS, kind=ReasoningServer)
    await signed_thoughts_survive(place, workshop.gpt, serving, "OPENAI_BASE_URL")


@pytest.mark.nightly
async def test_thought_signatures_of_gemini_survive_a_sigkill(place: Place):
    serving = serve_gemini(THINKS, ANSWERS)
    await signed_thoughts_survive(place, workshop.gemini, serving, "GOOGLE_GEMINI_BASE_URL")
