"""Files as they arrive at a server: through the real SDK, in the form of each API, for each way that a file came."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest
from foldlog.adapters.models.endpoint import Api
from foldlog.adapters.models.images import anthropic_tokens, google_tokens, image_size, openai_tokens
from foldlog.adapters.models.openai import OpenAIProvider
from foldlog.eventlog import ConfigError, FilePart, RunFailed
from foldlog.runtime import Agent, File, Registry, Runtime, tool

from tests.fakes.mcp_server import PDF, WAV
from tests.fakes.openai_server import Call, OpenAIServer, Reply, serve

pytestmark = pytest.mark.anyio
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (1024).to_bytes(4, "big") * 2 + bytes(9)
URL = "https://example.com/cat.png"
both_apis = pytest.mark.parametrize("api", ["chat", "responses"])


def data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@tool(effect="pure")
def photo() -> list[str | File]:
    """Take a photo."""
    return ["At night.", File.from_bytes(PNG, name="photo.png")]


async def asked(api: Api, given: Any, *replies: Reply, model: str = "gpt-4o") -> list[dict[str, Any]]:
    """Run an agent with this input; the bodies of its requests."""
    async with serve(*(replies or (Reply(text=("ok",)),))) as server:
        await run(server, api, given, model)
        return [request.body for request in server.requests]


async def run(server: OpenAIServer, api: Api, given: Any, model: str = "gpt-4o") -> None:
    provider = OpenAIProvider(name="fake", api=api, base_url=server.url, api_key_env=None)
    agent = Agent("seer", model=f"fake:{model}", tools=[photo], retry={"attempts": 1})
    registry = Registry(agents=[agent], providers={"fake": provider})
    try:
        async with Runtime.open("memory://", registry=registry) as rt:
            result = await rt.run(agent, given)
            assert result.output == "ok"
    finally:
        await provider.aclose()


CHAT = {"type": "image_url", "image_url": {"url": data_url("image/png", PNG)}}
RESPONSES = {"type": "input_image", "image_url": data_url("image/png", PNG), "detail": "auto"}


@pytest.mark.parametrize(("api", "part"), [("chat", CHAT), ("responses", RESPONSES)])
async def test_a_picture_by_path_and_by_bytes_goes_inline(api: Api, part: Any, tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(PNG)
    text = {"type": "text" if api == "chat" else "input_text", "text": "Which is it?"}
    given = ["Which is it?", File.from_path(tmp_path / "cat.png"), File.from_bytes(PNG, name="b.png")]
    (body,) = await asked(api, given)
    message = body["messages" if api == "chat" else "input"][-1]
    assert message == {"role": "user", "content": [text, part, part]}


@pytest.mark.parametrize(
    ("api", "part"),
    [
        ("chat", {"type": "image_url", "image_url": {"url": URL, "detail": "low"}}),
        ("responses", {"type": "input_image", "image_url": URL, "detail": "low"}),
    ],
)
async def test_a_picture_at_a_url_is_the_providers_to_fetch(api: Api, part: Any) -> None:
    (body,) = await asked(api, File.from_url(URL, detail="low"))
    assert body["messages" if api == "chat" else "input"][-1]["content"] == [part]


async def test_pdf_audio_and_text_have_forms_of_their_own() -> None:
    given = [
        File.from_bytes(PDF, name="a.pdf"),
        File.from_bytes(WAV, name="a.wav"),
        File.from_bytes("Grüezi".encode(), name="a.txt"),
    ]
    (chat,) = await asked("chat", given)
    (responses,) = await asked("responses", [given[0], given[2], File.from_url("https://example.com/b.pdf")])
    text = '<file name="a.txt" type="text/plain">\nGrüezi\n</file>'
    assert chat["messages"][-1]["content"] == [
        {"type": "file", "file": {"filename": "a.pdf", "file_data": data_url("application/pdf", PDF)}},
        {"type": "input_audio", "input_audio": {"data": base64.b64encode(WAV).decode(), "format": "wav"}},
        {"type": "text", "text": text},
    ]
    assert responses["input"][-1]["content"] == [
        {"type": "input_file", "filename": "a.pdf", "file_data": data_url("application/pdf", PDF)},
        {"type": "input_text", "text": text},
        {"type": "input_file", "file_url": "https://example.com/b.pdf"},
    ]


CALLS = Reply(
    calls=(Call(id="c1", name="photo", arguments=("{}",)), Call(id="c2", name="photo", arguments=("{}",)))
)


async def test_files_of_tools_follow_the_results_of_chat_completions() -> None:
    _, body = await asked("chat", "Look!", CALLS, Reply(text=("ok",)))
    *_, first, second, behind = body["messages"]
    assert [first["role"], second["role"], behind["role"]] == ["tool", "tool", "user"]
    assert first["content"] == "At night.\n[photo.png (image/png, 33 bytes) follows]"
    assert behind["content"] == [
        {"type": "text", "text": "Files of tool call c1:"},
        CHAT,
        {"type": "text", "text": "Files of tool call c2:"},
        CHAT,
    ]


async def test_files_of_tools_are_part_of_their_results_in_the_responses_api() -> None:
    _, body = await asked("responses", "Look!", CALLS, Reply(text=("ok",)))
    assert body["input"][-1] == {
        "type": "function_call_output",
        "call_id": "c2",
        "output": [{"type": "input_text", "text": "At night."}, RESPONSES],
    }


async def test_a_url_that_chat_completions_do_not_take_ends_the_run_with_its_name() -> None:
    async with serve(Reply(text=("ok",))) as server:
        with pytest.raises(
            RunFailed, match=r"no URL of application/pdf: fetch the file \(https://example.com/b.pdf"
        ):
            await run(server, "chat", File.from_url("https://example.com/b.pdf"))
        assert server.requests == []


@pytest.mark.parametrize(
    ("name", "model", "data", "file"),
    [
        ("openai", "gpt-3.5-turbo", PNG, "a.png"),
        ("openai", "gpt-4o", WAV, "a.wav"),
        ("openai-responses", "gpt-4o-audio-preview", WAV, "a.wav"),
        ("openai", "o3-mini", PDF, "a.pdf"),
    ],
)
async def test_a_model_of_openai_that_takes_no_such_files_is_refused_before_the_first_event(
    name: str, model: str, data: bytes, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    agent = Agent("seer", model=f"{name}:{model}")
    async with Runtime.open("memory://") as rt:
        with pytest.raises(ConfigError, match=f"the model '{name}:{model}' does not take .*: {file}"):
            await rt.start(agent, File.from_bytes(data, name=file))
        assert not [run async for run in _runs(rt)]


async def _runs(rt: Runtime) -> Any:
    from foldlog.eventlog.ports import Shard

    for shard in range(rt.log.events.shards):
        async for stored in rt.log.events.read(Shard(shard)):
            yield stored


def test_a_picture_takes_what_the_provider_says() -> None:
    file = FilePart(media_type="image/png", artifact=hashlib.sha256(PNG).hexdigest(), bytes=len(PNG))
    low = FilePart(media_type="image/png", artifact=file.artifact, bytes=len(PNG), detail="low")
    assert openai_tokens("gpt-4o", file, PNG) == 765
    assert openai_tokens("gpt-4o", low, PNG) == 85
    assert openai_tokens("gpt-4.1-mini", file, PNG) == 1659
    assert openai_tokens("mine", file, PNG) is None
    assert anthropic_tokens(file, PNG) == 1399
    assert google_tokens("gemini-2.5-pro", file, PNG) == 1032
    assert google_tokens("gemini-3-pro", file, PNG) == 1120
    assert (
        google_tokens(
            "gemini-2.5-pro",
            FilePart(media_type="application/pdf"),
            b"%PDF-1 /Type /Page /Type /Pages /Type/Page",
        )
        == 516
    )


def _jpeg(width: int, height: int) -> bytes:
    frame = b"\xff\xc0\0\x11\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return b"\xff\xd8\xff\xe0\0\x04\0\0" + frame + bytes(9)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (PNG, (1024, 1024)),
        (_jpeg(640, 480), (640, 480)),
        (b"GIF89a" + (3).to_bytes(2, "little") + (4).to_bytes(2, "little"), (3, 4)),
        (b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\x09\0\0\x13\0\0", (10, 20)),
        (PNG[:18], None),
        (b"%PDF-", None),
    ],
)
def test_the_size_of_a_picture_is_in_its_header(data: bytes, size: tuple[int, int] | None) -> None:
    assert image_size(data) == size
