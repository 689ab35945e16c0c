"""Agents behind AG-UI, used by the client of AG-UI."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from foldlog.adapters.agui.asked import read_asked
from foldlog.adapters.agui.telling import Telling
from foldlog.adapters.http.answers import Refused
from foldlog.eventlog.events import (
    ApprovalRequested,
    ChildFinished,
    ChildStarted,
    DetailedEvent,
    Reasoning,
    Step,
    Text,
    TextReset,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.javascript.packages import Packages, installed_packages
from tests.protocols.counter import TOKENS, Counter

pytestmark = pytest.mark.anyio
ORDER = "Order 17 was paid twice"
READ_S = 60.0


@pytest.fixture(scope="module")
async def packages(anyio_backend: str) -> Packages:
    return await installed_packages()


class Page:
    """The client, in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def tell(self, command: str, **given: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"command": command, **given}).encode() + b"\n")
        return await self.read()

    async def read(self) -> Any:
        assert self._process.stdout is not None
        async with asyncio.timeout(READ_S):
            return json.loads(await self._process.stdout.readline())


@contextlib.asynccontextmanager
async def opened(packages: Packages, counter: Counter, agent: str, who: str = "ada") -> AsyncIterator[Page]:
    pipe = asyncio.subprocess.PIPE
    command = ["agui_client.js", f"{counter.address}/agui/{agent}", TOKENS[who], "thread-1"]
    process = await asyncio.create_subprocess_exec(
        packages.node, *command, cwd=packages.directory, stdin=pipe, stdout=pipe, limit=1 << 24
    )
    try:
        yield Page(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_a_conversation_with_a_tool_an_approval_and_a_reconnect(
    counter: Counter, packages: Packages
) -> None:
    async with opened(packages, counter, "refunds") as page:
        first = await page.tell("run", runId="r1", text=ORDER)
        assert first["error"] == ""
        assert first["last"]["outcome"]["type"] == "interrupt"
        (asked,) = first["interrupts"]
        assert asked["message"].startswith("refunds asks for approval (tool): refund")
        assert asked["responseSchema"]["required"] == ["approve"]
        roles = [each["role"] for each in first["messages"]]
        assert roles == ["user", "assistant", "tool", "assistant"]
        assert first["messages"][3]["content"] == "It was paid twice."
        assert "ACTIVITY_SNAPSHOT" in first["types"]

        await counter.restart()
        again = await page.tell("fresh", runId="r1", text=ORDER)
        assert again["messages"] == first["messages"]
        assert again["interrupts"] == first["interrupts"]

        done = await page.tell("resume", runId="r2", payload={"approve": True, "note": "called"})
        assert (done["error"], done["last"]["outcome"]) == ("", {"type": "success"})
        assert done["last"]["result"] == "Order 17 is refunded."
        assert [each["content"] for each in done["messages"][-2:]] == [
            "40 EUR were paid back for order 17",
            "Order 17 is refunded.",
        ]
        assert done["messages"][: len(first["messages"])] == first["messages"]
        late = await page.tell("fresh", runId="r1", text=ORDER)
        assert late["messages"] == done["messages"]
    (run,) = await counter.runtime.list_runs()
    (row,) = await counter.runtime.approvals(pending=False)
    assert (row.by, row.note, run.session) == ("ada", "called", "thread-1")
    assert (run.executor, run.trigger and run.trigger.name) == (counter.executor, "agui")


async def test_a_run_is_cancelled_by_its_id_and_not_by_a_page_that_closes(
    counter: Counter, packages: Packages
) -> None:
    bearer = {"Authorization": f"Bearer {TOKENS['ada']}"}
    async with opened(packages, counter, "sleeper") as page:
        begun = await page.tell("run", runId="r1", text="sleep", tellCalls=True)
        await counter.asleep.wait()
        async with httpx2.AsyncClient(base_url=counter.address, headers=bearer) as http:
            given = {"foldlogRunId": begun["foldlogRunId"]}
            other = await http.post("/agui/refunds/cancel", json=given)
            assert (other.status_code, other.json()["type"]) == (404, "RUN_ERROR")
            gone = await http.post("/agui/sleeper/cancel", json=given)
            assert gone.json()["status"] == "cancelled"
        ended = await page.read()
        assert (ended["error"], ended["last"]["outcome"]) == ("", {"type": "cancelled"})
    assert (await counter.state(begun["foldlogRunId"])).cancel_by == "ada"


async def test_a_thread_remembers_and_what_is_refused_is_an_error_of_the_protocol(
    local: Counter, packages: Packages
) -> None:
    async with opened(packages, local, "greeter") as page:
        await page.tell("run", runId="r1", text="I am Ada.")
        second = await page.tell("run", runId="r2", text="Who?")
        assert [each["content"] for each in second["messages"]][-2:] == ["Who?", "Hello there."]
        tool = {"name": "f", "description": "", "parameters": {}}
        refused = await page.tell("run", runId="r3", text="?", tools=[tool])
        assert "an agent has its own" in refused["error"]
    rows = await local.runtime.list_runs(session="thread-1")
    history = await local.runtime.get_run(rows[0].run_id).history()
    assert [each.content for each in history if each.role == "user"] == ["I am Ada.", "Who?"]


REFUSED: dict[str, tuple[int, str, bytes]] = {
    "no JSON": (400, "ada", b"{"),
    "a list": (422, "ada", b"[]"),
    "no messages": (422, "ada", b'{"threadId": "t", "runId": "r"}'),
    "no thread": (422, "ada", b'{"runId": "r", "messages": [{"role": "user", "content": "x"}]}'),
    "shared state": (422, "ada", b'{"state": {"a": 1}}'),
    "an answer to nothing": (
        422,
        "ada",
        b'{"threadId": "t", "runId": "r", "resume": [{"interruptId": "x", "status": "resolved"}]}',
    ),
    "an agent that is not there": (404, "ada", b""),
    "a viewer": (403, "vera", b"{}"),
    "a stranger": (401, "", b"{}"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_odd_requests_are_answered_with_a_run_error(local: Counter, name: str) -> None:
    status, who, body = REFUSED[name]
    headers = {"Content-Type": "application/json"}
    if who:
        headers["Authorization"] = f"Bearer {TOKENS[who]}"
    agent = "nobody" if status == 404 else "greeter"
    body = body or b'{"threadId": "t", "runId": "r", "messages": [{"role": "user", "content": "x"}]}'
    async with httpx2.AsyncClient(base_url=local.address) as http:
        got = await http.post(f"/agui/{agent}", content=body, headers=headers)
    assert (got.status_code, got.json()["type"]) == (status, "RUN_ERROR"), got.text
    assert await local.runtime.list_runs() == []


def types(telling: Telling, *events: DetailedEvent) -> list[str]:
    return [sent["type"] for event in events for sent in telling.feed(event)]


def test_what_a_retry_takes_back_is_corrected_by_a_snapshot() -> None:
    telling = Telling("r", [{"id": "u", "role": "user", "content": "Hi"}])
    own: dict[str, Any] = {"run_id": "r", "agent_path": "a", "step": 1}
    told = types(telling, Step(status="started", **own), Text(text="Hello wor", **own))
    assert told == ["STEP_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"]
    ended, snapshot = telling.feed(TextReset(offset=6, channel="text", cause="retry", **own))
    assert ended["type"] == "TEXT_MESSAGE_END"
    assert snapshot["messages"][1] == {"id": "r-s1", "role": "assistant", "content": "Hello "}
    again = list(telling.feed(Text(text="there", offset=6, **own)))
    assert [(each["type"], each.get("delta")) for each in again] == [
        ("TEXT_MESSAGE_START", None),
        ("TEXT_MESSAGE_CONTENT", "there"),
    ]


def test_a_run_below_is_a_subagent_that_an_interrupt_suspends() -> None:
    telling = Telling("r", [])
    root: dict[str, Any] = {"run_id": "r", "agent_path": "a", "step": 1}
    below: dict[str, Any] = {"run_id": "r_1", "agent_path": "a/b", "step": 1}
    asked = ApprovalRequested(approval_id="ap-1", kind="tool", tool_name="pay", **below)
    events = [
        Step(status="started", **root),
        ChildStarted(child_run="r_1", name="b", kind="agent", tool_call_id="c", **root),
        Step(status="started", **below),
        Reasoning(text="Hm", **below),
        asked,
    ]
    assert types(telling, *events) == [
        "STEP_STARTED",
        "SUBAGENT_STARTED",
        "STEP_STARTED",
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
    ]
    (interrupt,) = telling.interrupts("")
    assert (interrupt["id"], interrupt["subagentRunId"]) == ("ap-1", "r_1")
    ended = list(telling.suspended())
    assert [each["type"] for each in ended] == ["STEP_FINISHED", "STEP_FINISHED", "SUBAGENT_FINISHED"]
    assert ended[-1]["outcome"] == {"type": "suspended", "interruptIds": ["ap-1"]}
    assert [each["type"] for each in telling.resumed()] == [
        "SUBAGENT_STARTED",
        "STEP_STARTED",
        "STEP_STARTED",
    ]
    over = ChildFinished(child_run="r_1", status="error", **root)
    assert types(telling, over) == ["STEP_FINISHED", "SUBAGENT_ERROR"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "role", "content", "text", "source", "value"]), inner)
    ),
    max_leaves=10,
)


@given(
    st.dictionaries(st.sampled_from(["threadId", "runId", "messages", "context", "resume", "tools"]), JSON)
)
def test_no_request_is_more_than_refused(body: dict[str, Any]) -> None:
    with contextlib.suppress(Refused):
        asked = read_asked(body)
        assert asked.content or asked.answers
