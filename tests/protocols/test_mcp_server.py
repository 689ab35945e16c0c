"""Agents as tools of an MCP server, used by the client of the MCP SDK."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.runtime import Runtime
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.protocols.counter import TOKENS, Counter

pytestmark = pytest.mark.anyio
ORDER = {"input": "Order 17 was paid twice"}


class Person:
    """Somebody who answers questions, and remembers them."""

    def __init__(self, action: Any = "accept", **content: Any) -> None:
        self.asked: list[str] = []
        self._answer = types.ElicitResult(action=action, content=content or None)

    async def __call__(self, _: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params.message)
        return self._answer


@contextlib.asynccontextmanager
async def connected(
    counter: Counter, person: Person | None = None, *, mode: str = "auto", who: str = "ada"
) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {TOKENS[who]}"}
    async with httpx2.AsyncClient(headers=headers, timeout=120) as http:
        transport = streamable_http_client(f"{counter.address}/mcp", http_client=http)
        async with Client(transport, elicitation_callback=person, mode=mode) as client:
            yield client


def text(result: types.CallToolResult) -> str:
    (part,) = result.content
    assert isinstance(part, types.TextContent)
    return part.text


def run_of(result: types.CallToolResult) -> str:
    assert result.structured_content is not None
    return str(result.structured_content["run_id"])


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_tool_call_with_progress_and_an_approval(counter: Counter, mode: str) -> None:
    told: list[str] = []

    async def progress(_: float, __: float | None, message: str | None) -> None:
        told.append(message or "")

    yes = Person(approve=True, note="called the customer")
    async with connected(counter, yes, mode=mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["refunds", "greeter", "sleeper"]
        done = await client.call_tool("refunds", ORDER, progress_callback=progress)
        assert (text(done), done.is_error) == ("Order 17 is refunded.", False)
    (asked,) = yes.asked
    assert asked.startswith("refunds asks for approval (tool): refund")
    assert "refunds calls find_order" in told
    assert "find_order 1/1 found" in told
    (row,) = await counter.runtime.approvals(pending=False)
    assert (row.by, row.note, row.run_id) == ("ada", "called the customer", run_of(done))
    state = await counter.state(row.run_id)
    assert state.submitted is not None
    assert (state.submitted.executor, state.submitted.trigger.name) == (counter.executor, "mcp")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_call_that_is_cancelled_cancels_its_run(counter: Counter, mode: str) -> None:
    async with connected(counter, mode=mode) as client:
        call = asyncio.create_task(client.call_tool("sleeper", {"input": "sleep"}))
        await counter.asleep.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        (row,) = await counter.runtime.list_runs()
        async with asyncio.timeout(120):
            async for event in counter.runtime.get_run(row.run_id).stream():
                last = event
    assert getattr(last, "status", "") == "cancelled"
    assert (await counter.state(row.run_id)).cancel_by == "ada"


async def test_a_question_outlives_the_server_and_is_answered_by_the_repeated_call(counter: Counter) -> None:
    async with connected(counter, Person()) as client:
        first = await client.session.call_tool("refunds", ORDER, allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)
    await counter.restart()
    async with connected(counter, Person(), who="bo") as client:
        ((approval, _),) = (first.input_requests or {}).items()
        done = await client.session.call_tool(
            "refunds",
            ORDER,
            allow_input_required=True,
            request_state=first.request_state,
            input_responses={approval: types.ElicitResult(action="accept", content={"approve": True})},
        )
        assert isinstance(done, types.CallToolResult)
        assert text(done) == "Order 17 is refunded."
    assert len(await counter.runtime.list_runs()) == 1
    (row,) = await counter.runtime.approvals(pending=False)
    assert row.by == "bo"


async def test_a_run_in_the_background_outlives_the_server_and_is_waited_for_by_its_id(
    counter: Counter,
) -> None:
    async with connected(counter, Person("decline")) as client:
        begun = await client.call_tool("refunds", {**ORDER, "background": True})
        run = run_of(begun)
    await counter.restart()
    no = Person("decline")
    async with connected(counter, no) as client:
        assert text(await client.call_tool("refunds", {"run": run})) == "Order 17 is refunded."
    (row,) = await counter.runtime.approvals(pending=False)
    assert (row.decision, len(no.asked)) == ("rejected", 1)


async def test_who_cannot_be_asked_is_told_who_can(local: Counter) -> None:
    async with connected(local) as client:
        waits = await client.call_tool("refunds", ORDER)
        (row,) = await local.runtime.approvals()
        assert f"foldlog approvals approve {row.approval_id}" in text(waits)
        assert waits.structured_content is not None
        assert waits.structured_content["status"] == "paused"
        await local.runtime.get_run(row.run_id).resolve(row.approval_id, "approved", by="bo")
        assert text(await client.call_tool("refunds", {"run": row.run_id})) == "Order 17 is refunded."
    dismissing = Person("cancel")
    async with connected(local, dismissing, mode="legacy") as client:
        assert "waits for a person" in text(await client.call_tool("refunds", ORDER))


async def test_an_approval_that_is_given_elsewhere_ends_the_question(local: Counter) -> None:
    asked = asyncio.Event()

    async def never(_: Any, __: Any) -> types.ElicitResult:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with connected(local, never, mode="legacy") as client:  # type: ignore[arg-type]
        call = asyncio.create_task(client.call_tool("refunds", ORDER))
        await asked.wait()
        (row,) = await local.runtime.approvals()
        await local.runtime.get_run(row.run_id).resolve(row.approval_id, "approved", by="bo")
        assert text(await call) == "Order 17 is refunded."


ODD: dict[str, tuple[str, dict[str, Any], str]] = {
    "an unknown agent": ("nobody", ORDER, "no agent 'nobody'"),
    "nothing": ("greeter", {}, "give an input, or the run"),
    "both": ("greeter", {"input": "Hi", "run": "x"}, "give an input, or the run"),
    "another argument": ("greeter", {"input": "Hi", "depth": 1}, "no argument 'depth'"),
    "a number": ("greeter", {"input": 1}, "input must be a text"),
    "an empty text": ("greeter", {"input": ""}, "input must be a text"),
    "a text without end": ("greeter", {"input": "x" * (1 << 20) + "x"}, "more than 1,048,576"),
    "a run that is not there": ("greeter", {"run": "nope"}, "no run 'nope'"),
    "a run that is none": ("greeter", {"run": "../x"}, "no run '../x'"),
}


async def test_a_call_that_cannot_be_made_is_a_result_that_says_why(local: Counter) -> None:
    async with connected(local) as client:
        for name, given, message in ODD.values():
            refused = await client.call_tool(name, given)
            assert refused.is_error
            assert message in text(refused)
        done = await client.call_tool("greeter", {"input": "Hi", "conversation": "c-1"})
        other = await client.call_tool("sleeper", {"run": run_of(done)})
        assert "is one of 'greeter'" in text(other)


async def test_strangers_and_viewers_are_kept_out_of_the_address(local: Counter) -> None:
    post = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    viewer = {"Authorization": f"Bearer {TOKENS['vera']}"}
    ours = {"Authorization": f"Bearer {TOKENS['ada']}"}
    async with httpx2.AsyncClient(base_url=local.address) as http:
        got = [
            await http.post("/mcp", content=b"{}", headers=post),
            await http.post("/mcp", content=b"{}", headers={**post, **viewer}),
            await http.post("/mcp", content=b"{", headers={**post, **ours}),
            await http.post("/mcp", content=b" " * (5 << 20), headers={**post, **ours}),
            await http.post("/mcp", content=b"{}", headers={**post, **ours, "Mcp-Session-Id": "x"}),
        ]
        newest = {**ours, "Accept": "text/event-stream", "Mcp-Protocol-Version": "2099-01-01"}
        refused = await http.get("/mcp", headers=newest)
    assert [each.status_code for each in got] == [401, 403, 400, 413, 404]
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    assert refused.json()["detail"] == "this takes only POST"


async def test_over_stdio_the_client_starts_the_server(tmp_path: Path) -> None:
    scripts = {
        "shop.json": [
            {"tool_calls": [{"id": "1", "name": "pay", "arguments": {}}]},
            {"text": "It is paid."},
        ]
    }
    for name, turns in scripts.items():
        (tmp_path / name).write_text(json.dumps({"turns": turns}))
    (tmp_path / "shop.py").write_text(
        "from foldlog import Agent, Registry, tool\n"
        "@tool(effect='unsafe')\n"
        "def pay() -> str:\n"
        "    'Pay.'\n"
        "    print('a tool that prints')\n"
        "    return 'paid'\n"
        "agent = Agent('shop', model='scripted:shop.json', tools=[pay], hitl_tools=['pay'])\n"
        "registry = Registry(agents=[agent])\n"
    )
    async with EphemeralServer() as server:
        command = ["-m", "foldlog.adapters.cli", "--server", server.url, "mcp", "serve", "shop:registry"]
        parameters = StdioServerParameters(
            command=sys.executable,
            args=[*command, "--by", "ada"],
            cwd=tmp_path,
            env={"FOLDLOG_SCRIPT_DIR": str(tmp_path)},
        )
        async with Client(parameters, elicitation_callback=Person(approve=True)) as client:
            assert text(await client.call_tool("shop", {"input": "Pay"})) == "It is paid."
        async with Runtime.open(server.url) as runtime:
            (row,) = await runtime.approvals(pending=False)
            assert row.by == "ada"
