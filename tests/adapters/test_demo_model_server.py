"""The demo's model server, as a process of its own, through the real SDK."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from foldlog.adapters.demo import model_server
from foldlog.adapters.models import OpenAIProvider
from foldlog.eventlog.events import TokenUsage, ToolSchema
from foldlog.projections.messages import CallRequest, Message
from foldlog.runtime.ports.models import CallDelta, Delta, Finished, ModelRequest, TextDelta

TOOLS = tuple(
    ToolSchema(name=name, description="", parameters={"type": "object"})
    for name in ("other", "mcp__demo__search")
)
QUESTION = Message(role="user", content="What is the answer?")
CALL = CallRequest(id=model_server.CALL_ID, name="mcp__demo__search", arguments='{"query": "answer"}')
HISTORY = (
    QUESTION,
    Message(role="assistant", tool_calls=(CALL,)),
    Message(role="tool", content="42", tool_call_id=CALL.id),
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [sys.executable, "-m", "foldlog.adapters.demo.model_server", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.kill()


async def answer(url: str, *messages: Message) -> list[Delta]:
    provider = OpenAIProvider(base_url=url, api_key_env=None)
    try:
        request = ModelRequest(model="demo", messages=messages, tools=TOOLS)
        return [delta async for delta in provider.stream(request)]
    finally:
        await provider.aclose()


async def test_it_first_calls_the_search_tool_that_the_request_offers(url: str):
    usage = TokenUsage(input_tokens=50, output_tokens=10, total_tokens=60)
    for _ in range(2):
        assert await answer(url, QUESTION) == [
            CallDelta(index=0, id=CALL.id, name=CALL.name, arguments=CALL.arguments),
            Finished(reason="tool_calls", usage=usage, model="demo"),
        ]


async def test_it_answers_in_pieces_once_it_has_a_result(url: str):
    usage = TokenUsage(input_tokens=80, output_tokens=5, total_tokens=85)
    assert await answer(url, *HISTORY) == [
        *(TextDelta(piece) for piece in model_server.ANSWER),
        Finished(reason="stop", usage=usage, model="demo"),
    ]
