"""Errors of the vendors that share pydantic-ai's model classes, over their real SDKs; and xAI, which speaks gRPC."""

import os
from pathlib import Path
from typing import Any

import pytest
from foldlog.adapters.models.vendors import VendorProvider
from foldlog.projections.messages import Message
from foldlog.runtime.ports.json_schema import for_provider
from foldlog.runtime.ports.models import (
    AuthenticationFailed,
    ContextOverflow,
    Delta,
    InvalidRequest,
    ModelError,
    ModelRequest,
    RateLimited,
    ReasoningDelta,
    TransientModelError,
)

from ..fakes.openai_server import Call, Reply
from ..fakes.xai_server import serve_xai, xai_chunks
from .wires import BESIDES, KEY, SEARCH, WIRES, calls_of, end_of, text_of

CHAT = ("groq", "mistral", "openrouter", "azure", "huggingface", "ollama", "cohere")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for wire in WIRES.values():
        monkeypatch.setenv(wire.variable, KEY)
    for name, value in BESIDES.items():
        monkeypatch.setenv(name, value)


async def failure(name: str, reply: Reply) -> ModelError:
    async with WIRES[name].served(reply) as (server, provider):
        with pytest.raises(ModelError) as caught:
            await WIRES[name].answer(provider)
        assert len(server.requests) == 1  # no SDK tried again by itself
    assert KEY not in str(caught.value)
    assert f"{name}:{WIRES[name].model}" in str(caught.value)
    return caught.value


def body_of(name: str, message: str, code: str = "") -> Any:
    return (
        {"message": message}
        if name == "cohere"
        else {"error": {"message": message, "code": code, "type": code}}
    )


@pytest.mark.parametrize("name", CHAT)
@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (401, "Incorrect API key provided", AuthenticationFailed),
        (403, "no access to this model", AuthenticationFailed),
        (400, "unknown field", InvalidRequest),
        (429, "slow down", RateLimited),
        (500, "sorry", TransientModelError),
        (503, "try later", TransientModelError),
        (529, "overloaded", TransientModelError),
    ],
)
async def test_an_error_says_what_may_be_done_about_it(
    name: str, status: int, message: str, expected: type[ModelError]
) -> None:
    error = await failure(
        name, Reply(status=status, body=body_of(name, message), headers={"retry-after": "7"})
    )
    assert type(error) is expected
    assert message in str(error)
    if status == 429:
        assert error.retry_after_s == 7


@pytest.mark.parametrize("name", CHAT)
async def test_a_request_that_is_too_long_says_how_much_fits(name: str) -> None:
    told = "This model's maximum context length is 131072 tokens. However, your messages resulted in 140000 tokens."
    error = await failure(name, Reply(status=400, body=body_of(name, told, "context_length_exceeded")))
    assert isinstance(error, ContextOverflow)
    assert (error.window_tokens, error.request_tokens) == (131_072, 140_000)


BEDROCK = [
    (403, "AccessDeniedException", "You don't have access to the model", AuthenticationFailed),
    (400, "ValidationException", "Malformed input request", InvalidRequest),
    (400, "ValidationException", "Input is too long for requested model.", ContextOverflow),
    (429, "ThrottlingException", "Too many tokens, please wait before trying again.", RateLimited),
    (500, "InternalServerException", "sorry", TransientModelError),
    (503, "ServiceUnavailableException", "Bedrock is unable to process your request.", TransientModelError),
]


@pytest.mark.parametrize(("status", "kind", "message", "expected"), BEDROCK)
async def test_an_error_of_bedrock_says_what_may_be_done_about_it(
    status: int, kind: str, message: str, expected: type[ModelError]
) -> None:
    headers = {"x-amzn-errortype": kind}
    error = await failure("bedrock", Reply(status=status, body={"message": message}, headers=headers))
    assert type(error) is expected
    assert message in str(error)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("throttlingException", RateLimited),
        ("modelStreamErrorException", TransientModelError),
        ("internalServerException", TransientModelError),
    ],
)
async def test_an_error_within_a_stream_of_bedrock_is_what_it_would_be_before(
    kind: str, expected: type[ModelError]
) -> None:
    first, second, *_ = WIRES["bedrock"].events("nova", Reply(text=("x", "y")))
    error = await failure("bedrock", Reply(events=(first, second, {kind: {"message": "Oh"}})))
    assert type(error) is expected


async def test_bedrock_without_a_region_or_credentials_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # it remembers the credentials of other tests
    with pytest.raises(
        AuthenticationFailed, match=r"bedrock:amazon.nova.* cannot be called: .*Set AWS_DEFAULT_REGION"
    ):
        await WIRES["bedrock"].answer(VendorProvider("bedrock"))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with pytest.raises(AuthenticationFailed, match="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        await WIRES["bedrock"].answer(VendorProvider("bedrock"))


@pytest.mark.parametrize("name", ["groq", "openrouter", "azure", "mistral"])
async def test_an_output_schema_is_strict_where_the_vendor_has_that(name: str) -> None:
    wire = WIRES[name]
    schema, _ = for_provider({"type": "array", "items": {"type": "integer"}})
    async with wire.served(Reply(text=('{"response": [1]}',))) as (server, provider):
        await wire.answer(provider, output_schema={"type": "array", "items": {"type": "integer"}}, tools=())
    asked = server.requests[0].body.get("response_format")
    if asked is not None and asked["type"] == "json_schema":
        assert asked["json_schema"]["strict"] is True
        assert asked["json_schema"]["schema"]["properties"].keys() == schema["properties"].keys()
    else:  # it is described in the prompt
        assert '"response"' in str(server.requests[0].body["messages"])


# --- xAI --------------------------------------------------------------------------------------------------------------

ANSWER = Reply(
    reasoning=("Let me", " see."),
    text=("Hel", "lo"),
    calls=(Call(id="call_a", name="search", arguments=('{"q": "ä🦆"}',)),),
)


async def ask_xai(url: str) -> list[Delta]:
    provider = VendorProvider("xai", base_url=url)
    asked = ModelRequest(model="grok-4", messages=(Message(role="user", content="Who?"),), tools=(SEARCH,))
    try:
        return [delta async for delta in provider.stream(asked)]
    finally:
        await provider.aclose()


async def test_an_answer_of_xai_arrives_whole_with_its_usage() -> None:
    async with serve_xai(ANSWER) as server:
        deltas = await ask_xai(server.url)
    assert text_of(deltas) == "Hello"
    assert "".join(each.text for each in deltas if isinstance(each, ReasoningDelta)) == "Let me see."
    assert calls_of(deltas) == [("call_a", "search", {"q": "ä🦆"})]
    end = end_of(deltas)
    assert end.usage is not None
    assert (end.reason, end.usage.input_tokens, end.usage.output_tokens) == ("tool_calls", 11, 7)
    assert [tool["function"]["name"] for tool in server.requests[0].body["tools"]] == ["search"]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, InvalidRequest),
        (401, AuthenticationFailed),
        (429, RateLimited),
        (503, TransientModelError),
    ],
)
async def test_an_error_of_xai_says_what_may_be_done_about_it(
    status: int, expected: type[ModelError]
) -> None:
    async with serve_xai(Reply(status=status, body="no, not now")) as server:
        with pytest.raises(expected, match="no, not now"):
            await ask_xai(server.url)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("metadata", "after_s"), [({"retry-after": "7"}, 7.0), ({"retry-after-ms": "250"}, 0.25), ({}, None)]
)
async def test_a_rate_limit_of_xai_says_how_long_to_wait(
    metadata: dict[str, str], after_s: float | None
) -> None:
    async with serve_xai(Reply(status=429, body="too many requests", headers=metadata)) as server:
        with pytest.raises(RateLimited) as limited:
            await ask_xai(server.url)
    assert limited.value.retry_after_s == after_s


async def test_an_answer_of_xai_that_is_cut_at_any_chunk_is_transient() -> None:
    count = len(list(xai_chunks("grok-4", ANSWER)))
    faults: list[Any] = ["cut", "end"]
    broken = [
        Reply(**vars(ANSWER) | {"fault": fault, "fault_after": n}) for n in range(count) for fault in faults
    ]
    async with serve_xai(*broken) as server:
        for _ in broken:
            with pytest.raises(TransientModelError):
                await ask_xai(server.url)


async def test_an_xai_server_that_is_not_there_is_transient() -> None:
    with pytest.raises(TransientModelError):
        await ask_xai("http://127.0.0.1:9")
