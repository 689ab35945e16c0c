"""What the clients of each protocol hear of a run that was erased: that it is gone, and nothing else is in its way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import openai
import pytest
from a2a.types import CancelTaskRequest, GetTaskRequest, ListTasksRequest, SubscribeToTaskRequest
from a2a.utils.errors import A2AError, TaskNotFoundError

from tests.protocols import test_a2a as a2a
from tests.protocols import test_mcp_server as mcp
from tests.protocols import test_responses as responses
from tests.protocols.counter import TOKENS, Counter

pytestmark = pytest.mark.anyio
GONE = r"was deleted on .* by ann"


async def erase(counter: Counter, run_id: str) -> None:
    await counter.runtime.delete(run_id, by="ann")


async def test_a_task_that_was_erased_is_not_found_and_the_others_are_listed(local: Counter) -> None:
    async with a2a.connected(local, "greeter") as client:
        sent = [a2a.says("hi", message_id=f"m-{number}", context_id="ours") for number in range(3)]
        tasks = [(await a2a.told(client.send_message(each)))[0] for each in sent]
        first = await client.list_tasks(ListTasksRequest(context_id="ours", page_size=1))
        assert ([each.id for each in first.tasks], first.next_page_token) == ([tasks[2]], tasks[2])
        await erase(local, tasks[2])
        asked: tuple[Callable[[], Awaitable[Any]], ...] = (
            lambda: client.get_task(GetTaskRequest(id=tasks[2])),
            lambda: client.cancel_task(CancelTaskRequest(id=tasks[2])),
            lambda: a2a.told(client.subscribe(SubscribeToTaskRequest(id=tasks[2]))),
            lambda: a2a.told(client.send_message(a2a.says("more", task_id=tasks[2]))),
            lambda: a2a.told(client.send_message(sent[2])),
        )
        for ask in asked:
            with pytest.raises(TaskNotFoundError, match=GONE):
                await ask()
        rest = await client.list_tasks(ListTasksRequest(context_id="ours", page_token=tasks[2]))
        assert ([each.id for each in rest.tasks], rest.total_size) == ([tasks[1], tasks[0]], 2)
        pages = [await client.list_tasks(ListTasksRequest(context_id="ours", page_size=1))]
        pages.append(await client.list_tasks(ListTasksRequest(page_token=pages[0].next_page_token)))
        assert [each.id for page in pages for each in page.tasks] == [tasks[1], tasks[0]]
        assert pages[1].next_page_token == ""
        with pytest.raises(A2AError, match="begin at the first page"):
            await client.list_tasks(ListTasksRequest(page_token="nothing"))


async def test_a_call_that_waits_for_an_erased_run_is_told_that_it_is_gone(local: Counter) -> None:
    async with mcp.connected(local) as client:
        run = mcp.run_of(await client.call_tool("greeter", {"input": "hi"}))
        await erase(local, run)
        told = await client.call_tool("greeter", {"run": run})
        assert told.is_error
        assert f"run {run} was deleted on" in mcp.text(told)


async def test_a_response_that_was_erased_is_gone_and_its_conversation_goes_on(local: Counter) -> None:
    async with responses.client(local) as ai:
        first = await ai.responses.create(model="greeter", input="hi", conversation="ours")
        key = {"Idempotency-Key": "key-1"}
        second = await ai.responses.create(
            model="greeter", input="more", previous_response_id=first.id, extra_headers=key
        )
        await erase(local, second.id)

        async def streamed() -> list[Any]:
            return await responses.read(await ai.responses.retrieve(second.id, stream=True))

        asked: tuple[Callable[[], Awaitable[Any]], ...] = (
            lambda: ai.responses.retrieve(second.id),
            lambda: ai.responses.cancel(second.id),
            lambda: ai.responses.create(model="greeter", input="?", previous_response_id=second.id),
            lambda: ai.responses.create(
                model="greeter", input="more", previous_response_id=first.id, extra_headers=key
            ),
            streamed,
        )
        for ask in asked:
            with pytest.raises(openai.APIStatusError, match=GONE) as gone:
                await ask()
            assert gone.value.status_code == 410
        third = await ai.responses.create(model="greeter", input="?", previous_response_id=first.id)
        assert third.output_text == "Hello there."


async def test_a_page_whose_run_was_erased_is_told_that_it_is_gone(local: Counter) -> None:
    headers = {"Authorization": f"Bearer {TOKENS['ada']}"}
    async with httpx2.AsyncClient(base_url=local.address, headers=headers) as client:
        said = {"id": "1", "role": "user", "content": "hi"}
        asked = {"threadId": "thread-1", "runId": "r1", "messages": [said]}
        begun = await client.post("/agui/greeter", json=asked)
        run = json.loads(begun.text.splitlines()[0].removeprefix("data: "))["metadata"]["foldlog"]["runId"]
        await erase(local, run)
        for path, body in (("/agui/greeter", asked), ("/agui/greeter/cancel", {"foldlogRunId": run})):
            gone = await client.post(path, json=body)
            assert (gone.status_code, gone.json()["type"], gone.json()["code"]) == (
                410,
                "RUN_ERROR",
                "RunGone",
            )
            assert f"run {run} was deleted on" in gone.json()["message"]


async def test_who_follows_a_run_that_is_cancelled_and_erased_hears_its_end_or_that_it_is_gone(
    counter: Counter,
) -> None:
    async with (
        a2a.connected(counter, "sleeper") as tasks,
        mcp.connected(counter) as tools,
        responses.client(counter) as ai,
    ):
        run = (await ai.responses.create(model="sleeper", input="sleep", background=True)).id
        followed = (
            a2a.told(tasks.subscribe(SubscribeToTaskRequest(id=run))),
            tools.call_tool("sleeper", {"run": run}),
            responses.read(await ai.responses.retrieve(run, stream=True)),
        )
        following = [asyncio.ensure_future(each) for each in followed]
        await counter.asleep.wait()
        await counter.runtime.get_run(run).cancel("asked to forget")
        await erase(counter, run)
        task, call, response = await asyncio.gather(*following, return_exceptions=True)
    assert isinstance(task, A2AError) or task[1][-1] == "canceled"
    assert call.is_error
    assert mcp.text(call).startswith((f"run {run} was deleted on", "The run was cancelled"))
    last = response[-1]
    assert (last.type, getattr(last, "code", "")) in {("error", "RunGone"), ("response.incomplete", "")} or (
        last.response.status == "cancelled"
    )
