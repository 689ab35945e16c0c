"""Agents behind A2A, used by the client of its SDK."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx
import httpx2
import pytest
from a2a.client import Client, ClientConfig, create_client
from a2a.client.errors import A2AClientError
from a2a.helpers.proto_helpers import get_message_text, new_data_part, new_text_part
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import A2AError
from foldlog.adapters.a2a.asked import answers_in
from foldlog.eventlog.events import ApprovalRequested

from tests.protocols.counter import TOKENS, Counter

pytestmark = pytest.mark.anyio
ORDER = "Order 17 was paid twice"


@contextlib.asynccontextmanager
async def connected(
    counter: Counter, agent: str, who: str = "ada", *, streaming: bool = True
) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {TOKENS[who]}"}
    async with httpx.AsyncClient(headers=headers, timeout=120) as http:
        config = ClientConfig(httpx_client=http, streaming=streaming)
        client = await create_client(f"{counter.address}/a2a/{agent}", client_config=config)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(client.close)
            yield client


def says(*parts: str | Part, **more: Any) -> SendMessageRequest:
    configuration = more.pop("configuration", None)
    identity = more.pop("message_id", None) or str(uuid.uuid4())
    listed = [new_text_part(part) if isinstance(part, str) else part for part in parts]
    message = Message(message_id=identity, role=Role.ROLE_USER, parts=listed, **more)
    return SendMessageRequest(message=message, configuration=configuration)


async def told(stream: AsyncIterator[Any]) -> tuple[str, list[str], list[str]]:
    """Return the task's id, its states without repetition, and all texts."""
    task_id, states, texts = "", [], []
    async for response in stream:
        kind = response.WhichOneof("payload")
        content = getattr(response, kind)
        if kind == "artifact_update":
            texts += [part.text for part in content.artifact.parts]
            continue
        task_id = content.id if kind == "task" else content.task_id
        state = TaskState.Name(content.status.state).removeprefix("TASK_STATE_").lower()
        if not states or states[-1] != state:
            states.append(state)
        texts += [part.text for part in content.status.message.parts if part.HasField("text")]
    return task_id, states, texts


def state_of(task: Task) -> str:
    return TaskState.Name(task.status.state).removeprefix("TASK_STATE_").lower()


async def test_a_conversation_with_a_tool_an_approval_and_a_reconnect(counter: Counter) -> None:
    async with connected(counter, "refunds") as client:
        task, states, texts = await told(client.send_message(says(ORDER)))
        assert states[-1] == "input_required"
        assert "refunds calls find_order" in texts
        assert texts[-1].startswith("refunds asks for approval (tool): refund")
        got = await client.get_task(GetTaskRequest(id=task))
        assert state_of(got) == "input_required"
        (data,) = [part for part in got.status.message.parts if part.HasField("data")]
        (asked,) = data.data.struct_value["approvals"]
        assert asked["kind"] == "tool"

    await counter.restart()
    async with connected(counter, "refunds", "bo") as client:
        assert (await client.get_task(GetTaskRequest(id=task))).status == got.status
        again, states, texts = await told(client.send_message(says("yes", task_id=task)))
        assert (again, states[-1], texts[-1]) == (task, "completed", "Order 17 is refunded.")
        done = await client.get_task(GetTaskRequest(id=task))
        assert [part.text for part in done.artifacts[0].parts] == ["Order 17 is refunded."]
        assert [get_message_text(each) for each in done.history] == [
            ORDER,
            "It was paid twice.",
            "Order 17 is refunded.",
        ]
    state = await counter.state(task)
    (row,) = await counter.runtime.approvals(pending=False)
    assert state.submitted is not None
    assert (row.by, state.submitted.executor, state.submitted.trigger.name) == ("bo", counter.executor, "a2a")


async def test_a_task_goes_on_without_its_client_is_watched_again_and_cancelled(counter: Counter) -> None:
    now = SendMessageConfiguration(return_immediately=True)
    async with connected(counter, "sleeper", streaming=False) as client:
        task, _, _ = await told(client.send_message(says("sleep", configuration=now)))
        await counter.asleep.wait()
    async with connected(counter, "sleeper") as client:
        watching = asyncio.create_task(told(client.subscribe(SubscribeToTaskRequest(id=task))))
        assert state_of(await client.get_task(GetTaskRequest(id=task))) == "working"
        assert state_of(await client.cancel_task(CancelTaskRequest(id=task))) == "canceled"
        assert (await watching)[1] in (["working", "canceled"], ["canceled"])
        with pytest.raises((A2AError, A2AClientError)):
            await client.cancel_task(CancelTaskRequest(id=task))
        with pytest.raises((A2AError, A2AClientError)):
            await told(client.subscribe(SubscribeToTaskRequest(id=task)))
    assert (await counter.state(task)).cancel_by == "ada"


async def test_a_context_is_remembered_its_tasks_are_listed_and_a_message_is_taken_once(
    local: Counter,
) -> None:
    async with connected(local, "greeter") as client:
        first = says("I am Ada.", message_id="m-1", context_id="ada-1")
        task, _, _ = await told(client.send_message(first))
        assert (await told(client.send_message(first)))[0] == task
        second, _, _ = await told(client.send_message(says("Who?", context_id="ada-1")))
        listed = await client.list_tasks(ListTasksRequest(context_id="ada-1", page_size=1))
        assert ([each.id for each in listed.tasks], listed.total_size) == ([second], 2)
        rest = await client.list_tasks(
            ListTasksRequest(context_id="ada-1", page_size=1, page_token=listed.next_page_token)
        )
        assert [each.id for each in rest.tasks] == [task]
        with pytest.raises((A2AError, A2AClientError), match="over"):
            await told(client.send_message(says("And?", task_id=task)))
    history = await local.runtime.get_run(second).history()
    assert [each.content for each in history if each.role == "user"] == ["I am Ada.", "Who?"]


async def test_an_answer_that_says_neither_yes_nor_no_is_refused_and_the_task_waits_on(
    local: Counter,
) -> None:
    async with connected(local, "refunds") as client:
        task, _, _ = await told(client.send_message(says(ORDER)))
        for odd in (
            "perhaps",
            new_data_part({"approve": "perhaps"}),
            new_data_part({"ap-0": {"approve": True}}),
        ):
            with pytest.raises((A2AError, A2AClientError)):
                await told(client.send_message(says(odd, task_id=task)))
        edited = {"approve": True, "arguments": {"order_id": "17", "amount_eur": 20}}
        assert (await told(client.send_message(says(new_data_part(edited), task_id=task))))[1][
            -1
        ] == "completed"
    trace = [each async for each in local.runtime.get_run(task).stream(detailed=True)]
    assert any("20 EUR" in str(getattr(event, "result", "")) for event in trace)


def test_several_approvals_are_answered_by_their_ids() -> None:
    asked = {
        name: ApprovalRequested(approval_id=name, kind="tool", tool_name="pay") for name in ("ap-1", "ap-2")
    }
    forms = {"ap-1": {"approve": True, "note": "fine"}, "ap-2": {"approve": False}}
    found = answers_in(Message(parts=[new_data_part(forms)]), asked)
    assert {key: (each.decision, each.note) for key, each in found.items()} == {
        "ap-1": ("approved", "fine"),
        "ap-2": ("rejected", ""),
    }
    for odd in (
        new_text_part("yes"),
        new_data_part({"ap-1": {"approve": True}}),
        new_data_part({"approve": True}),
    ):
        with pytest.raises(A2AError):
            answers_in(Message(parts=[odd]), asked)


async def test_strangers_and_odd_requests_are_answered_in_the_protocol_s_own_form(local: Counter) -> None:
    ours = {"Authorization": f"Bearer {TOKENS['ada']}", "A2A-Version": "1.0"}
    viewer = {"Authorization": f"Bearer {TOKENS['vera']}"}
    get = b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "%s"}}'
    async with httpx2.AsyncClient(base_url=local.address) as http:
        assert (await http.post("/a2a/greeter", content=b"{}")).status_code == 401
        assert (await http.post("/a2a/greeter", content=b"{}", headers=viewer)).status_code == 403
        assert (await http.post("/a2a/nobody", content=b"{}", headers=ours)).status_code == 404
        assert (await http.post("/a2a/greeter", content=b" " * (33 << 20), headers=ours)).status_code == 413
        codes = [
            (await http.post("/a2a/greeter", content=body, headers=ours)).json()["error"]["code"]
            for body in (
                b"{",
                b"[]",
                b'{"jsonrpc": "2.0", "id": 1, "method": "Nope"}',
                get % b"nope",
                get % b"../x",
            )
        ]
        assert codes == [-32700, -32600, -32601, -32001, -32001]
        card = (await http.get("/a2a/greeter/.well-known/agent-card.json")).json()
    assert card["supportedInterfaces"][0]["url"] == f"{local.address}/a2a/greeter"
    assert card["securitySchemes"]["token"]["httpAuthSecurityScheme"]["scheme"] == "bearer"
