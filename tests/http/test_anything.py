"""Any request to anything that is served: no error of the server, no hang, and one clear message for each refusal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from foldlog.adapters.cli.protocols import NAMES, protocol_routes
from foldlog.adapters.console import rates
from foldlog.adapters.console.app import console_app, console_door
from foldlog.adapters.console.options import ApiOptions
from foldlog.adapters.console.serving import shielded
from foldlog.adapters.console.table import ROUTES
from foldlog.adapters.http.access import Access
from foldlog.adapters.http.app import health_routes, hook_routes
from foldlog.adapters.http.hooks import load_hooks
from foldlog.eventlog import Log, MemoryLog
from foldlog.runtime import Registry, Runtime, Schedule

from tests.http.anything import Sender, send, wrong
from tests.http.api import ROLES, TOKENS, charge, desk, paused, triager
from tests.http.door import tables

RPC = {"jsonrpc": "2.0", "id": 1}
USER = {"role": "user", "content": "Hello"}
MCP = (
    "tools/list",
    "tools/call",
    "prompts/list",
    "resources/read",
    "ping",
    "notifications/initialized",
    "tasks/get",
)
A2A = (
    "SendMessage",
    "SendStreamingMessage",
    "GetTask",
    "CancelTask",
    "SubscribeToTask",
    "ListTasks",
    "message/send",
)
CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
PART = {"text": "Hello", "kind": "text"}
MESSAGE = {
    "messageId": "m1",
    "contextId": "{session}",
    "taskId": "{run}",
    "role": "ROLE_USER",
    "parts": [PART],
}
SEEN = {
    "type": "image",
    "source": {"type": "url", "value": "https://example.com/a.png", "mimeType": "image/png"},
}
AGUI = {
    "threadId": "t1", "runId": "{run}", "state": {}, "tools": [], "forwardedProps": {},
    "context": [{"description": "page", "value": "orders"}],
    "messages": [
        {"id": "m1", "role": "system", "content": "Be brief."}, {"id": "m2", "role": "assistant", "content": "Yes?"},
        {"id": "m3", "role": "user", "content": [{"type": "text", "text": "Hello"}, SEEN]},
    ],
}  # fmt: skip
RESUMED = AGUI | {
    "resume": [{"interruptId": "{approval}", "status": "resolved", "payload": {"approved": True}}]
}
OTHERS: Sequence[tuple[str, str, Any]] = (
    ("POST", "/mcp", RPC | {"method": "initialize", "params": CLIENT}),
    *(
        (
            "POST",
            "/mcp",
            RPC | {"method": each, "params": {"name": "{agent}", "arguments": {"input": "Hi"}, "uri": "x"}},
        )
        for each in MCP
    ),
    ("GET", "/mcp", None),
    ("DELETE", "/mcp", None),
    ("GET", "/a2a/{agent}/.well-known/agent-card.json", None),
    *(
        (
            "POST",
            "/a2a/{agent}",
            RPC | {"method": each, "params": {"id": "{run}", "message": MESSAGE, "metadata": {}}},
        )
        for each in A2A
    ),
    ("POST", "/agui/{agent}", AGUI),
    ("POST", "/agui/{agent}", RESUMED),
    ("POST", "/agui/{agent}/cancel", AGUI),
    ("GET", "/v1/models", None),
    ("GET", "/v1/models/{agent}", None),
    ("POST", "/v1/responses", {"model": "{agent}", "input": "Hello", "stream": True, "store": True}),
    (
        "POST",
        "/v1/responses",
        {"model": "{agent}", "input": [USER], "previous_response_id": "{run}", "tools": []},
    ),
    ("GET", "/v1/responses/{run}", None),
    ("POST", "/v1/responses/{run}/cancel", None),
    ("POST", "/hooks/{hook}", {"text": "It is broken", "id": "d1"}),
    ("POST", "/v1/runs/{run}/signals/paid", {"eur": 40}),
    ("POST", "/v1/callbacks/{run}", {"page": 1}),
    ("GET", "/", None),
    ("GET", "/assets/{run}", None),
    ("GET", "/runs/{run}", None),
    ("GET", "/healthz", None),
    ("GET", "/readyz", None),
    ("GET", "/metrics", None),
    ("GET", "/openapi.json", None),
)


@contextlib.asynccontextmanager
async def everything(log: Log) -> AsyncIterator[tuple[Any, Runtime]]:
    """An application of all parts that `foldlog serve` can serve."""
    registry = Registry(agents=[desk(), triager()], tools=[charge])
    async with (
        Runtime.open(log=log, registry=registry) as runtime,
        Access.read(TOKENS).following(log) as access,
        contextlib.AsyncExitStack() as stack,
    ):
        door = console_door(runtime, ApiOptions(executor="local", console=True), access)
        stack.push_async_callback(door.aclose)
        closing = asyncio.Event()
        names = tuple(name for name in NAMES if name != "nats")
        routes = await stack.enter_async_context(
            protocol_routes(names, runtime, door.identity, executor="local", closing=closing)
        )
        stack.callback(closing.set)
        hooks = hook_routes(runtime, load_hooks(runtime, tables()), access)
        yield console_app(door, health_routes(log), hooks, shielded(routes, door)), runtime


async def ids_of(runtime: Runtime) -> dict[str, Sequence[str]]:
    """Things that addresses may name: runs that wait and are over, with their approvals, a schedule, a session."""
    run, approval = await paused(runtime, session="talk")
    over = await runtime.start(runtime.registry.agents["triager"], "Hello", session="chat")
    await over.result()
    await runtime.schedules.apply(Schedule("hourly", "triager", "x", every="1h"))
    runs = [run, over.run_id]
    return {
        "run": runs, "job": runs, "run_id": runs, "root": runs, "approval": [approval], "approval_id": [approval],
        "agent": ["desk", "triager"], "session": ["talk", "chat"], "schedule": ["hourly"], "name": ["hourly", "ada"],
        "hook": [*tables()], "tool": ["refund", "charge"], "key": ["k"], "id": [*runs, approval], "user": ["ada"],
    }  # fmt: skip


def unknown(record: logging.LogRecord) -> str:
    """Return an error that nobody has foreseen, as it is logged; the A2A library also logs each bad request."""
    foreseen = record.name.startswith("a2a") and "nhandled" not in record.getMessage()
    return "" if foreseen else f"{record.name}: {record.getMessage()} {record.exc_info or ''}"


@pytest.mark.parametrize(
    ("seed", "count"),
    [(0, 300), *(pytest.param(seed, 2500, marks=pytest.mark.nightly) for seed in range(1, 9))],
)
async def test_whatever_is_asked_gets_an_answer_and_each_refusal_has_one_message(
    seed: int, count: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for kind in rates.RATES:
        monkeypatch.setitem(rates.RATES, kind, "100000/m")
    caplog.set_level(logging.ERROR)
    found: list[str] = []
    statuses: set[int] = set()
    async with everything(MemoryLog()) as (app, runtime):
        known = await ids_of(runtime)
        sender = Sender(seed, lambda name: known.get(name, ()), ROLES)
        for number in range(count):
            if number % 3 == 0:
                wish = sender.of(*OTHERS[number // 3 % len(OTHERS)])
            else:
                wish = sender.of_route(ROUTES[number % len(ROUTES)])
            before = len(caplog.records)
            try:
                reply = await send(app, wish)
                statuses.add(reply.status)
                problem = wrong(wish, reply)
            except Exception as error:  # noqa: BLE001 - a server would make a 500 of it
                problem = f"it raised {error!r}"
            logged = [told for record in caplog.records[before:] if (told := unknown(record))]
            if problem or logged:
                found.append(f"{wish.told}: {problem} {logged}")
    assert not found, json.dumps(found[:20], indent=1)
    assert {200, 400, 401, 403, 404, 405, 422} <= statuses
