"""A server whose model reads less than anybody knows, through the real SDK: its refusals teach the run."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from foldlog.adapters.models import OpenAIProvider
from foldlog.eventlog.events import Context
from foldlog.replay import canonical, load_trace
from foldlog.replay.rerunning.recorded import rerun
from foldlog.runtime import Agent, tool

from ..fakes.openai_server import Call, OpenAIServer, Reply, Request, Usage, serve
from .conftest import Place

pytestmark = pytest.mark.anyio
WINDOW = 2000
SAID = {
    "numbers": "maximum context length is {window} tokens. However, your messages resulted in {took} tokens.",
    "none": "the request exceeds the available context size, try increasing it",
}


def tokens_of(body: dict[str, Any]) -> int:
    return len(json.dumps(body["messages"])) // 4


class Small(OpenAIServer):
    """Refuses what is longer than its window, asks for a tool ten times, and puts into words what it is given."""

    said = "numbers"
    steps = 0
    refused = 0
    given: tuple[str, ...] = ()

    async def answer(self, request: Request, reply: Reply, *streams: Any) -> bool:
        took = tokens_of(request.body)
        if took > WINDOW:
            self.refused += 1
            text = SAID[self.said].format(window=WINDOW, took=took)
            return await super().answer(
                request, Reply(status=400, body={"error": {"message": text}}), *streams
            )
        usage = Usage(input=took, output=5)
        if "<conversation>" in request.body["messages"][-1]["content"]:
            self.given += (request.body["messages"][-1]["content"],)
            reply = Reply(text=("A summary.",), usage=usage)
        elif self.steps < 10:
            call = Call(id=f"c{self.steps}", name="look", arguments=(f'{{"n": {self.steps}}}',))
            reply, self.steps = Reply(calls=(call,), usage=usage), self.steps + 1
        else:
            reply = Reply(text=("done",), usage=usage)
        return await super().answer(request, reply, *streams)


class Wordless(Small):
    """As that, and states no numbers."""

    said = "none"


@contextlib.asynccontextmanager
async def served(kind: type[OpenAIServer], **options: Any) -> AsyncIterator[tuple[Any, dict[str, Any]]]:
    async with serve(Reply(), kind=kind) as server, contextlib.AsyncExitStack() as stack:
        provider = OpenAIProvider(name="here", base_url=server.url, api_key_env=None, **options)
        stack.push_async_callback(provider.aclose)
        yield server, {"here": provider}


def looker() -> Any:
    @tool(effect="pure")
    async def look(n: int) -> str:
        """Look."""
        return f"seen {n}: " + "word " * 300

    return look


@pytest.mark.parametrize("kind", [Small, Wordless])
async def test_a_model_of_unknown_window_is_rescued_and_refuses_nothing_any_more(
    cheap: Place, kind: type[Small]
) -> None:
    agent = Agent("helper", model="here:unheard-of", tools=[looker()], max_steps=20)
    async with served(kind) as (server, providers):
        await cheap.open(agent, providers=providers)
        run = await cheap.start(agent)
        assert (await run.result()).output == "done"
        cuts = [event for event in await cheap.events(run) if isinstance(event, Context)]
    assert server.steps == 10
    assert [cut.details["cause"] for cut in cuts][:2] == ["overflow", "tokens"]
    assert not any("unsummarized" in cut.details for cut in cuts)
    assert server.refused <= 2  # the first request that is too long, and maybe its summary
    for number in range(6):  # each result left once, and then a summary was given it
        assert any(f"seen {number}: " in given for given in server.given)
    recorded = await load_trace(cheap.log, run.run_id)
    assert canonical(await rerun(recorded)).digest == canonical(recorded).digest
