"""Files over the limit of a request go by the provider's file API, once each, over the real SDKs."""

import asyncio
import json
from typing import Any

import pytest
from foldlog import Agent, Registry, Runtime, tool
from foldlog.adapters.models import HttpOptions, OpenAIProvider
from foldlog.adapters.models.vendors import VendorProvider, vendors
from foldlog.eventlog import FilePart, RunFailed
from foldlog.projections.messages import Message, sha256_hex
from foldlog.replay import load_trace, replay
from foldlog.runtime import File
from foldlog.runtime.ports.models import InvalidRequest, ModelProvider, ModelRequest, RateLimited

from ..fakes import anthropic_server, gemini_server
from ..fakes.openai_server import Call, OpenAIServer, Reply, serve
from .wires import KEY, WIRES

PDF = b"%PDF-1.7 " + bytes(2000)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
SMALL = HttpOptions(inline_bytes_max=1000)
KINDS: dict[str, tuple[str, type[OpenAIServer]]] = {
    "openai-responses": ("gpt-5", OpenAIServer),
    "openai": ("gpt-5", OpenAIServer),
    "anthropic": ("claude-sonnet-5", anthropic_server.AnthropicServer),
    "google": ("gemini-3-pro-preview", gemini_server.GeminiServer),
}
every_api = pytest.mark.parametrize("name", KINDS)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendors, "_POLL_S", 0.01)
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for wire in WIRES.values():
        monkeypatch.setenv(wire.variable, KEY)


def provider_of(name: str, url: str, options: HttpOptions = SMALL) -> ModelProvider:
    if name.startswith("openai"):
        api: Any = "chat" if name == "openai" else "responses"
        return OpenAIProvider(name=name, api=api, base_url=url, options=options)
    return VendorProvider(name, base_url=url.removesuffix("/v1"), options=options)


@tool(effect="pure")
def read() -> list[str | File]:
    """Read the contract again."""
    return ["Here:", File.from_bytes(PDF, name="contract.pdf")]


REFERENCES = {
    "openai-responses": {"type": "input_file", "file_id": "file-1"},
    "openai": {"type": "file", "file": {"file_id": "file-1"}},
    "anthropic": {"file_id": "file-1", "type": "file"},
    "google": "https://generativelanguage.googleapis.com/v1beta/files/1",
}


@every_api
async def test_a_large_file_is_uploaded_once_and_referred_to_by_all_requests(name: str) -> None:
    model, kind = KINDS[name]
    calls = Reply(calls=(Call(id="call_a", name="read", arguments=("{}",)),))
    async with serve(calls, Reply(text=("Signed.",)), kind=kind) as server:
        provider = provider_of(name, server.url)
        agent = Agent("reader", model=f"{name}:{model}", tools=[read])
        registry = Registry(agents=[agent], providers={name: provider})
        given = [
            "Is it signed?",
            File.from_bytes(PNG, name="a.png"),
            File.from_bytes(PDF, name="contract.pdf"),
        ]
        async with Runtime.open("memory://", registry=registry) as rt:
            result = await rt.run(agent, given)
            trace = await load_trace(rt.log, result.run_id)
        await provider.aclose()
    assert result.output == "Signed."
    (upload,) = server.uploads  # for both requests, and for the same file of the tool
    assert PDF in upload
    first, second = (json.dumps(request.body) for request in server.requests)
    wanted = json.dumps(REFERENCES[name])
    assert (first.count(wanted), second.count(wanted)) == (1, 2)
    assert "JVBERi0xLjcg" not in first + second  # the beginning of the PDF in base64
    assert "iVBORw0KGgo" in first  # the picture fits
    assert replay(trace).divergence is None
    if name == "anthropic":
        assert "files-api" in server.requests[0].headers["anthropic-beta"]
    expiry = {
        "openai": b"expires_after",
        "openai-responses": b"expires_after",
        "anthropic": b"expires_in_seconds",
    }
    assert expiry.get(name, b"") in upload


@every_api
async def test_requests_at_the_same_time_share_one_upload(name: str) -> None:
    model, kind = KINDS[name]
    async with serve(Reply(text=("Yes",)), kind=kind) as server:
        provider = provider_of(name, server.url)
        await asyncio.gather(*(ask(provider, model) for _ in range(3)))
        await provider.aclose()
    assert (len(server.uploads), len(server.requests)) == (1, 3)


async def ask(provider: ModelProvider, model: str) -> None:
    async def read_artifact(file: FilePart) -> bytes:
        return PDF

    file = FilePart(media_type="application/pdf", name="a.pdf", artifact=sha256_hex(PDF), bytes=len(PDF))
    asked = Message(role="user", content="Signed?", parts=(file,))
    request = ModelRequest(model=model, messages=(asked,), read_artifact=read_artifact)
    assert [delta async for delta in provider.stream(request)]


@every_api
async def test_a_file_api_that_is_busy_is_asked_again_later(name: str) -> None:
    model, kind = KINDS[name]
    async with serve(Reply(text=("Yes",)), kind=kind) as server:
        error = {
            "message": "slow down",
            "type": "rate_limit_error",
            "code": 429,
            "status": "RESOURCE_EXHAUSTED",
        }
        server.refused_upload = Reply(status=429, body={"type": "error", "error": error})
        provider = provider_of(name, server.url)
        with pytest.raises(RateLimited, match="slow down"):
            await ask(provider, model)
        server.refused_upload = None
        await ask(provider, model)
        await provider.aclose()
    assert len(server.requests) == 1


async def test_a_picture_that_is_too_large_for_chat_completions_is_refused_with_the_limit() -> None:
    """They take no pictures by an id."""
    large = File.from_bytes(PNG + bytes(2000), name="large.png")
    async with serve(Reply(text=("Yes",))) as server:
        provider = provider_of("openai", server.url)
        agent = Agent("seer", model="openai:gpt-5")
        registry = Registry(agents=[agent], providers={"openai": provider})
        async with Runtime.open("memory://", registry=registry) as rt:
            with pytest.raises(RunFailed, match=r"have 2,108 bytes, more than the 1,000 .* large.png"):
                await rt.run(agent, ["What is it?", large])
        await provider.aclose()
    assert (server.uploads, server.requests) == ([], [])


async def test_a_vendor_without_a_file_api_refuses_what_is_too_much_with_its_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", KEY)
    async with serve(Reply(text=("Yes",))) as server:
        provider = VendorProvider("groq", base_url=server.url.removesuffix("/v1"), options=SMALL)
        with pytest.raises(InvalidRequest, match=r"more than the 1,000 that the provider takes inline"):
            await ask(provider, "meta-llama/llama-4-scout")
        await provider.aclose()
    assert server.requests == []
