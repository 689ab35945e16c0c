"""The wires that models are called over, each with its server on loopback and the real SDK in front of it."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import cycle, islice, product
from typing import Any

import msgspec
import pytest
from foldlog.adapters.models import OpenAIProvider
from foldlog.adapters.models.vendors import VendorProvider
from foldlog.eventlog.events import ToolSchema
from foldlog.projections.messages import CallRequest, Message, ReplyItems
from foldlog.runtime.ports.models import CallDelta, Delta, Finished, ModelProvider, ModelRequest, TextDelta
from xai_sdk.proto import sample_pb2

from ..fakes import anthropic_server, gemini_server, openai_server
from ..fakes.anthropic_server import AnthropicServer
from ..fakes.gemini_server import GeminiServer
from ..fakes.openai_server import Call, OpenAIServer, Reply, Usage, serve
from ..fakes.vendor_servers import (
    BedrockServer,
    ChatServer,
    CohereServer,
    GroqServer,
    MistralServer,
    OpenRouterServer,
    bedrock_events,
    cohere_events,
    groq_chunks,
    mistral_chunks,
    openrouter_chunks,
    plain_chunks,
)
from ..fakes.xai_server import serve_xai, xai_chunks

KEY = "key-verysecret0123456789"
SEARCH = ToolSchema(
    name="search",
    description="Looks it up.",
    parameters={"type": "object", "properties": {"q": {"type": "string"}}},
)


@dataclass(frozen=True)
class Wire:
    """`events` are those of a reply; `ends` says of one whether the answer is whole with it.

    `server` speaks it over HTTP; null for xAI's, which speaks gRPC.
    """

    name: str
    model: str
    server: type[OpenAIServer] | None
    provider: Callable[[str], ModelProvider]
    events: Callable[[str, Reply], Iterator[Any]]
    ends: Callable[[Any], bool]
    variable: str
    thinks: bool = True

    def replies(self, count: int = 40) -> list["Reply"]:
        """Scripted answers; without thoughts on a wire that has none."""
        made = scripted_replies(count)
        return (
            made
            if self.thinks
            else [replace(reply, reasoning=(), text=reply.text or ("x",)) for reply in made]
        )

    @asynccontextmanager
    async def served(self, *replies: Reply) -> AsyncIterator[tuple[Any, ModelProvider]]:
        serving = serve_xai(*replies) if self.server is None else serve(*replies, kind=self.server)
        async with serving as server:
            provider = self.provider(server.url)
            yield server, provider
            await provider.aclose()

    def request(self, **fields: Any) -> ModelRequest:
        asked = (Message(role="system", content="Be brief."), Message(role="user", content="Who?"))
        given = {"model": self.model, "messages": asked, "tools": (SEARCH,), "idempotency_key": "run1/3"}
        return ModelRequest(**(given | fields))

    async def answer(self, provider: ModelProvider, **fields: Any) -> list[Delta]:
        return [delta async for delta in provider.stream(self.request(**fields))]


def vendor(name: str) -> Callable[[str], ModelProvider]:
    return lambda url: VendorProvider(name, base_url=url.removesuffix("/v1"))


def has_finish_reason(event: Any) -> bool:
    return any(choice["finish_reason"] for choice in event["choices"])


def is_coheres_end(event: Any) -> bool:
    return bool(event["type"] == "message-end")


def is_bedrocks_end(event: Any) -> bool:
    return "messageStop" in event


WIRES = {
    wire.name: wire
    for wire in (
        Wire(
            "chat",
            "gpt-x",
            OpenAIServer,
            lambda url: OpenAIProvider(base_url=url),
            lambda model, reply: openai_server.chat_chunks(
                {"model": model, "stream_options": {"include_usage": True}}, reply
            ),
            lambda event: any(choice["finish_reason"] for choice in event["choices"]),
            "OPENAI_API_KEY",
        ),
        Wire(
            "responses",
            "gpt-x",
            OpenAIServer,
            lambda url: OpenAIProvider(base_url=url, api="responses"),
            openai_server.response_events,
            lambda event: event["type"] in {"response.completed", "response.incomplete"},
            "OPENAI_API_KEY",
        ),
        Wire(
            "ollama",
            "llama",
            OpenAIServer,
            lambda url: VendorProvider("ollama", base_url=url),
            lambda model, reply: openai_server.chat_chunks(
                {"model": model, "stream_options": {"include_usage": True}}, reply
            ),
            lambda event: any(choice["finish_reason"] for choice in event["choices"]),
            "OLLAMA_API_KEY",
        ),
        Wire(
            "anthropic",
            "claude-sonnet-5",
            AnthropicServer,
            vendor("anthropic"),
            anthropic_server.message_events,
            lambda event: event["type"] == "message_delta",
            "ANTHROPIC_API_KEY",
        ),
        *(
            Wire(name, model, server, vendor(name), events, ends, variable, thinks=name != "huggingface")
            for name, model, server, events, ends, variable in (
                ("groq", "llama-4", GroqServer, groq_chunks, has_finish_reason, "GROQ_API_KEY"),
                (
                    "mistral",
                    "mistral-large",
                    MistralServer,
                    mistral_chunks,
                    has_finish_reason,
                    "MISTRAL_API_KEY",
                ),
                (
                    "openrouter",
                    "a/b",
                    OpenRouterServer,
                    openrouter_chunks,
                    has_finish_reason,
                    "OPENROUTER_API_KEY",
                ),
                ("azure", "gpt-4o", ChatServer, plain_chunks, has_finish_reason, "AZURE_OPENAI_API_KEY"),
                ("huggingface", "a/b", ChatServer, plain_chunks, has_finish_reason, "HF_TOKEN"),
                (
                    "cohere",
                    "command-a",
                    CohereServer,
                    cohere_events,
                    lambda e: e["type"] == "message-end",
                    "CO_API_KEY",
                ),
                (
                    "bedrock",
                    "amazon.nova-pro-v1:0",
                    BedrockServer,
                    bedrock_events,
                    is_bedrocks_end,
                    "AWS_SECRET_ACCESS_KEY",
                ),
            )
        ),
        Wire(
            "google",
            "gemini-3-pro-preview",
            GeminiServer,
            vendor("google"),
            gemini_server.chunks,
            lambda event: "finishReason" in event["candidates"][0],
            "GOOGLE_API_KEY",
        ),
        Wire(
            "xai",
            "grok-4",
            None,
            vendor("xai"),
            xai_chunks,
            lambda event: event.outputs[0].finish_reason != sample_pb2.REASON_INVALID,
            "XAI_API_KEY",
        ),
    )
}


def scripted_replies(count: int = 40) -> list[Reply]:
    """Answers of every shape: thoughts, text, calls, in one piece and in many, with characters of every width."""
    thoughts = ((), ("Let me", " see.", " So."))
    texts = ((), ("Hel", "lo, ", "wörld 🦆"), ("x",))
    calls = (
        (),
        (Call(id="call_a", name="search", arguments=('{"q": ', '"ä🦆"}')),),
        (
            Call(id="call_a", name="search", arguments=('{"q": "a"}',)),
            Call(id="call_b", name="search", arguments=('{"q"', ": ", '"b"}')),
        ),
    )
    shapes = [shape for shape in product(thoughts, texts, calls) if any(shape)]
    usages = cycle((Usage(), Usage(input=300, cached=0, output=9, reasoning=0), None))
    return [
        Reply(reasoning=thought, text=text, calls=made, usage=usage)
        for (thought, text, made), usage in islice(zip(cycle(shapes), usages, strict=False), count)
    ]


BESIDES = {
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_DEFAULT_REGION": "eu-north-1",
    "AWS_REGION": "eu-north-1",
    "AZURE_OPENAI_ENDPOINT": "http://127.0.0.1:9",
    "OPENAI_API_VERSION": "2025-01-01",
}
"""The variables that some vendors need besides a key."""


def set_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each wire its key, and no other address than that of its test server."""
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for wire in WIRES.values():
        monkeypatch.setenv(wire.variable, KEY)
    for name, value in BESIDES.items():
        monkeypatch.setenv(name, value)


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def calls_of(deltas: list[Delta]) -> list[tuple[str, str, Any]]:
    """Each call's id, name and arguments."""
    calls: dict[int, tuple[str, str, str]] = {}
    for delta in deltas:
        if isinstance(delta, CallDelta):
            call_id, name, arguments = calls.get(delta.index, ("", "", ""))
            calls[delta.index] = (call_id + delta.id, name + delta.name, arguments + delta.arguments)
    return [(call_id, name, json.loads(arguments or "{}")) for call_id, name, arguments in calls.values()]


def end_of(deltas: list[Delta]) -> Finished:
    assert isinstance(deltas[-1], Finished)
    return deltas[-1]


def in_history(deltas: list[Delta], provider: str) -> tuple[Message, ...]:
    """The messages of an answer and of the results of its calls, as the log keeps them."""
    made, end = calls_of(deltas), end_of(deltas)
    calls = tuple(CallRequest(id=call, name=name, arguments=json.dumps(given)) for call, name, given in made)
    items = msgspec.json.decode(msgspec.json.encode(end.reply_items))
    kept = ReplyItems(provider=provider, model=end.model, items=items) if items else None
    answer = Message(role="assistant", content=text_of(deltas), tool_calls=calls, reply_state=kept)
    results = (Message(role="tool", content="found", tool_call_id=call.id) for call in calls)
    return Message(role="user", content="Who?"), answer, *results
