"""The behaviour on every wire: whole answers, cut ones, odd servers, through the real SDKs."""

import asyncio
import base64
import json
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from foldlog import Agent, Registry, Runtime, tool
from foldlog.adapters.models import ModelPrices
from foldlog.adapters.models.vendors import VendorProvider
from foldlog.eventlog.parts import FilePart, TextPart
from foldlog.projections.messages import CallRequest, Message, sha256_hex
from foldlog.runtime import ModelSettings
from foldlog.runtime.ports.models import (
    HEARD,
    AuthenticationFailed,
    ContextOverflow,
    InvalidRequest,
    ModelError,
    QuotaExceeded,
    RateLimited,
    ReasoningDelta,
    TextDelta,
    TransientModelError,
)
from pydantic import BaseModel

from ..fakes import anthropic_server, gemini_server
from ..fakes.openai_server import Call, OpenAIServer, Reply, Usage, head
from ..fakes.vendor_servers import BedrockServer, bedrock_events, event_stream_message
from .wires import KEY, SEARCH, WIRES, Wire, calls_of, end_of, in_history, set_keys, text_of

every_wire = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES.keys())
of_vendors = pytest.mark.parametrize(
    "wire", [WIRES["anthropic"], WIRES["google"]], ids=["anthropic", "google"]
)


def some(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("wire", [WIRES[name] for name in names], ids=names)


over_http = some(*(name for name, wire in WIRES.items() if wire.server is not None))
over_events = some(*(name for name in WIRES if name not in {"bedrock", "xai"}))
of_chunks = some("chat", "ollama", "groq", "mistral", "openrouter", "azure", "huggingface")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_keys(monkeypatch)


async def failure(wire: Wire, reply: Reply) -> ModelError:
    async with wire.served(reply) as (_, provider):
        with pytest.raises(ModelError) as caught:
            await wire.answer(provider)
    return caught.value


# --- whole answers ----------------------------------------------------------------------------------------------------


@every_wire
async def test_scripted_answers_arrive_whole_with_their_usage(wire: Wire):
    replies = wire.replies(17)
    async with wire.served(*replies) as (_, provider):
        for reply in replies:
            deltas = await wire.answer(provider)
            assert text_of(deltas) == "".join(reply.text)
            assert "".join(each.text for each in deltas if isinstance(each, ReasoningDelta)) == "".join(
                reply.reasoning
            )
            assert calls_of(deltas) == [
                (call.id, call.name, json.loads("".join(call.arguments))) for call in reply.calls
            ]
            end = end_of(deltas)
            assert end.reason == ("tool_calls" if reply.calls else "stop")
            assert (end.usage is None) == (reply.usage is None)


@of_vendors
async def test_usage_counts_what_came_from_the_cache_and_the_model_that_answered(wire: Wire):
    async with wire.served(Reply(text=("x",))) as (server, provider):
        end = end_of(await wire.answer(provider))
        assert KEY in " ".join(server.requests[0].headers.values())
    assert end.usage is not None
    assert (end.usage.input_tokens, end.usage.output_tokens, end.usage.cached_input_tokens) == (11, 7, 4)
    assert end.model.startswith(wire.model)


@every_wire
async def test_tokens_of_thoughts_are_those_that_the_server_tells_or_none(wire: Wire):
    thinking = Reply(text=("x",), usage=Usage(output=7, reasoning=3))
    others = (Reply(text=("x",), usage=Usage(output=7, reasoning=0)), Reply(text=("x",), usage=None))
    async with wire.served(thinking, *others) as (_, provider):
        first, second, third = [end_of(await wire.answer(provider)).usage for _ in range(3)]
    assert first is not None
    assert second is not None
    assert third is None
    told = 0 if wire.name in {"bedrock", "cohere", "huggingface"} else 3  # which have no field for them
    assert (first.output_tokens, first.reasoning_tokens, first.total_tokens) == (7, told, 18)
    assert (second.output_tokens, second.reasoning_tokens, second.total_tokens) == (7, 0, 18)


@of_vendors
async def test_answers_follow_each_other_on_one_connection(wire: Wire):
    async with wire.served(Reply(text=("x",))) as (server, provider):
        for _ in range(3):
            await wire.answer(provider)
        assert (len(server.requests), server.connections) == (3, 1)


@pytest.mark.parametrize(
    ("name", "word", "reason"),
    [
        ("anthropic", "max_tokens", "length"),
        ("anthropic", "model_context_window_exceeded", "length"),
        ("anthropic", "refusal", "content_filter"),
        ("anthropic", "stop_sequence", "stop"),
        ("google", "MAX_TOKENS", "length"),
        ("google", "SAFETY", "content_filter"),
        ("google", "MALFORMED_FUNCTION_CALL", "malformed_call"),
    ],
)
async def test_the_reason_of_an_end_is_told_in_the_words_of_the_runtime(name: str, word: str, reason: str):
    async with WIRES[name].served(Reply(text=("x",), finish=word)) as (_, provider):
        assert end_of(await WIRES[name].answer(provider)).reason == reason


# --- cut answers ------------------------------------------------------------------------------------------------------


def cuts(wire: Wire, reply: Reply) -> list[Reply]:
    """The reply cut after each of its events that come before its end, in turn by an abort and by a clean end."""
    events = list(wire.events(wire.model, reply))
    until = next(number for number, event in enumerate(events) if wire.ends(event))
    faults = ("cut", "end", "torn")
    return [
        Reply(events=tuple(events), fault=faults[number % len(faults)], fault_after=number)
        for number in range(until + 1)
    ]


async def all_are_transient(wire: Wire, replies: list[Reply]) -> None:
    broken = [cut for reply in replies for cut in cuts(wire, reply)]
    async with wire.served(*broken) as (server, provider):
        for _ in broken:
            with pytest.raises(TransientModelError):
                await wire.answer(provider)
        assert len(server.requests) == len(broken)  # no SDK tried again by itself


@every_wire
async def test_an_answer_that_is_cut_at_any_event_is_transient_and_never_a_short_answer(wire: Wire):
    await all_are_transient(wire, wire.replies()[4::13])


@pytest.mark.nightly
@every_wire
async def test_forty_answers_that_are_cut_at_any_event_are_transient(wire: Wire):
    await all_are_transient(wire, wire.replies())


@every_wire
async def test_an_answer_that_broke_off_after_its_end_is_whole(wire: Wire):
    whole = tuple(wire.events(wire.model, Reply(text=("Hel", "lo"))))
    until = next(number for number, event in enumerate(whole) if wire.ends(event)) + 1
    async with wire.served(Reply(events=whole, fault="cut", fault_after=until)) as (_, provider):
        deltas = await wire.answer(provider)
    assert (text_of(deltas), end_of(deltas).reason) == ("Hello", "stop")


@of_vendors
async def test_a_reader_that_stops_closes_the_connection(wire: Wire):
    whole = tuple(wire.events(wire.model, Reply(text=("Hel", "lo"))))
    async with wire.served(Reply(events=whole, fault="stall", fault_after=len(whole) - 2)) as (
        server,
        provider,
    ):
        stream = provider.stream(wire.request())
        assert await anext(stream) == TextDelta("Hel")
        await stream.aclose()
        async with asyncio.timeout(120):
            await server.disconnected.wait()


def lying(server: type[OpenAIServer], length: Callable[[bytes], str]) -> type[OpenAIServer]:
    """A server that sends its answer whole, with a Content-Length of `length` of it, and closes the connection."""

    async def answer(
        self: Any, request: Any, reply: Reply, reader: Any, writer: asyncio.StreamWriter
    ) -> bool:
        if is_binary := server is BedrockServer:
            body = b"".join(map(event_stream_message, bedrock_events("", reply)))
        else:
            body = "".join(self.stream(request, reply)).encode()
        kind = "application/vnd.amazon.eventstream" if is_binary else "text/event-stream"
        writer.write(head(200, {"Content-Type": kind, "Content-Length": length(body)}) + body)
        await writer.drain()
        return False

    return type("Lying", (server,), {"answer": answer})


@over_http
async def test_a_length_that_leaves_out_the_end_of_an_answer_is_one_transient_error(wire: Wire):
    assert wire.server is not None
    wrong = replace(wire, server=lying(wire.server, lambda body: str(len(body) // 2)))
    error = await failure(wrong, Reply(text=("Hel", "lo")))
    assert type(error) is TransientModelError
    assert f":{wire.model}: " in str(error)
    assert "\n" not in str(error)


@over_http
async def test_a_length_that_is_no_number_is_one_transient_error_or_does_no_harm(wire: Wire):
    assert wire.server is not None
    wrong = replace(wire, server=lying(wire.server, lambda _: "many"))
    async with wrong.served(Reply(text=("Hel", "lo"))) as (_, provider):
        if wire.name == "bedrock":  # botocore reads to the end of the connection
            assert text_of(await wire.answer(provider)) == "Hello"
            return
        with pytest.raises(TransientModelError, match=r"Content-Length|malformed|lost"):
            await wire.answer(provider)


@over_http
async def test_a_length_beyond_the_end_of_an_answer_costs_no_other_call(wire: Wire):
    assert wire.server is not None
    wrong = replace(wire, server=lying(wire.server, lambda body: str(len(body) + 9)))
    async with wrong.served(Reply(text=("Hel", "lo"))) as (server, provider):
        deltas = await wire.answer(provider)
        assert (text_of(deltas), end_of(deltas).reason) == ("Hello", "stop")
        assert len(server.requests) == 1


# --- errors -----------------------------------------------------------------------------------------------------------

ANTHROPIC_ERRORS: list[tuple[int, str, str, type[ModelError]]] = [
    (401, "authentication_error", "invalid x-api-key", AuthenticationFailed),
    (403, "permission_error", "not allowed", AuthenticationFailed),
    (400, "invalid_request_error", "messages: roles must alternate", InvalidRequest),
    (400, "invalid_request_error", "Your credit balance is too low to access the API.", QuotaExceeded),
    (413, "request_too_large", "Request exceeds the maximum size", InvalidRequest),
    (404, "not_found_error", "model: claude-none", InvalidRequest),
    (429, "rate_limit_error", "slow down", RateLimited),
    (500, "api_error", "Internal server error", TransientModelError),
    (529, "overloaded_error", "Overloaded", TransientModelError),
]


@pytest.mark.parametrize(("status", "kind", "message", "expected"), ANTHROPIC_ERRORS)
async def test_an_error_of_anthropic_says_what_may_be_done_about_it(
    status: int, kind: str, message: str, expected: type[ModelError]
):
    error = await failure(
        WIRES["anthropic"], Reply(status=status, body=anthropic_server.error_body(kind, message))
    )
    assert type(error) is expected
    assert "anthropic:claude-sonnet-5" in str(error)
    assert message in str(error)


GOOGLE_ERRORS: list[tuple[int, str, str, list[dict[str, Any]], type[ModelError]]] = [
    (400, "INVALID_ARGUMENT", "bad schema", [], InvalidRequest),
    (400, "INVALID_ARGUMENT", "API key not valid", [{"reason": "API_KEY_INVALID"}], AuthenticationFailed),
    (403, "PERMISSION_DENIED", "no access", [], AuthenticationFailed),
    (429, "RESOURCE_EXHAUSTED", "too fast", [], RateLimited),
    (500, "INTERNAL", "sorry", [], TransientModelError),
    (503, "UNAVAILABLE", "The model is overloaded.", [], TransientModelError),
]


@pytest.mark.parametrize(("status", "word", "message", "details", "expected"), GOOGLE_ERRORS)
async def test_an_error_of_google_says_what_may_be_done_about_it(
    status: int, word: str, message: str, details: list[dict[str, Any]], expected: type[ModelError]
):
    typed = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo"} | each for each in details]
    body = gemini_server.error_body(status, word, message, *typed)
    error = await failure(WIRES["google"], Reply(status=status, body=body))
    assert type(error) is expected
    assert message in str(error)


async def test_a_rate_limit_says_how_long_to_wait():
    limited = Reply(
        status=429, headers={"retry-after": "7"}, body=anthropic_server.error_body("rate_limit_error", "x")
    )
    assert (await failure(WIRES["anthropic"], limited)).retry_after_s == 7
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}
    body = gemini_server.error_body(429, "RESOURCE_EXHAUSTED", "x", retry)
    assert (await failure(WIRES["google"], Reply(status=429, body=body))).retry_after_s == 34


@pytest.mark.parametrize(
    ("name", "body", "window", "asked"),
    [
        (
            "anthropic",
            anthropic_server.error_body(
                "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"
            ),
            200_000,
            210_000,
        ),
        (
            "google",
            gemini_server.error_body(
                400,
                "INVALID_ARGUMENT",
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            ),
            1_048_576,
            1_200_000,
        ),
    ],
)
async def test_a_request_that_is_too_long_says_how_much_fits(name: str, body: Any, window: int, asked: int):
    error = await failure(WIRES[name], Reply(status=400, body=body))
    assert isinstance(error, ContextOverflow)
    assert (error.window_tokens, error.request_tokens) == (window, asked)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("overloaded_error", TransientModelError),
        ("api_error", TransientModelError),
        ("rate_limit_error", RateLimited),
    ],
)
async def test_an_error_within_a_stream_is_what_it_would_be_before(kind: str, expected: type[ModelError]):
    wire = WIRES["anthropic"]
    events = (*list(wire.events(wire.model, Reply(text=("x",))))[:3], anthropic_server.error_body(kind, "Oh"))
    assert type(await failure(wire, Reply(events=events))) is expected


async def test_a_prompt_that_google_blocks_is_filtered():
    blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "modelVersion": "m"}
    assert (await failure(WIRES["google"], Reply(events=(blocked,)))).error_type == "content_filter"


@of_vendors
async def test_a_server_that_is_not_there_is_transient_and_no_key_is_told(wire: Wire):
    async with wire.served(Reply()) as (_, _):
        pass
    provider = wire.provider("http://127.0.0.1:9/v1")
    with pytest.raises(TransientModelError, match="cannot connect") as caught:
        await wire.answer(provider)
    assert KEY not in str(caught.value)
    await provider.aclose()


@of_vendors
async def test_a_key_that_is_not_set_is_told_by_its_variable(wire: Wire, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(wire.variable)
    with pytest.raises(AuthenticationFailed, match=wire.variable):
        await wire.answer(VendorProvider(wire.name))


# --- odd servers ------------------------------------------------------------------------------------------------------


@over_events
async def test_keep_alives_are_heard(wire: Wire):
    events = list(wire.events(wire.model, Reply(text=("x",))))
    heard: list[None] = []
    token = HEARD.set(lambda: heard.append(None))
    reply = Reply(events=(": keep-alive\n\n",) * 20 + tuple(events), pause_s=0.002)
    async with wire.served(reply) as (_, provider):
        assert text_of(await wire.answer(provider)) == "x"
    HEARD.reset(token)
    assert len(heard) >= (1 if wire.name == "huggingface" else 10)  # its SDK has a client of its own


async def test_calls_without_ids_get_distinct_ids_that_an_attempt_does_not_change():
    wire = WIRES["google"]
    twice = (Call(id="", name="search", arguments=('{"q": "a"}',)),) * 2
    async with wire.served(Reply(calls=twice)) as (_, provider):
        first, second = calls_of(await wire.answer(provider)), calls_of(await wire.answer(provider))
    assert first == second
    assert len({call_id for call_id, _, _ in first}) == 2


@every_wire
async def test_two_calls_with_one_id_stay_two_calls(wire: Wire):
    calls = tuple(Call(id="call_a", name="search", arguments=(f'{{"q": "{q}"}}',)) for q in "ab")
    async with wire.served(Reply(calls=calls)) as (_, provider):
        assert [given for _, _, given in calls_of(await wire.answer(provider))] == [{"q": "a"}, {"q": "b"}]


@every_wire
async def test_usage_that_comes_again_replaces_the_one_before(wire: Wire):
    *before, last = wire.events(wire.model, Reply(text=("x",)))
    again = (before[-1], last) if wire.name == "anthropic" else () if wire.name == "responses" else (last,)
    async with wire.served(Reply(events=(*before, last, *again))) as (_, provider):
        end = end_of(await wire.answer(provider))
    assert end.usage is not None
    assert (end.usage.input_tokens, end.usage.output_tokens) == (11, 7)


@every_wire
async def test_an_answer_whose_arguments_come_in_one_piece_or_with_no_content_is_whole(wire: Wire):
    calls = (
        Call(id="call_a", name="search", arguments=('{"q": "' + "ä🦆" * 500 + '"}',)),
        Call(id="call_b", name="search", arguments=("{}",)),
    )
    async with wire.served(Reply(calls=calls)) as (_, provider):
        deltas = await wire.answer(provider)
    assert calls_of(deltas) == [
        ("call_a", "search", {"q": "ä🦆" * 500}),
        ("call_b", "search", {}),
    ]
    assert (text_of(deltas), end_of(deltas).reason) == ("", "tool_calls")


@of_chunks
async def test_chunks_without_choices_say_nothing(wire: Wire):
    first, *rest = wire.events(wire.model, Reply(text=("x",)))
    empty = {name: each for name, each in first.items() if name != "choices"} | {"choices": []}
    async with wire.served(Reply(events=(empty, first, empty, *rest))) as (_, provider):
        deltas = await wire.answer(provider)
    assert (text_of(deltas), end_of(deltas).reason) == ("x", "stop")


async def test_chunks_without_candidates_say_nothing():
    wire = WIRES["google"]
    empty = ({"candidates": [], "modelVersion": "m"}, {"usageMetadata": {"promptTokenCount": 3}})
    async with wire.served(Reply(events=(*empty, *wire.events(wire.model, Reply(text=("x",)))))) as (
        _,
        provider,
    ):
        assert text_of(await wire.answer(provider)) == "x"


async def test_an_event_that_nobody_knows_yet_is_passed_over():
    wire = WIRES["anthropic"]
    first, *rest = wire.events(wire.model, Reply(text=("x",)))
    async with wire.served(Reply(events=(first, {"type": "weather", "sun": True}, *rest))) as (_, provider):
        assert text_of(await wire.answer(provider)) == "x"


@over_http
async def test_a_character_in_two_halves_makes_no_short_answer(wire: Wire):
    """A half alone is not JSON text; who writes it has broken the answer, or both halves arrive."""
    reply = Reply(text=("\ud83e", "\udd86"))
    async with wire.served(reply) as (_, provider):
        try:
            deltas = await wire.answer(provider)
        except TransientModelError:
            return
    assert text_of(deltas).encode("utf-16", "surrogatepass").decode("utf-16") == "🦆"


# --- what a vendor wants back -----------------------------------------------------------------------------------------

LOOK_UP = Reply(
    reasoning=("Let me", " look."),
    text=("One ", "moment."),
    calls=(
        Call(id="call_a", name="search", arguments=('{"q": ', '"a"}')),
        Call(id="call_b", name="search", arguments=('{"q": "b"}',)),
    ),
)


TOKENS = Usage(input=1_000, cached=400, written=300, written_1h=100, output=70, reasoning=30)
CACHED = {
    "huggingface": (0, 0, 0),  # its SDK has no field for them
    **dict.fromkeys(("responses", "groq", "mistral", "google", "cohere", "xai"), (400, 0, 0)),
    **dict.fromkeys(("chat", "ollama", "openrouter", "azure"), (400, 300, 0)),
    "anthropic": (400, 300, 100),
    "bedrock": (400, 300, 300),
}
"""The usage of a cache: tokens read, put into it, and those of these for an hour. The rest is plain input."""


@every_wire
async def test_a_run_costs_what_its_cached_and_other_tokens_come_to_by_hand(
    wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    model = f"{wire.name}:{wire.model}"
    (tmp_path / "foldlog.toml").write_text(
        f'[prices."{model}"]\ninput_usd = 3\ncached_input_usd = 0.3\n'
        "cache_write_usd = 3.75\ncache_write_1h_usd = 6\noutput_usd = 15\n"
    )
    monkeypatch.setenv("FOLDLOG_CONFIG", str(tmp_path / "foldlog.toml"))
    cache = "1h" if wire.name in {"anthropic", "bedrock"} else None
    agent = Agent("finder", model=model, tools=[search], settings={"cache": cache} if cache else None)
    calling = Reply(calls=(Call(id="c1", name="search", arguments=('{"q": "a"}',)),), usage=TOKENS)
    async with (
        wire.served(calling, Reply(text=("Ann",), usage=TOKENS)) as (_, provider),
        Runtime.open(
            "memory://", registry=Registry(providers={wire.name: provider}, prices=ModelPrices())
        ) as rt,
    ):
        await rt.run(agent, "Who?")
        (row,) = await rt.list_runs()
    read, written, long = CACHED[wire.name]
    fresh = 1_000 - read - written
    by_hand = fresh * 3 + read * Decimal("0.3") + (written - long) * Decimal("3.75") + long * 6 + 70 * 15
    assert row.cost_usd is not None
    assert Decimal(row.cost_usd) == 2 * by_hand / 1_000_000


@of_vendors
async def test_signed_thoughts_go_back_unchanged_at_their_place(wire: Wire):
    async with wire.served(LOOK_UP, Reply(text=("Ann",))) as (server, provider):
        messages = in_history(await wire.answer(provider), wire.name)
        assert text_of(await wire.answer(provider, messages=messages)) == "Ann"
        sent = server.requests[1].body
    if wire.name == "anthropic":
        assert [block["type"] for block in sent["messages"][1]["content"]] == [
            "thinking",
            "redacted_thinking",
            "text",
            "tool_use",
            "tool_use",
        ]
    else:
        parts = sent["contents"][1]["parts"]
        assert [sorted(part.keys() - {"thought"}) for part in parts[1:]] == [
            ["text"],
            ["functionCall", "thoughtSignature"],
            ["functionCall"],
        ]


@of_vendors
async def test_a_request_without_the_signed_thoughts_is_refused(wire: Wire):
    async with wire.served(LOOK_UP, Reply(text=("Ann",))) as (_, provider):
        first, answer, *results = in_history(await wire.answer(provider), wire.name)
        bare = msgspec.structs.replace(answer, reply_state=None)
        with pytest.raises(InvalidRequest):
            await wire.answer(provider, messages=(first, bare, *results))
        assert answer.reply_state is not None
        text = json.dumps(answer.reply_state.items).replace("signed/", "forged/").replace("Let me", "Let us")
        if wire.name == "google":
            text = re.sub(r'"thought_signature": "....', '"thought_signature": "AAAA', text)
        forged = msgspec.structs.replace(answer.reply_state, items=json.loads(text))
        altered = msgspec.structs.replace(answer, reply_state=forged)
        with pytest.raises(InvalidRequest):
            await wire.answer(provider, messages=(first, altered, *results))


@of_vendors
async def test_an_answer_without_thoughts_wants_nothing_back(wire: Wire):
    async with wire.served(Reply(text=("x",), calls=LOOK_UP.calls)) as (_, provider):
        assert end_of(await wire.answer(provider)).reply_items == []


PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)


async def read(file: FilePart) -> bytes:
    assert file.artifact == sha256_hex(PNG)
    return PNG


@of_vendors
async def test_files_reach_the_model_from_the_user_and_from_a_tool(wire: Wire):
    picture = FilePart(media_type="image/png", name="cat.png", artifact=sha256_hex(PNG), bytes=len(PNG))
    parts = (TextPart(text="What is it?"), picture)
    call = CallRequest(id="c1", name="search", arguments="{}")
    messages = (
        Message(role="user", content="What is it?", parts=parts),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content="", parts=(picture,), tool_call_id="c1"),
    )
    async with wire.served(Reply(text=("A cat",))) as (server, provider):
        assert text_of(await wire.answer(provider, messages=messages, read_artifact=read)) == "A cat"
    body = json.dumps(server.requests[0].body)
    assert body.count(base64.b64encode(PNG).decode().rstrip("=")) == 2
    assert body.count("image/png") == 2


async def test_a_file_with_a_url_is_fetched_by_the_vendor_or_refused():
    picture = FilePart(media_type="image/png", url="https://example.com/cat.png")
    messages = (Message(role="user", content="", parts=(picture,)),)
    async with WIRES["anthropic"].served(Reply(text=("A cat",))) as (server, provider):
        await WIRES["anthropic"].answer(provider, messages=messages)
    assert '"url": "https://example.com/cat.png"' in json.dumps(server.requests[0].body)
    async with WIRES["google"].served(Reply(text=("A cat",))) as (server, provider):
        with pytest.raises(InvalidRequest, match="does not fetch"):
            await WIRES["google"].answer(provider, messages=messages)
    assert not server.requests


MADE = Reply(text=("Here: ",), calls=(Call(id="call_a", name="search", arguments=('{"q":"a"}',)),))


async def test_a_picture_that_gemini_makes_is_an_artifact_and_goes_back_where_it_was():
    wire = WIRES["google"]
    first, *rest = wire.events(wire.model, MADE)
    signed = base64.b64encode(b"signed").decode()
    made = {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(PNG).decode()}}
    events = (first, gemini_server.chunk("m", made | {"thoughtSignature": signed}), *rest)
    agent = Agent("painter", model=f"google:{wire.model}", tools=[search])
    async with (
        wire.served(Reply(events=events), Reply(text=("Done",))) as (server, provider),
        Runtime.open("memory://", registry=Registry(providers={"google": provider})) as runtime,
    ):
        run = await runtime.start(agent, "Paint a cat.")
        assert (await run.result()).output == "Done"
        (file,) = [event async for event in run.stream() if event.type == "file"]
        assert (file.media_type, file.artifact, file.bytes) == ("image/png", sha256_hex(PNG), len(PNG))
        assert await runtime.log.artifacts.find(file.artifact) == PNG
    parts = server.requests[1].body["contents"][1]["parts"]
    assert [min(part.keys() - {"thoughtSignature"}) for part in parts] == [
        "text",
        "inlineData",
        "functionCall",
    ]
    assert gemini_server.decoded(parts[1]["thoughtSignature"]) == b"signed"
    assert base64.b64decode(parts[1]["inlineData"]["data"].replace("-", "+").replace("_", "/")) == PNG


async def test_a_picture_that_another_model_made_follows_as_one_of_the_user():
    wire = WIRES["anthropic"]
    made = FilePart(media_type="image/png", name="cat.png", artifact=sha256_hex(PNG), bytes=len(PNG))
    messages = (
        Message(role="user", content="Paint a cat."),
        Message(role="assistant", content="Here:", parts=(TextPart(text="Here:"), made)),
        Message(role="user", content="What is it?"),
    )
    async with wire.served(Reply(text=("A cat",))) as (server, provider):
        await wire.answer(provider, messages=messages, read_artifact=read)
    asked = server.requests[0].body["messages"]
    assert [message["role"] for message in asked] == ["user", "assistant", "user"]
    assert [block["type"] for block in asked[2]["content"]] == ["text", "image", "text"]


# --- settings ---------------------------------------------------------------------------------------------------------


async def sent_with(
    wire: Wire, settings: ModelSettings, **fields: Any
) -> tuple[dict[str, Any], dict[str, str]]:
    async with wire.served(Reply(text=("x",))) as (server, provider):
        await wire.answer(provider, settings=settings, **fields)
        return server.requests[0].body, server.requests[0].headers


async def test_settings_reach_anthropic_in_its_words():
    settings = ModelSettings(
        max_tokens=2000,
        stop=("END",),
        tool_choice="search",
        parallel_tool_calls=False,
        headers={"X-Team": "blue"},
        extra_body={"metadata": {"user_id": "7"}},
    )
    other = msgspec.structs.replace(SEARCH, name="other")
    body, headers = await sent_with(WIRES["anthropic"], settings, tools=(SEARCH, other))
    assert (body["max_tokens"], body["stop_sequences"]) == (2000, ["END"])
    assert body["tool_choice"] == {"type": "tool", "name": "search", "disable_parallel_tool_use": True}
    assert body["metadata"] == {"user_id": "7"}
    assert headers["x-team"] == "blue"
    body, _ = await sent_with(WIRES["anthropic"], ModelSettings(reasoning="high"))
    assert body["thinking"]["type"] == "adaptive"
    assert body["output_config"]["effort"] == "high"


async def test_settings_reach_google_in_its_words():
    settings = ModelSettings(
        temperature=0.5, top_p=0.9, max_tokens=2000, seed=7, stop=("END",), reasoning=1024
    )
    body, _ = await sent_with(WIRES["google"], settings)
    found = body["generationConfig"]
    assert (found["temperature"], found["topP"], found["maxOutputTokens"], found["seed"]) == (
        0.5,
        0.9,
        2000,
        7,
    )
    assert found["stopSequences"] == ["END"]
    assert found["thinkingConfig"]["thinking_budget"] == 1024


@pytest.mark.parametrize(
    ("name", "settings", "unknown"),
    [
        ("anthropic", ModelSettings(seed=7, cache="1h", reasoning=2000), {"seed"}),
        ("google", ModelSettings(seed=7, verbosity="low", cache="1h"), {"verbosity", "cache"}),
        ("mistral", ModelSettings(reasoning=2000, cache="auto"), {"reasoning"}),
    ],
)
def test_a_setting_that_a_vendor_has_no_word_for_is_told(
    name: str, settings: ModelSettings, unknown: set[str]
):
    assert VendorProvider(name).unknown_settings("m", settings).keys() == unknown


async def test_the_stable_prefix_is_marked_for_anthropics_cache():
    messages = (
        Message(role="system", content="Be brief."),
        Message(role="user", content="First?"),
        Message(role="assistant", content="Yes."),
        Message(role="user", content="Who?"),
        Message(role="assistant", tool_calls=(CallRequest(id="c1", name="search", arguments="{}"),)),
        Message(role="tool", content="found", tool_call_id="c1"),
    )
    asked = {"messages": messages, "stable": 4}
    for cache, ttl in (("auto", "5m"), ("1h", "1h")):
        body, _ = await sent_with(WIRES["anthropic"], ModelSettings(cache=cache), **asked)
        marks = [block.get("cache_control") for message in body["messages"] for block in message["content"]]
        assert [mark and mark.get("ttl", "5m") for mark in marks] == [None, None, ttl, None, None]
        assert body["system"][-1]["cache_control"]["type"] == "ephemeral"
        assert body["tools"][-1]["cache_control"]["type"] == "ephemeral"
    body, _ = await sent_with(WIRES["anthropic"], ModelSettings(), messages=messages)
    assert "cache_control" not in json.dumps(body)


async def test_an_output_schema_reaches_the_models_that_take_one():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    body, _ = await sent_with(WIRES["anthropic"], ModelSettings(), output_schema=schema)
    assert body["output_config"]["format"]["type"] == "json_schema"
    body, _ = await sent_with(WIRES["google"], ModelSettings(), output_schema=schema, tools=())
    assert body["generationConfig"]["responseMimeType"] == "application/json"


class Pair(BaseModel):
    name: str
    age: int | None = None


OUTPUTS: list[tuple[Any, str, Any]] = [
    (list[int], '{"response": [1, 2]}', [1, 2]),
    (int | str, '{"response": "four"}', "four"),
    (bool, '{"response": true}', True),
    (Pair, '{"name": "Ann", "age": null}', Pair(name="Ann")),
    (list[Pair], '{"response": [{"name": "Ann", "age": 4}]}', [Pair(name="Ann", age=4)]),
]


@of_vendors
@pytest.mark.parametrize(("output_type", "said", "output"), OUTPUTS)
async def test_an_output_of_any_type_is_asked_for_as_an_object(
    wire: Wire, output_type: Any, said: str, output: Any
):
    agent = Agent("typed", model=f"{wire.name}:{wire.model}", output_type=output_type)
    async with (
        wire.served(Reply(text=(said,))) as (server, provider),
        Runtime.open("memory://", registry=Registry(providers={wire.name: provider})) as runtime,
    ):
        assert (await runtime.run(agent, "Who?")).output == output
    body = server.requests[0].body
    if wire.name == "anthropic":
        schema = body["output_config"]["format"]["schema"]
        assert schema["additionalProperties"] is False
    else:
        schema = body["generationConfig"]["responseJsonSchema"]
    assert schema["type"] == "object"
    assert set(schema["properties"]) == ({"name", "age"} if output_type is Pair else {"response"})


# --- from one vendor to another ---------------------------------------------------------------------------------------


@tool(effect="pure")
def search(q: str) -> str:
    """Look it up."""
    return f"found {q}"


@pytest.mark.parametrize(
    ("name", "other"), [("anthropic", "google"), ("google", "anthropic"), ("anthropic", "chat")]
)
async def test_a_fallback_within_a_tool_loop_goes_on_without_foreign_signatures(name: str, other: str):
    overloaded = Reply(status=529, body=anthropic_server.error_body("overloaded_error", "Overloaded"))
    agent = Agent(
        "finder",
        model=f"{name}:{WIRES[name].model}",
        fallback_models=[f"{other}:{WIRES[other].model}"],
        retry={"attempts": 1},
        tools=[search],
    )
    async with (
        WIRES[name].served(LOOK_UP, overloaded) as (_, first),
        WIRES[other].served(Reply(text=("Ann",))) as (server, second),
        Runtime.open("memory://", registry=Registry(providers={name: first, other: second})) as runtime,
    ):
        assert (await runtime.run(agent, "Who?")).output == "Ann"
    sent = json.dumps(server.requests[0].body)
    assert "found a" in sent
    assert "found b" in sent
    assert "signed/" not in sent
    assert base64.b64encode(gemini_server.signature(LOOK_UP)).decode() not in sent
    assert "Let me look." not in sent
