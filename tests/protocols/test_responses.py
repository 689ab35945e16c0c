"""Agents behind the Responses API, used by the SDK of OpenAI."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest
from foldlog.adapters.responses.asked import read_asked
from foldlog.adapters.responses.errors import BadRequest
from foldlog.runtime import File
from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncOpenAI

from tests.protocols.counter import TOKENS, Counter

pytestmark = pytest.mark.anyio
ORDER = "Order 17 was paid twice"


def client(counter: Counter, who: str = "ada") -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{counter.address}/v1", api_key=TOKENS[who], max_retries=0)


async def read(stream: AsyncIterator[Any]) -> list[Any]:
    return [event async for event in stream]


def texts(events: list[Any]) -> str:
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


async def test_a_conversation_with_a_tool_an_approval_and_a_reconnect(counter: Counter) -> None:
    async with client(counter) as ai:
        assert [each.id async for each in ai.models.list()] == ["refunds", "greeter", "sleeper"]
        events = await read(await ai.responses.create(model="refunds", input=ORDER, stream=True))
        waiting = events[-1].response
        assert (events[-1].type, waiting.status) == ("response.incomplete", "incomplete")
        assert waiting.incomplete_details.reason == "approval_required"
        found, said, refund, approval = waiting.output
        assert (found.type, found.name, found.status) == ("mcp_call", "find_order", "completed")
        assert found.output == "order 17: paid twice"
        assert (said.content[0].text, refund.status) == ("It was paid twice.", "in_progress")
        assert (approval.type, approval.name) == ("mcp_approval_request", "refund")
        numbers = [event.sequence_number for event in events]
        assert numbers == sorted(set(numbers))
        for cut in range(len(events)):  # whatever a client has got, the rest follows, once
            rest = await read(
                await ai.responses.retrieve(waiting.id, stream=True, starting_after=numbers[cut] or None)
            )
            if cut:
                assert texts(events[: cut + 1]) + texts(rest) == texts(events)

    await counter.restart()
    async with client(counter, "bo") as ai:
        assert (await ai.responses.retrieve(waiting.id)).output == waiting.output
        yes = {"type": "mcp_approval_response", "approval_request_id": approval.id, "approve": True}
        later = await read(
            await ai.responses.create(
                model="refunds", previous_response_id=waiting.id, input=[yes], stream=True
            )
        )
        done = later[-1].response
        assert (done.id, done.status, done.usage.total_tokens > 0) == (waiting.id, "completed", True)
        assert texts(later) == "Order 17 is refunded."
        assert done.output[-1].content[0].text == "Order 17 is refunded."
        again = await read(
            await ai.responses.retrieve(done.id, stream=True, starting_after=events[-1].sequence_number)
        )
        assert texts(again) == "Order 17 is refunded."
        assert again[-1].response.output == done.output == (await ai.responses.retrieve(done.id)).output
    state = await counter.state(done.id)
    assert state.submitted is not None
    assert (state.submitted.executor, state.submitted.trigger.name) == (counter.executor, "responses")
    (row,) = await counter.runtime.approvals(pending=False)
    assert row.by == "bo"


async def test_a_run_in_the_background_goes_on_alone_until_it_is_cancelled(counter: Counter) -> None:
    async with client(counter) as ai:
        begun = await ai.responses.create(model="sleeper", input="sleep", background=True)
        assert begun.status in {"queued", "in_progress"}
        await counter.asleep.wait()
        assert (await ai.responses.retrieve(begun.id)).status == "in_progress"
        gone = await ai.responses.cancel(begun.id)
        assert (gone.status, (await ai.responses.cancel(begun.id)).status) == ("cancelled", "cancelled")
    state = await counter.state(begun.id)
    assert (state.status, state.cancel_by) == ("cancelled", "ada")


async def test_a_response_goes_on_from_the_one_before_it_and_from_no_other(local: Counter) -> None:
    async with client(local) as ai:
        options: dict[str, Any] = {"metadata": {"team": "ops"}, "user": "u-1", "instructions": "Be brief."}
        first = await ai.responses.create(model="greeter", input="I am Ada.", temperature=0.5, **options)
        assert (first.output_text, first.metadata, first.instructions) == (
            "Hello there.",
            {"team": "ops"},
            "Be brief.",
        )
        second = await ai.responses.create(model="greeter", input="Who?", previous_response_id=first.id)
        assert (second.previous_response_id, second.metadata) == (first.id, {})
        history = await local.runtime.get_run(second.id).history()
        assert [each.content for each in history if each.role == "user"] == ["I am Ada.", "Who?"]
        with pytest.raises(openai.BadRequestError, match="not the last of its conversation"):
            await ai.responses.create(model="greeter", input="?", previous_response_id=first.id)
        third = await ai.responses.create(model="greeter", input="?", conversation="ours")
        assert third.conversation is not None
        assert third.conversation.id == "ours"


async def test_a_rejected_approval_and_one_that_somebody_else_answered(local: Counter) -> None:
    async with client(local) as ai:
        first = await ai.responses.create(model="refunds", input=ORDER)
        asked = first.output[-1].id
        answer = {"type": "mcp_approval_response", "approval_request_id": asked, "approve": False}
        with pytest.raises(openai.BadRequestError, match="waits: answer its approvals"):
            await ai.responses.create(model="refunds", input="And?", previous_response_id=first.id)
        with pytest.raises(openai.BadRequestError, match="no approval 'ap-0'"):
            await ai.responses.create(
                model="refunds",
                previous_response_id=first.id,
                input=[{**answer, "approval_request_id": "ap-0"}],  # type: ignore[typeddict-item,list-item]
            )
        done = await ai.responses.create(
            model="refunds",
            previous_response_id=first.id,
            input=[{**answer, "reason": "No."}],  # type: ignore[typeddict-item,list-item]
        )
        call = next(each for each in done.output if each.type == "mcp_call" and each.name == "refund")
        assert call.status == "failed"
        assert "No." in str(call.error)
        with pytest.raises(openai.ConflictError, match="by ada"):
            await ai.responses.create(
                model="refunds",
                previous_response_id=first.id,
                input=[{**answer, "approve": True}],  # type: ignore[typeddict-item,list-item]
            )


async def test_the_same_idempotency_key_is_the_same_response_and_belongs_to_its_caller(
    local: Counter,
) -> None:
    key = {"Idempotency-Key": "order-17"}
    async with client(local) as ada, client(local, "bo") as bo:
        one = await ada.responses.create(model="greeter", input="Hi", extra_headers=key)
        two = await ada.responses.create(model="greeter", input="Hi", extra_headers=key)
        other = await bo.responses.create(model="greeter", input="Hi", extra_headers=key)
        assert one.id == two.id != other.id
        with pytest.raises(openai.ConflictError):
            await ada.responses.create(model="greeter", input="Ho", extra_headers=key)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "tools": ({"tools": [{"type": "function", "name": "f"}]}, "tools: an agent has its own"),
    "a form": ({"text": {"format": {"type": "json_object"}}}, "text: an agent has its own"),
    "no storage": ({"store": False}, "store: an agent does not carry it"),
    "a parameter of tomorrow": ({"frobnicate": 1}, "unknown parameter: 'frobnicate'"),
    "an agent that is not there": ({"model": "nobody"}, "no agent 'nobody'"),
    "no input": ({"input": []}, "input must be"),
    "an input that ends elsewhere": ({"input": [{"role": "assistant", "content": "x"}]}, "last item"),
    "an item of another kind": ({"input": [{"type": "computer_call"}]}, "no item of type 'computer_call'"),
    "an uploaded file": (
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
        "no uploaded files",
    ),
    "an answer to nothing": (
        {"input": [{"type": "mcp_approval_response", "approval_request_id": "a", "approve": True}]},
        "needs the previous_response_id",
    ),
    "a previous one that is not there": ({"previous_response_id": "nope"}, "no response 'nope'"),
    "a temperature of words": ({"temperature": "hot"}, "temperature"),
    "two conversations": ({"conversation": "a", "previous_response_id": "b"}, "not both"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_an_agent_cannot_carry_is_refused_by_name(local: Counter, name: str) -> None:
    changes, message = REFUSED[name]
    async with client(local) as ai:
        with pytest.raises((openai.BadRequestError, openai.NotFoundError), match=message) as refused:
            await ai.post("/responses", cast_to=object, body={"model": "greeter", "input": "Hi", **changes})
    assert isinstance(refused.value.body, dict)
    assert set(refused.value.body) == {"message", "type", "param", "code"}
    assert await local.runtime.list_runs() == []


async def test_strangers_and_viewers_and_odd_requests_get_an_error_of_the_protocol(local: Counter) -> None:
    bearer = {"Authorization": f"Bearer {TOKENS['ada']}"}
    post = {**bearer, "Content-Type": "application/json"}
    async with client(local, "vera") as viewer, httpx2.AsyncClient(base_url=local.address) as http:
        with pytest.raises(openai.PermissionDeniedError):
            await viewer.responses.create(model="greeter", input="Hi")
        with pytest.raises(openai.NotFoundError):
            await viewer.responses.retrieve("nope")
        with pytest.raises(openai.NotFoundError):
            await viewer.responses.delete("nope")
        asked = [
            (401, await http.get("/v1/models")),
            (404, await http.get("/v1/models/nobody", headers=bearer)),
            (404, await http.get("/v1/responses/%20/input_items", headers=bearer)),
            (400, await http.post("/v1/responses", headers=post, content=b"{")),
            (400, await http.post("/v1/responses", headers=post, content=b"[]")),
            (415, await http.post("/v1/responses", headers=bearer, content=b"{}")),
            (413, await http.post("/v1/responses", headers=post, content=b" " * (33 << 20))),
        ]
        for status, got in asked:
            assert (got.status_code, set(got.json()["error"])) == (
                status,
                {"message", "type", "param", "code"},
            ), got.text


def test_an_image_and_a_file_come_as_files() -> None:
    pixel = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
    text = {"type": "input_file", "filename": "a.txt", "file_data": "SGVsbG8="}
    parts = [{"type": "input_text", "text": "See"}, {"type": "input_image", "image_url": pixel}, text]
    asked = read_asked({"model": "m", "input": [{"role": "user", "content": parts}]})
    assert isinstance(asked.content, list)
    _, image, file = asked.content
    assert isinstance(image, File)
    assert isinstance(file, File)
    assert (image.media_type, file.media_type, file.data) == ("image/gif", "text/plain", b"Hello")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "text", "id", "approve", "file_data", "image_url"]),
            inner,
        )
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["model", "input", "metadata", "conversation", "reasoning"]), JSON))
def test_no_request_is_more_than_refused(body: dict[str, Any]) -> None:
    with contextlib.suppress(BadRequest):
        asked = read_asked(body)
        assert asked.content or asked.decisions
