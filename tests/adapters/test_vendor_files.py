"""Files for other vendors' models: refused by name where they are known not to be taken, counted by published rules."""

from typing import Any

import msgspec
import pytest
from foldlog import Agent, Registry, Runtime, tool
from foldlog.adapters.models.images import google_tokens
from foldlog.adapters.models.vendors import VendorProvider
from foldlog.eventlog import ConfigError, FilePart, RunFailed
from foldlog.projections.tokens import IMAGE_TOKENS_MAX, file_tokens
from foldlog.runtime import File

from tests.fakes.anthropic_server import AnthropicServer
from tests.fakes.mcp_server import PDF, WAV
from tests.fakes.openai_server import Call, Reply, serve

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (1024).to_bytes(4, "big") * 2 + bytes(9)


@pytest.mark.parametrize(
    ("vendor", "model", "taken", "refused"),
    [
        (
            "anthropic",
            "claude-sonnet-5",
            ["image/png", "application/pdf", "text/csv"],
            ["audio/wav", "image/heic"],
        ),
        ("anthropic", "claude-2.1", ["text/plain"], ["image/png", "application/pdf"]),
        (
            "google",
            "gemini-3-pro",
            ["image/heic", "audio/mpeg", "video/mp4"],
            ["image/gif", "application/zip"],
        ),
        (
            "bedrock",
            "us.anthropic.claude-sonnet-4",
            ["image/png", "application/pdf", DOCX, "text/csv"],
            ["audio/wav", "image/heic", "application/zip", "application/octet-stream"],
        ),
        ("bedrock", "amazon.nova-micro-v1:0", ["application/pdf"], ["image/png", "video/mp4"]),
        ("mistral", "mistral-large-latest", ["image/png", "application/pdf"], ["audio/wav"]),
        ("mistral", "codestral-latest", ["application/json"], ["image/png"]),
        ("groq", "meta-llama/llama-4-scout", ["image/png"], ["application/pdf"]),
        ("groq", "llama-3.3-70b-versatile", [], ["image/png"]),
        ("cohere", "command-a-vision-07-2025", ["text/plain"], ["image/png", "application/pdf"]),
        ("cohere", "command-r-plus", [], ["image/png"]),
        ("xai", "grok-4", ["image/jpeg"], ["audio/wav"]),
        ("xai", "grok-3", [], ["image/jpeg"]),
        ("openrouter", "anybody/anything", ["image/png", "audio/wav"], []),
        ("ollama", "llava", ["image/png"], []),
    ],
)
def test_a_vendor_is_known_to_take_some_types_and_not_others(
    vendor: str, model: str, taken: list[str], refused: list[str]
) -> None:
    provider = VendorProvider(vendor)
    assert {kind: provider.refuses(model, kind) for kind in taken} == dict.fromkeys(taken, False)
    assert {kind: provider.refuses(model, kind) for kind in refused} == dict.fromkeys(refused, True)


@pytest.mark.parametrize(
    ("model", "file"),
    [
        ("anthropic:claude-sonnet-5", File.from_bytes(WAV, name="a.wav")),
        ("groq:llama-3.3-70b-versatile", File.from_bytes(PNG, name="a.png")),
        ("xai:grok-3", File.from_bytes(PDF, name="a.pdf")),
    ],
)
async def test_a_run_with_such_a_file_is_refused_by_name_before_its_first_event(
    model: str, file: Any
) -> None:
    agent = Agent("seer", model=model)
    async with Runtime.open("memory://", registry=Registry(agents=[agent])) as rt:
        with pytest.raises(ConfigError, match=f"the model '{model}' does not take .*: a[.]"):
            await rt.start(agent, ["What is it?", file])
        assert [run async for run in rt.list_runs()] == []


def picture() -> FilePart:
    return FilePart(media_type="image/png", artifact="a" * 64, bytes=len(PNG))


@pytest.mark.parametrize(
    ("vendor", "model", "tokens"),
    [
        ("anthropic", "claude-sonnet-5", 1399),
        ("bedrock", "eu.anthropic.claude-sonnet-4", 1399),
        ("openrouter", "anthropic/claude-sonnet-5", 1399),
        ("google", "gemini-2.5-pro", 1032),
        ("google", "gemini-3-pro", 1120),
        ("openrouter", "google/gemini-2.5-pro", 1032),
        ("azure", "gpt-4o", 765),
        ("mistral", "pixtral-12b", None),
    ],
)
def test_a_picture_takes_what_the_maker_of_the_model_says(
    vendor: str, model: str, tokens: int | None
) -> None:
    assert VendorProvider(vendor).file_tokens(model, picture(), PNG) == tokens


@pytest.mark.parametrize("vendor", ["anthropic", "google", "azure"])
def test_a_picture_without_a_size_is_counted_by_its_bytes(vendor: str) -> None:
    model = {"anthropic": "claude-sonnet-5", "google": "gemini-2.5-pro", "azure": "gpt-4o"}[vendor]
    assert VendorProvider(vendor).file_tokens(model, picture(), PNG[:16] + bytes(17)) is None


def test_a_second_of_sound_takes_thirty_two_tokens_of_gemini() -> None:
    wav = (
        b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0" + (8000).to_bytes(4, "little") * 2 + bytes(80_000 - 32)
    )
    sound = FilePart(media_type="audio/wav", artifact="a" * 64, bytes=len(wav))
    assert google_tokens("gemini-3-pro", sound, wav) == 320
    mp3 = FilePart(media_type="audio/mpeg", artifact="a" * 64, bytes=160_000)
    assert google_tokens("gemini-3-pro", mp3, bytes(160_000)) == 320


def test_a_large_picture_for_an_unknown_model_does_not_fill_its_window() -> None:
    large = FilePart(media_type="image/png", artifact="a" * 64, bytes=1_000_000)
    assert file_tokens(large) == IMAGE_TOKENS_MAX
    assert file_tokens(FilePart(media_type="image/png", artifact="a" * 64, bytes=400)) == 100
    assert file_tokens(FilePart(media_type="application/pdf", artifact="a" * 64, bytes=1_000_000)) == 250_000


def png(width: int, size_bytes: int) -> bytes:
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4, "big") + (10).to_bytes(4, "big")
    return head + bytes(size_bytes - len(head))


MIB = 1024 * 1024
CLAUDE_3, CLAUDE_4 = (
    "anthropic.claude-3-5-sonnet-20241022-v2:0",
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
)


@pytest.mark.parametrize(
    ("vendor", "model", "media_type", "taken_bytes"),
    [
        ("anthropic", "claude-sonnet-5", "image/png", 5 * MIB),
        ("bedrock", CLAUDE_4, "image/png", 3_932_160),
        ("bedrock", CLAUDE_3, "application/pdf", 4_718_592),
        ("bedrock", CLAUDE_4, DOCX, 4_718_592),
    ],
)
def test_a_file_over_the_limit_of_a_vendor_is_refused_with_both_numbers(
    vendor: str, model: str, media_type: str, taken_bytes: int
) -> None:
    provider = VendorProvider(vendor)
    part = FilePart(media_type=media_type, name="big", artifact="a", bytes=taken_bytes)
    assert provider.file_problem(model, part, None) is None
    why = provider.file_problem(model, msgspec.structs.replace(part, bytes=taken_bytes + 1), None)
    assert why is not None
    assert f"{taken_bytes + 1:,} bytes, more than the {taken_bytes:,} that {vendor} takes of one" in why


def files_of_type(media_type: str, count: int) -> list[FilePart]:
    return [
        FilePart(media_type=media_type, name=f"{number}", artifact=f"{number}", bytes=100)
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("vendor", "model"), [("anthropic", "claude-sonnet-5"), ("bedrock", CLAUDE_4), ("bedrock", CLAUDE_3)]
)
def test_more_than_twenty_pictures_for_claude_must_be_small(vendor: str, model: str) -> None:
    provider = VendorProvider(vendor)
    turns = [files_of_type("image/png", 20), files_of_type("image/png", 1)]
    small, large = {"0": png(2000, 100)}, {"0": png(2000, 100), "19": png(2001, 100)}
    assert provider.files_problem(model, turns[:1], large) is None
    assert provider.files_problem(model, turns, small) is None
    why = provider.files_problem(model, turns, large)
    assert why is not None
    assert "with 21 pictures in a request none may have more than 2,000 pixels on a side" in why
    assert "19 (image/png" in why
    assert "has 2,001 x 10" in why
    assert VendorProvider("google").files_problem("gemini-3-pro", turns, large) is None


def test_a_message_of_bedrock_has_at_most_five_documents_and_twenty_pictures() -> None:
    provider, nova = VendorProvider("bedrock"), "amazon.nova-pro-v1:0"
    full = [*files_of_type("application/pdf", 5), *files_of_type("image/png", 20)]
    text = files_of_type("text/csv", 3)  # goes as text
    for model in (CLAUDE_4, nova, "meta.llama4-maverick-17b-instruct-v1:0"):
        assert provider.files_problem(model, [[*full, *text], [], full[:5]], {}) is None
        why = provider.files_problem(model, [[], [*full, *files_of_type(DOCX, 1)]], {})
        assert why == "a message has 6 documents, and bedrock takes at most 5 in one"
    more = [files_of_type("image/png", 21)]
    assert provider.files_problem(CLAUDE_4, more, {}) == (
        "a message has 21 pictures, and bedrock takes at most 20 in one"
    )
    assert provider.files_problem(nova, more, {}) is None
    assert VendorProvider("anthropic").files_problem("claude-sonnet-5", [full, full[:4]], {}) is None


@pytest.mark.parametrize(
    ("vendor", "model", "media_type"),
    [
        ("anthropic", "claude-sonnet-5", "application/pdf"),
        ("bedrock", CLAUDE_4, "application/pdf"),
        ("bedrock", "amazon.nova-pro-v1:0", "application/pdf"),
        ("bedrock", "amazon.nova-pro-v1:0", DOCX),
        ("bedrock", "amazon.nova-pro-v1:0", "image/png"),
        ("google", "gemini-3-pro", "image/png"),
    ],
)
def test_a_file_without_a_published_limit_of_its_own_is_left_to_the_vendor(
    vendor: str, model: str, media_type: str
) -> None:
    part = FilePart(media_type=media_type, name="big", artifact="a", bytes=19 * MIB)
    assert VendorProvider(vendor).file_problem(model, part, None) is None


async def test_a_picture_that_is_too_large_for_claude_is_refused_before_its_run_and_within_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @tool(effect="pure")
    def photo() -> File:
        """Take a photo."""
        return File.from_bytes(png(8001, 100), name="wide.png")

    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-verysecret")
    agent = Agent("seer", model="anthropic:claude-sonnet-5", tools=[photo])
    call = Reply(calls=(Call(id="c1", name="photo", arguments=("{}",)),))
    async with serve(call, kind=AnthropicServer) as server:
        provider = VendorProvider("anthropic", base_url=server.url.removesuffix("/v1"))
        registry = Registry(agents=[agent], providers={"anthropic": provider})
        async with Runtime.open("memory://", registry=registry) as rt:
            for data, told in (
                (png(10, 5 * MIB + 1), "big.png .*: it has 5,242,881 bytes, more than the 5,242,880"),
                (png(8001, 100), "big.png .*: it has 8,001 x 10 pixels, and anthropic takes at most 8,000"),
            ):
                given = ["What is it?", File.from_bytes(data, name="big.png")]
                with pytest.raises(ConfigError, match=f"'anthropic:claude-sonnet-5' does not take {told}"):
                    await rt.start(agent, given)
            assert await rt.list_runs() == []
            assert server.requests == []
            with pytest.raises(
                RunFailed, match=r"does not take wide.png .*: it has 8,001 x 10 pixels"
            ) as failed:
                await rt.run(agent, "Take one.")
        await provider.aclose()
    assert failed.value.error_type == "invalid_request"
    assert len(server.requests) == 1


async def test_too_many_pictures_are_refused_before_the_run_and_within_one_before_they_are_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @tool(effect="pure")
    def photos(count: int) -> list[File]:
        """Take photos, the first of them wide."""
        wide = File.from_bytes(png(2001, 100), name="wide.png")
        return [wide, *(File.from_bytes(png(20, 100 + each), name="small.png") for each in range(count - 1))]

    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-verysecret")
    agent = Agent("seer", model="anthropic:claude-sonnet-5", tools=[photos])
    taking = Reply(calls=(Call(id="c1", name="photos", arguments=('{"count": 20}',)),))
    more = Reply(calls=(Call(id="c2", name="photos", arguments=('{"count": 1}',)),))
    told = "does not take so many files: with 21 pictures in a request none may .* and wide.png .* has 2,001 x 10"
    async with serve(taking, more, kind=AnthropicServer) as server:
        provider = VendorProvider("anthropic", base_url=server.url.removesuffix("/v1"))
        registry = Registry(agents=[agent], providers={"anthropic": provider})
        async with Runtime.open("memory://", registry=registry) as rt:
            with pytest.raises(ConfigError, match=told):
                await rt.start(agent, ["Look.", *photos(21)])
            assert await rt.list_runs() == []
            with pytest.raises(RunFailed, match=told) as failed:
                await rt.run(agent, "Take some.")
        await provider.aclose()
    assert failed.value.error_type == "invalid_request"
    assert len(server.requests) == 2
