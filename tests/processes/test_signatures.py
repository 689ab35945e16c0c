"""Reply state of a model survives the death of its worker: the next one sends it back, byte for byte."""

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from foldlog.eventlog import Claimed, McpProgress, ReplyState
from foldlog.runtime import Agent

from tests.fakes.anthropic_server import serve_anthropic
from tests.fakes.gemini_server import serve_gemini
from tests.fakes.openai_server import Call, Reply, serve
from tests.fakes.reasoning_server import ReasoningServer
from tests.processes import workshop
from tests.processes.support import PATIENCE_S, Place, stored

THINKS = Reply(
    reasoning=("I have to", " wait."),
    text=("Wait.",),
    calls=(Call(id="call_a", name="wait", arguments=("{}",)),),
)
ANSWERS = Reply(text=("At last",))


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
