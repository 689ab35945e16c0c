"""The OpenAI adapter through the real SDK, against a real HTTP server on loopback."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from foldlog.adapters.models import Api, HttpOptions, OpenAIProvider, responses_provider
from foldlog.eventlog.errors import ConfigError
from foldlog.eventlog.events import TokenUsage, ToolSchema
from foldlog.projections.messages import CallRequest, Message
from foldlog.runtime.ports.models import (
    AuthenticationFailed,
    CallDelta,
    ContextOverflow,
    Delta,
    Finished,
    InvalidRequest,
    ModelError,
    ModelRequest,
    ModelSettings,
    QuotaExceeded,
    RateLimited,
    ReasoningDelta,
    TextDelta,
    TransientModelError,
)

from ..fakes.openai_server import Call, OpenAIServer, Reply, serve

KEY = "sk-verysecret0123456789"
SEARCH = ToolSchema(
    name="search",
    description="Looks it up.",
    parameters={"type": "object", "properties": {"q": {"type": "string"}}},
)
QUESTION = (Message(role="system", content="Be brief."), Message(role="user", content="Who?"))
USAGE = TokenUsage(
    input_tokens=11, output_tokens=7, total_tokens=18, cached_input_tokens=4, reasoning_tokens=3
)

both_apis = pytest.mark.parametrize("api", ["chat", "responses"])


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_CUSTOM_HEADERS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@asynccontextmanager
async def served(
    *replies: Reply, api: Api = "chat", options: HttpOptions | None = None
) -> AsyncIterator[tuple[OpenAIServer, OpenAIProvider]]:
    async with serve(*replies) as server:
        provider = OpenAIProvider(api=api, base_url=server.url, options=options)
        yield server, provider
        await provider.aclose()


def request(**fields: Any) -> ModelRequest:
    return ModelRequest(**({"model": "gpt-x", "messages": QUESTION, "idempotency_key": "run1/3"} | fields))


async def answer(provider: OpenAIProvider, **fields: Any) -> list[Delta]:
    return [delta async for delta in provider.stream(request(**fields))]


async def failure(provider: OpenAIProvider, **fields: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await answer(provider, **fields)
    return caught.value


async def failure_with(reply: Reply, api: Api = "chat") -> ModelError:
    async with served(reply, api=api) as (_, provider):
        return await failure(provider)


def calls_of(deltas: Sequence[Delta]) -> dict[int, tuple[str, str, str]]:
    calls: dict[int, tuple[str, str, str]] = {}
    for delta in deltas:
        if isinstance(delta, CallDelta):
            call_id, name, arguments = calls.get(delta.index, ("", "", ""))
            calls[delta.index] = (call_id + delta.id, name + delta.name, arguments + delta.arguments)
    return calls


# --- answers ----------------------------------------------------------------------------------------------------------


@both_apis
async def test_text_comes_piece_by_piece_and_usage_comes_with_the_end(api: Api):
    async with served(Reply(text=("Hel", "lo")), api=api) as (_, provider):
        assert await answer(provider) == [
            TextDelta("Hel"),
            TextDelta("lo"),
            Finished(reason="stop", usage=USAGE, model="gpt-x-2026-01-01"),
        ]


@both_apis
async def test_reasoning_comes_apart_from_text(api: Api):
    async with served(Reply(reasoning=("Hm", "m."), text=("42",)), api=api) as (_, provider):
        deltas = await answer(provider)
    assert deltas[:-1] == [ReasoningDelta("Hm"), ReasoningDelta("m."), TextDelta("42")]


@both_apis
async def test_parallel_tool_calls_keep_their_numbers_ids_names_and_arguments(api: Api):
    calls = (
        Call(id="call_a", name="search", arguments=('{"q"', ': "a"}')),
        Call(id="call_b", name="search", arguments=('{"q": "b"}',)),
        Call(id="call_c", name="now", arguments=("{}",)),
    )
    async with served(Reply(calls=calls), api=api) as (_, provider):
        deltas = await answer(provider, tools=(SEARCH,))
    assert calls_of(deltas) == {
        0: ("call_a", "search", '{"q": "a"}'),
        1: ("call_b", "search", '{"q": "b"}'),
        2: ("call_c", "now", "{}"),
    }
    assert isinstance(deltas[-1], Finished)
    assert deltas[-1].reason == "tool_calls"


@both_apis
async def test_an_answer_without_usage_has_none(api: Api):
    async with served(Reply(text=("x",), usage=None), api=api) as (_, provider):
        assert (await answer(provider))[-1] == Finished(reason="stop", usage=None, model="gpt-x-2026-01-01")


@pytest.mark.parametrize(
    "counts", [{"prompt_tokens": "many"}, {"prompt_tokens": -5, "completion_tokens": 1}, 7]
)
async def test_usage_that_is_not_a_count_is_none(counts: Any):
    choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}
    events = ({"choices": [choice]}, {"choices": [], "usage": counts}, "data: [DONE]\n\n")
    async with served(Reply(events=events)) as (_, provider):
        assert (await answer(provider))[-1] == Finished(reason="stop", usage=None)


@pytest.mark.parametrize(("api", "word"), [("chat", "length"), ("responses", "max_output_tokens")])
async def test_an_answer_that_hit_its_limit_says_length(api: Api, word: str):
    async with served(Reply(text=("x",), finish=word), api=api) as (_, provider):
        last = (await answer(provider))[-1]
    assert isinstance(last, Finished)
    assert last.reason == "length"


@both_apis
async def test_calls_follow_each_other_on_one_connection(api: Api):
    async with served(Reply(text=("x",)), api=api) as (server, provider):
        for _ in range(3):
            await answer(provider)
        assert (len(server.requests), server.connections) == (3, 1)


async def test_a_provider_serves_calls_at_once_and_again_after_it_was_closed():
    async with served(Reply(text=("x",))) as (server, provider):
        assert len(await asyncio.gather(*(answer(provider) for _ in range(5)))) == 5
        await provider.aclose()
        await provider.aclose()
        await answer(provider)
        assert len(server.requests) == 6


def test_one_provider_serves_several_event_loops_one_after_the_other():
    provider = OpenAIProvider(base_url="")

    async def once() -> list[Delta]:
        async with serve(Reply(text=("x",))) as server:
            provider.endpoint = OpenAIProvider(base_url=server.url).endpoint
            try:
                return await answer(provider)
            finally:
                await provider.aclose()

    assert asyncio.run(once()) == asyncio.run(once())


def chat_chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


async def test_a_server_that_gives_its_calls_no_id_and_no_index_gets_distinct_stable_ids():
    piece = {"tool_calls": [{"function": {"name": "search", "arguments": "{}"}}]}
    reply = Reply(events=(chat_chunk(piece), chat_chunk(piece), chat_chunk({}, "stop")))
    async with served(reply) as (_, provider):
        first, second = await answer(provider), await answer(provider)
        other = await answer(provider, idempotency_key="run1/4")
    calls = calls_of(first)
    assert [call[1:] for call in calls.values()] == [("search", "{}"), ("search", "{}")]
    assert len({call[0] for call in calls.values()} | {call[0] for call in calls_of(other).values()}) == 4
    assert calls == calls_of(second)
    assert isinstance(first[-1], Finished)
    assert first[-1].reason == "tool_calls"


async def test_a_server_that_numbers_all_calls_zero_still_makes_two_calls():
    events = [
        chat_chunk(
            {"tool_calls": [{"index": 0, "id": f"c{n}", "function": {"name": "f", "arguments": str(n)}}]}
        )
        for n in (1, 2)
    ]
    async with served(Reply(events=(*events, chat_chunk({}, "tool_calls")))) as (_, provider):
        assert calls_of(await answer(provider)) == {0: ("c1", "f", "1"), 1: ("c2", "f", "2")}


async def test_arguments_that_come_as_an_object_are_arguments():
    whole = {"function": {"name": "search", "arguments": {"q": "Ü", "n": [1, None]}}, "id": "c1", "index": 0}
    begun = {"function": {"name": "search", "arguments": {}}, "id": "c2", "index": 1}
    rest = {"function": {"arguments": '{"q": "b"}'}, "index": 1}
    events = (
        *(chat_chunk({"tool_calls": [piece]}) for piece in (whole, begun, rest)),
        chat_chunk({}, "stop"),
    )
    async with served(Reply(events=events)) as (_, provider):
        calls = calls_of(await answer(provider))
    assert calls == {0: ("c1", "search", '{"q": "Ü", "n": [1, null]}'), 1: ("c2", "search", '{"q": "b"}')}


async def test_arguments_that_come_as_an_object_are_arguments_of_a_responses_call_too():
    item = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": {"q": "a"}}
    events = (
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"status": "completed", "model": "m", "output": [item]}},
    )
    async with served(Reply(events=events), api="responses") as (_, provider):
        assert calls_of(await answer(provider)) == {0: ("c1", "f", '{"q": "a"}')}


async def test_reasoning_is_understood_under_both_names_and_a_refusal_is_text():
    events = (chat_chunk({"reasoning": "Hm"}), chat_chunk({"refusal": "No."}), chat_chunk({}, "stop"))
    async with served(Reply(events=events)) as (_, provider):
        assert (await answer(provider))[:-1] == [ReasoningDelta("Hm"), TextDelta("No.")]


async def test_a_responses_call_that_comes_only_as_a_whole_is_not_lost():
    item = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    events = (
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"status": "completed", "model": "m", "output": [item]}},
    )
    async with served(Reply(events=events), api="responses") as (_, provider):
        deltas = await answer(provider)
    assert deltas == [
        CallDelta(index=0, id="c1", name="f", arguments="{}"),
        Finished(reason="tool_calls", model="m"),
    ]


async def test_parts_of_a_reasoning_summary_are_paragraphs():
    def part(index: int) -> tuple[dict[str, Any], dict[str, Any]]:
        place = {"output_index": 0, "summary_index": index}
        return (
            {"type": "response.reasoning_summary_part.added", **place},
            {"type": "response.reasoning_summary_text.delta", "delta": str(index), **place},
        )

    end = {"type": "response.completed", "response": {"status": "completed", "output": []}}
    async with served(Reply(events=(*part(0), *part(1), end)), api="responses") as (_, provider):
        deltas = (await answer(provider))[:-1]
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == "0\n\n1"


# --- requests ---------------------------------------------------------------------------------------------------------

HISTORY = (
    *QUESTION,
    Message(
        role="assistant",
        content="I look.",
        tool_calls=(
            CallRequest(id="c1", name="search", arguments='{"q": "a"}'),
            CallRequest(id="c2", name="now", arguments=""),
        ),
    ),
    Message(role="tool", content="found", tool_call_id="c1"),
    Message(role="tool", content="noon", tool_call_id="c2"),
    Message(role="assistant", content="Then."),
)
FULL = {
    "messages": HISTORY,
    "tools": (SEARCH,),
    "output_schema": {"type": "object"},
    "settings": ModelSettings(
        temperature=0.5,
        top_p=0.9,
        max_tokens=100,
        parallel_tool_calls=False,
        tool_choice="search",
        reasoning="low",
        verbosity="high",
        service_tier="flex",
        headers={"X-Case": "${CASE}"},
        extra_body={"seen": {"by": "us"}},
    ),
}


async def test_a_chat_request_says_all_that_the_neutral_request_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CASE", "7")
    async with served(Reply(text=("x",))) as (server, provider):
        await answer(provider, **FULL)
    (sent,) = server.requests
    assert (sent.path, sent.headers["x-case"]) == ("/v1/chat/completions", "7")
    assert sent.body == {
        "model": "gpt-x",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Who?"},
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "search", "arguments": '{"q": "a"}'},
                    },
                    {"id": "c2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "found"},
            {"role": "tool", "tool_call_id": "c2", "content": "noon"},
            {"role": "assistant", "content": "Then."},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "search",
                    "description": "Looks it up.",
                    "parameters": SEARCH.parameters,
                },
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "search"}},
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "output", "schema": {"type": "object"}, "strict": False},
        },
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 100,
        "parallel_tool_calls": False,
        "reasoning_effort": "low",
        "verbosity": "high",
        "service_tier": "flex",
        "seen": {"by": "us"},
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_a_responses_request_says_all_that_the_neutral_request_says_and_stores_nothing(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("CASE", "7")
    async with served(Reply(text=("x",)), api="responses") as (server, provider):
        await answer(provider, **FULL)
    (sent,) = server.requests
    assert sent.path == "/v1/responses"
    assert sent.body == {
        "model": "gpt-x",
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Who?"},
            {"role": "assistant", "content": "I look."},
            {"type": "function_call", "call_id": "c1", "name": "search", "arguments": '{"q": "a"}'},
            {"type": "function_call", "call_id": "c2", "name": "now", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "found"},
            {"type": "function_call_output", "call_id": "c2", "output": "noon"},
            {"role": "assistant", "content": "Then."},
        ],
        "tools": [
            {
                "type": "function",
                "name": "search",
                "description": "Looks it up.",
                "parameters": SEARCH.parameters,
                "strict": False,
            }
        ],
        "tool_choice": {"type": "function", "name": "search"},
        "text": {
            "format": {
                "type": "json_schema",
                "name": "output",
                "schema": {"type": "object"},
                "strict": False,
            },
            "verbosity": "high",
        },
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low"},
        "parallel_tool_calls": False,
        "service_tier": "flex",
        "seen": {"by": "us"},
        "top_p": 0.9,
        "temperature": 0.5,
        "max_output_tokens": 100,
        "store": False,
        "stream": True,
    }


@both_apis
async def test_every_attempt_carries_the_same_idempotency_key(api: Api):
    async with served(Reply(text=("x",)), api=api) as (server, provider):
        await answer(provider, attempt=1)
        await answer(provider, attempt=2)
    assert [sent.headers["idempotency-key"] for sent in server.requests] == ["run1/3", "run1/3"]
    assert server.requests[0].body == server.requests[1].body


@pytest.mark.parametrize(
    ("url", "parameter"),
    [
        (None, "max_completion_tokens"),
        ("https://eu.api.openai.com/v1", "max_completion_tokens"),
        ("https://me.openai.azure.com/openai/v1", "max_completion_tokens"),
        ("https://api.groq.com/openai/v1", "max_tokens"),
        ("https://notopenai.com/v1", "max_tokens"),
    ],
)
def test_the_limit_of_the_output_has_the_name_that_the_server_knows(url: str | None, parameter: str):
    assert OpenAIProvider(base_url=url).endpoint.max_tokens_parameter == parameter
    chosen = HttpOptions(max_tokens_parameter="max_completion_tokens")
    assert (
        OpenAIProvider(base_url=url, options=chosen).endpoint.max_tokens_parameter == "max_completion_tokens"
    )


@both_apis
async def test_options_add_headers_and_body_and_fill_in_variables(monkeypatch: pytest.MonkeyPatch, api: Api):
    monkeypatch.setenv("TEAM", "blue")
    options = HttpOptions(headers={"X-Team": "${TEAM}-1"}, extra_body={"seed": 5}, usage_in_stream=False)
    async with served(Reply(text=("x",)), api=api, options=options) as (server, provider):
        await answer(provider)
    assert server.requests[0].headers["x-team"] == "blue-1"
    assert server.requests[0].body["seed"] == 5
    assert "stream_options" not in server.requests[0].body


async def test_the_ambient_openai_settings_reach_openais_customer_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Gateway: token")
    monkeypatch.setenv("OTHER_KEY", "other")
    ambient = ("openai-organization", "openai-project", "x-gateway")
    async with served(Reply(text=("x",))) as (server, mine):
        other = OpenAIProvider(name="other", base_url=server.url, api_key_env="OTHER_KEY")
        await answer(mine)
        await answer(other)
        await other.aclose()
    assert [server.requests[0].headers.get(name) for name in ambient] == ["org-1", "proj-1", "token"]
    assert [server.requests[1].headers.get(name) for name in ambient] == [None, None, None]
    assert [sent.headers["authorization"] for sent in server.requests] == [f"Bearer {KEY}", "Bearer other"]


# --- refusals ---------------------------------------------------------------------------------------------------------

OVERFLOW = {"message": "too long", "type": "invalid_request_error", "code": "context_length_exceeded"}


@both_apis
@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (400, {"message": "bad"}, InvalidRequest),
        (400, OVERFLOW, ContextOverflow),
        (400, {"message": "This model's maximum context length is 8192 tokens."}, ContextOverflow),
        (400, {"message": "the request exceeds the available context size", "code": 400}, ContextOverflow),
        (413, {"message": "prompt is too long: 9 tokens > 8 maximum"}, ContextOverflow),
        (422, {"message": "`inputs` tokens + `max_new_tokens` must be <= 4096"}, ContextOverflow),
        (401, {"message": "who are you"}, AuthenticationFailed),
        (402, {"message": "Insufficient Balance"}, QuotaExceeded),
        (403, {"message": "not allowed"}, AuthenticationFailed),
        (404, {"message": "no such model", "code": "model_not_found"}, InvalidRequest),
        (413, {"message": "large"}, InvalidRequest),
        (422, {"message": "unprocessable"}, InvalidRequest),
        (408, {"message": "time-out"}, TransientModelError),
        (409, {"message": "conflict"}, TransientModelError),
        (429, {"message": "slow down", "code": "rate_limit_exceeded"}, RateLimited),
        (429, {"message": "pay", "type": "insufficient_quota", "code": "insufficient_quota"}, QuotaExceeded),
        (500, {"message": "oops"}, TransientModelError),
        (503, {"message": "busy"}, TransientModelError),
        (529, {"message": "overloaded"}, TransientModelError),
    ],
)
async def test_a_refused_request_is_an_error_of_its_kind(
    api: Api, status: int, error: dict[str, Any], expected: type[ModelError]
):
    found = await failure_with(Reply(status=status, body={"error": error}), api)
    assert type(found) is expected
    assert str(found) == f"openai:gpt-x: HTTP {status}: {error['message']}"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<html>Bad\n Gateway</html>", "<html>Bad Gateway</html>"),
        ({"error": "just text"}, "just text"),
        ([{"error": {"message": "in a list", "status": "UNAVAILABLE"}}], "in a list"),
        ({"message": "without an envelope"}, "without an envelope"),
        ({"detail": "elsewhere"}, '{"detail": "elsewhere"}'),
        ("x" * 10_000, "x" * 500 + "..."),
    ],
)
async def test_an_error_body_of_any_shape_is_quoted_briefly(body: Any, text: str):
    assert str(await failure_with(Reply(status=502, body=body))) == f"openai:gpt-x: HTTP 502: {text}"


async def test_an_empty_error_body_leaves_the_status():
    assert str(await failure_with(Reply(status=502, body=""))) == "openai:gpt-x: HTTP 502"


DATE = {"Date": "Wed, 21 Oct 2026 07:28:00 GMT"}


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("headers", "message", "expected_s"),
    [
        ({"Retry-After": "20"}, "", 20.0),
        ({"Retry-After": "1.5"}, "", 1.5),
        ({"Retry-After-Ms": "250", "Retry-After": "20"}, "", 0.25),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT", **DATE}, "", 30.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:27:00 GMT", **DATE}, "", 0.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, "", 0.0),
        ({"Retry-After": "soon"}, "", None),
        ({"Retry-After": "inf"}, "", None),
        ({"Retry-After": "-5"}, "", 0.0),
        ({}, "Please try again in 1.5s.", 1.5),
        ({}, "Please try again in 350ms.", 0.35),
        ({}, "Please try again in 2m3s.", 123.0),
        ({}, "Please try again in 7m54.336s. Visit us", 474.336),
        ({}, "Please try again in 1h2m.", 3720.0),
        ({}, "Please try again in 1d 6h", 108_000.0),
        ({}, "Please retry after 20 seconds.", 20.0),
        ({}, "Please retry in 34.07s.", 34.07),
        ({}, "Please try again in 2 months.", None),
        ({"Retry-After": "20s"}, "", 20.0),
        ({"Retry-After": "Wed Oct 21 07:28:30 2026", **DATE}, "", 30.0),
        ({"Retry-After": "Wednesday, 21-Oct-26 07:28:30 GMT", **DATE}, "", 30.0),
        ({"Retry-After": "Wed, 21 Oct 99999 07:28:30 GMT", **DATE}, "", None),
        ({}, "Please try again later.", None),
    ],
)
async def test_the_delay_that_a_server_asks_for_comes_with_the_error(
    status: int, headers: dict[str, str], message: str, expected_s: float | None
):
    found = await failure_with(Reply(status=status, headers=headers, body={"error": {"message": message}}))
    assert found.retry_after_s == pytest.approx(expected_s)


@pytest.mark.parametrize(
    ("details", "expected_s"), [([{}, {"retryDelay": "34s"}], 34.0), ([7], None), (7, None)]
)
async def test_the_delay_may_stand_in_the_details_of_an_error(details: Any, expected_s: float | None):
    body = [{"error": {"code": 429, "message": "Quota exceeded.", "details": details}}]
    assert (await failure_with(Reply(status=429, body=body))).retry_after_s == expected_s


async def test_the_sdk_does_not_retry_by_itself():
    async with served(Reply(status=500, body={}), Reply(text=("x",))) as (server, provider):
        assert type(await failure(provider)) is TransientModelError
        assert len(server.requests) == 1


# --- faults in the stream ---------------------------------------------------------------------------------------------

IDLE_S = 2.0
LONG = Reply(text=("one ", "two ", "three"))


async def faulty(api: Api, **fault: Any) -> tuple[list[Delta], ModelError]:
    """Return the deltas before the failure, and the failure."""
    reply = Reply(text=LONG.text, fault_after=3, **fault)
    came: list[Delta] = []

    async def read(provider: OpenAIProvider) -> None:
        async for delta in provider.stream(request()):
            came.append(delta)  # noqa: PERF401 - what came before the error counts.

    options = HttpOptions(idle_timeout_s=IDLE_S) if reply.fault == "stall" else None
    async with served(reply, api=api, options=options) as (_, provider):
        with pytest.raises(ModelError) as caught:
            await read(provider)
    return came, caught.value


@both_apis
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("cut", "was lost"),
        ("end", "the stream ended before the answer was complete"),
        ("malformed", "the stream is malformed"),
        ("stall", "the server sent nothing for 2 s (idle_timeout_s of its provider)"),
    ],
)
async def test_a_stream_that_breaks_off_is_a_transient_failure_after_what_came(
    api: Api, fault: str, words: str
):
    came, found = await faulty(api, fault=fault)
    assert came == [TextDelta("one "), TextDelta("two ")]
    assert type(found) is TransientModelError
    assert str(found).startswith("openai:gpt-x: ")
    assert words in str(found)


@both_apis
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"message": "m", "code": "server_error"}, TransientModelError),
        ({"message": "m", "type": "overloaded_error"}, TransientModelError),
        ({"message": "m", "code": 502}, TransientModelError),
        ({"message": "m", "code": "rate_limit_exceeded"}, RateLimited),
        ({"message": "m", "code": 429}, RateLimited),
        ({"message": "m", "code": "insufficient_quota"}, QuotaExceeded),
        ({"message": "m", "code": "invalid_api_key"}, AuthenticationFailed),
        ({"message": "m", "type": "invalid_request_error"}, InvalidRequest),
        (OVERFLOW, ContextOverflow),
        ({"message": "This model's maximum context length is 8."}, ContextOverflow),
    ],
)
async def test_an_error_reported_within_the_stream_is_an_error_of_its_kind(
    api: Api, error: dict[str, Any], expected: type[ModelError]
):
    came, found = await faulty(api, fault="error", body={"error": error})
    assert came == [TextDelta("one "), TextDelta("two ")]
    assert type(found) is expected
    assert str(found) == f"openai:gpt-x: the server reports an error: {error['message']}"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("server_error", TransientModelError),
        ("rate_limit_exceeded", RateLimited),
        ("invalid_prompt", InvalidRequest),
        ("image_too_large", InvalidRequest),
        ("bio_policy", InvalidRequest),
        ("context_length_exceeded", ContextOverflow),
    ],
)
async def test_both_error_events_of_the_responses_api_are_errors_of_their_kind(
    code: str, expected: type[ModelError]
):
    error = {"code": code, "message": "m"}
    failed = {"type": "response.failed", "response": {"status": "failed", "error": error, "output": []}}
    for event in (failed, {"type": "error", **error}):
        assert type(await failure_with(Reply(events=(event,)), "responses")) is expected


async def test_an_answer_is_whole_once_its_end_was_said_even_if_the_usage_is_lost():
    whole = len(LONG.text) + 2
    for fault in ("cut", "malformed", "stall"):
        reply = Reply(text=LONG.text, fault=fault, fault_after=whole)
        async with served(reply, options=HttpOptions(idle_timeout_s=IDLE_S)) as (_, provider):
            last = (await answer(provider))[-1]
        assert last == Finished(reason="stop", usage=None, model="gpt-x-2026-01-01")


@pytest.mark.parametrize("data", ['{"choices": [{"delta": {"content": 5}}]}', "\udcff"])
async def test_a_chunk_of_the_wrong_type_is_a_transient_failure(data: str):
    events = (f"data: {data}\n\n".encode(errors="replace").decode(),)
    assert type(await failure_with(Reply(events=events))) is TransientModelError


@both_apis
async def test_a_page_instead_of_a_stream_names_the_base_url(api: Api):
    reply = Reply(headers={"Content-Type": "text/html"}, events=("<html>Welcome</html>",))
    async with served(reply, api=api) as (server, provider):
        found = await failure(provider)
    assert type(found) is InvalidRequest
    assert server.url in str(found)
    assert "text/html" in str(found)


async def test_a_server_that_is_not_there_is_a_transient_failure_that_names_its_address():
    async with serve() as server:
        pass
    provider = OpenAIProvider(base_url=server.url)
    found = await failure(provider)
    assert type(found) is TransientModelError
    assert f"cannot connect to {server.url}" in str(found)
    await provider.aclose()


async def test_text_that_no_request_can_carry_is_an_invalid_request():
    async with served(Reply(text=("x",))) as (_, provider):
        found = await failure(provider, messages=(Message(role="user", content="\ud800"),))
    assert type(found) is InvalidRequest


# --- going away -------------------------------------------------------------------------------------------------------


@both_apis
async def test_cancelling_the_reader_closes_the_connection(api: Api):
    reply = Reply(text=LONG.text, fault="stall", fault_after=3)
    async with served(reply, api=api) as (server, provider):
        seen = asyncio.Event()

        async def read() -> None:
            async for _ in provider.stream(request()):
                seen.set()

        reader = asyncio.create_task(read())
        await seen.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await server.disconnected.wait()
        assert server.connections == 1


@both_apis
async def test_cancelling_before_the_first_byte_closes_the_connection(api: Api):
    reply = Reply(fault="stall")
    async with served(reply, api=api) as (server, provider):
        reader = asyncio.create_task(answer(provider))
        await server.asked.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await server.disconnected.wait()
        assert len(server.requests) == 1


@both_apis
async def test_closing_the_iterator_closes_the_connection(api: Api):
    reply = Reply(text=LONG.text, fault="stall", fault_after=3)
    async with served(reply, api=api) as (server, provider):
        async with aclosing(provider.stream(request())) as deltas:
            assert await anext(deltas) == TextDelta("one ")
        await server.disconnected.wait()
        assert server.connections == 1


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_without_a_key_the_error_says_which_variable_to_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    provider = OpenAIProvider()
    with pytest.raises(ConfigError, match=r"openai:gpt-4o cannot be called: .* set .* OPENAI_API_KEY"):
        provider.check("gpt-4o")
    found = await failure(provider)
    assert type(found) is AuthenticationFailed
    assert "OPENAI_API_KEY" in str(found)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "[::1]"])
def test_a_server_on_this_machine_may_go_without_a_key(monkeypatch: pytest.MonkeyPatch, host: str):
    monkeypatch.delenv("OPENAI_API_KEY")
    provider = OpenAIProvider(base_url=f"http://{host}:8000/v1")
    provider.check("llama")
    assert provider.endpoint.secrets() == ()


async def test_the_base_url_comes_from_the_environment_as_everyone_else_reads_it(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.delenv("OPENAI_API_KEY")
    async with serve(Reply(text=("x",))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        for provider in (OpenAIProvider(), responses_provider()):
            provider.check("gpt-x")
            await answer(provider)
            await provider.aclose()
    assert [sent.path for sent in server.requests] == ["/v1/chat/completions", "/v1/responses"]


async def test_a_loopback_server_is_reached_past_a_proxy(monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with served(Reply(text=("x",))) as (server, provider):
        await answer(provider)
        assert len(server.requests) == 1


def test_a_base_url_that_is_none_is_refused():
    for url in ("localhost:8000", "ftp://example.com", "http://", "http://[bad/v1"):
        with pytest.raises(ConfigError, match="is not the base URL"):
            OpenAIProvider(base_url=url).check("m")


@pytest.mark.parametrize("key", ["sk-two words", "sk-ümlaut", "sk-line\nbreak"])
async def test_a_key_with_impossible_characters_is_refused_without_being_shown(
    monkeypatch: pytest.MonkeyPatch, key: str
):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ConfigError) as caught:
        OpenAIProvider().check("m")
    assert "OPENAI_API_KEY" in str(caught.value)
    assert key not in str(caught.value)


@both_apis
@pytest.mark.parametrize("fault", ["status", "stream", "cut"])
async def test_no_message_and_no_log_line_shows_the_key_or_a_secret_header(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, api: Api, fault: str
):
    monkeypatch.setenv("GATEWAY", "gateway-secret")
    caplog.set_level(logging.DEBUG)
    echo = {"error": {"message": f"Incorrect API key: {KEY}, sk-verys***6789, gateway-secret", "code": "x"}}
    reply = {
        "status": Reply(status=401, body=echo),
        "stream": Reply(fault="error", body=echo),
        "cut": Reply(fault="cut", fault_after=1),
    }[fault]
    async with served(reply, api=api, options=HttpOptions(headers={"X-Gw": "${GATEWAY}"})) as (
        server,
        provider,
    ):
        found = await failure(provider)
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert server.requests[0].headers["x-gw"] == "gateway-secret"
    told = f"{found!r} {found} {found.__cause__!r} {provider!r} {caplog.text}"
    assert "openai:gpt-x" in told
    for secret in (KEY, "verys", "gateway-secret"):
        assert secret not in told


# --- servers that do it their own way ---------------------------------------------------------------------------------


BROKEN_CALL = {
    "message": "Failed to call a function. Please adjust your prompt.",
    "type": "invalid_request_error",
    "code": "tool_use_failed",
    "failed_generation": '<function=search{"q": ',
}


@pytest.mark.parametrize("in_stream", [False, True])
async def test_a_broken_call_that_the_server_refuses_is_an_answer_that_says_so(in_stream: bool):
    body = {"error": BROKEN_CALL}
    reply = (
        Reply(text=("Hm.",), fault="error", fault_after=2, body=body)
        if in_stream
        else Reply(status=400, body=body)
    )
    async with served(reply) as (_, provider):
        *before, text, last = await answer(provider)
    assert before == [TextDelta("Hm.")] * in_stream
    assert text == TextDelta(
        '<function=search{"q": \n\n[Failed to call a function. Please adjust your prompt.]'
    )
    assert isinstance(last, Finished)
    assert last.reason == "malformed_call"


@pytest.mark.parametrize("fault", ["", "cut"])
async def test_a_stream_may_have_no_finish_reason_if_its_provider_says_so(fault: Any):
    chunks = (chat_chunk({"content": "whole"}), chat_chunk({}))
    reply = Reply(events=chunks, fault=fault, fault_after=1)
    async with served(reply, options=HttpOptions(finish_reason="optional")) as (_, provider):
        if fault:
            assert isinstance(await failure(provider), TransientModelError)
        else:
            assert [getattr(each, "reason", each) for each in await answer(provider)] == [
                TextDelta("whole"),
                "stop",
            ]
    async with served(reply) as (_, provider):
        assert isinstance(await failure(provider), TransientModelError)


async def test_an_empty_stream_is_not_an_answer_even_if_the_finish_reason_is_optional():
    options = HttpOptions(finish_reason="optional")
    async with served(Reply(events=(chat_chunk({}), "data: [DONE]\n\n")), options=options) as (_, provider):
        assert isinstance(await failure(provider), TransientModelError)


async def test_content_that_comes_as_a_list_of_parts_is_read():
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}
    parts = [thinking, {"type": "text", "text": "Hel"}, "lo"]
    events = (
        chat_chunk({"content": parts}),
        chat_chunk({"content": []}),
        chat_chunk({}, "stop"),
        "data: [DONE]\n\n",
    )
    async with served(Reply(events=events)) as (_, provider):
        assert (await answer(provider))[:-1] == [ReasoningDelta("Hm"), TextDelta("Hel"), TextDelta("lo")]
