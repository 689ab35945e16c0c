"""Tools of MCP servers in a run: injected arguments, approvals, progress, on both executors, against a real server."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog import RunFailed
from foldlog.eventlog.events import ApprovalRequested, McpProgress, Prepared, ToolCall, ToolResult
from foldlog.eventlog.memory import MemoryLog
from foldlog.replay import load_trace
from foldlog.runtime import Agent, ToolContext, tool

from .conftest import Place, call, calls, names, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]
SERVER = str(Path(__file__).parents[1] / "fakes" / "mcp_server.py")


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Any]]:
    """One server for all tests, as an agent's configuration names it."""
    command = [sys.executable, SERVER, "http", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
            yield {"srv": {"url": url, "tools": ["search", "burst"]}}
        finally:
            process.kill()


@pytest.fixture(params=["local", "durable"])
async def cheap(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """A place in memory."""
    async with contextlib.AsyncExitStack() as stack:
        place = Place(MemoryLog(), request.param, stack)
        yield place
        await place.check_rules()


async def test_a_call_of_a_servers_tool_is_split_approved_and_recorded_as_a_local_one(
    cheap: Place, script: Script, servers: dict[str, Any]
) -> None:
    asks = calls(call("mcp__srv__search", "a", query="tides", why="to know"))
    agent = Agent(
        "finder",
        model=script(asks, says("done")),
        mcp_servers=servers,
        injected_tool_args={"why": "Why"},
        hitl_tools=["mcp__srv__search"],
    )
    await cheap.open(agent)
    run = await cheap.start(agent)
    async for event in run.stream():
        if isinstance(event, ApprovalRequested):
            assert (event.arguments, event.injected_args) == ({"query": "tides"}, {"why": "to know"})
            await run.resolve(event.approval_id, "approved", arguments={"query": "ebb"}, note="shorter")
    events = await cheap.events(run)
    (asked,) = [event for event in events if isinstance(event, ToolCall)]
    (result,) = [event for event in events if isinstance(event, ToolResult)]
    assert (asked.arguments, asked.injected_args) == ({"query": "tides"}, {"why": "to know"})
    assert result.result == "found ebb"
    assert result.metadata["injected_args"] == {"why": "to know"}
    assert result.metadata["edited_arguments"] == {"query": "ebb"}
    assert result.metadata["approval_status"] == "approved"
    properties = (await run.state()).tools["mcp__srv__search"].parameters["properties"]
    assert list(properties) == ["query", "why"]


async def test_a_clash_that_is_found_when_connecting_fails_the_preparation_and_names_both(
    cheap: Place, script: Script, servers: dict[str, Any]
) -> None:
    agent = Agent(
        "finder", model=script(says("done")), mcp_servers=servers, injected_tool_args={"query": "x"}
    )
    await cheap.open(agent)
    run = await cheap.start(agent)
    with pytest.raises(RunFailed) as failed:
        await run.result()
    assert failed.value.error_type == "config_error"
    assert "injected_tool_args.query: the tool 'mcp__srv__search' has a parameter 'query'" in str(
        failed.value
    )
    assert names(await cheap.events(run)) == ["status(starting)", "error", "status(error)"]


async def test_a_tool_that_needs_an_approval_and_is_not_offered_fails_the_preparation_by_its_name(
    cheap: Place, script: Script, servers: dict[str, Any]
) -> None:
    agent = Agent("finder", model=script(says("done")), mcp_servers=servers, hitl_tools=["mcp__srv__serch"])
    await cheap.open(agent)
    run = await cheap.start(agent)
    with pytest.raises(
        RunFailed, match="hitl_tools names 'mcp__srv__serch', which agent 'finder' does not have"
    ):
        await run.result()


async def test_a_choice_of_a_tool_that_the_server_does_not_have_fails_the_preparation_by_its_name(
    cheap: Place, script: Script, servers: dict[str, Any]
) -> None:
    choice = {"tool_choice": "mcp__srv__serch"}
    agent = Agent("finder", model=script(says("done")), mcp_servers=servers, settings=choice)
    await cheap.open(agent)
    run = await cheap.start(agent)
    with pytest.raises(RunFailed, match=r"settings\.tool_choice names 'mcp__srv__serch', which agent"):
        await run.result()


@pytest.mark.parametrize("told", [True, False])
async def test_without_emit_mcp_progress_only_the_event_is_missing(
    cheap: Place, script: Script, servers: dict[str, Any], told: bool
) -> None:
    turns = (calls(call("mcp__srv__burst", "a", count=3)), says("done"))
    agent = Agent("finder", model=script(*turns), mcp_servers=servers, emit_mcp_progress=told)
    await cheap.open(agent)
    run = await cheap.start(agent)
    assert (await run.result()).output == "done"
    events = await cheap.events(run)
    found = [(e.tool_name, e.progress, e.total) for e in events if isinstance(e, McpProgress)]
    assert found == ([("mcp__srv__burst", n, 3) for n in (1, 2, 3)] if told else [])
    (result,) = [event for event in events if isinstance(event, ToolResult)]
    assert result.success
    others = [name for name in names(events) if name != "mcp_progress"]
    assert others[1:5] == ["step(started)", "usage", "tool_call", "tool_result"]


async def test_the_lock_of_a_server_is_shared_by_pure_tools_and_unsafe_is_what_nothing_is_said_of(
    cheap: Place, script: Script, servers: dict[str, Any]
) -> None:
    pure = {"srv": {**servers["srv"], "effects": {"search": "pure"}}}
    agent = Agent("finder", model=script(says("done")), mcp_servers=pure)
    await cheap.open(agent)
    run = await cheap.start(agent)
    await run.result()
    (prepared,) = [e for e in (await load_trace(cheap.log, run.run_id)).events if isinstance(e, Prepared)]
    facts = {spec.name: (spec.effect, spec.lock, spec.exclusive) for spec in prepared.tools}
    assert facts == {
        "mcp__srv__search": ("pure", "server:srv", False),
        "mcp__srv__burst": ("unsafe", "server:srv", True),
    }


# --- postconditions ---------------------------------------------------------------------------------------------------

PAID = {"json_path": {"path": "$.state", "equals": "paid"}}
LOOK_UP = {"tool": "look_up", "arguments": {"number": "${invoice}"}}


class Bank:
    """The outside world: a file for each invoice, and a stdio server that pays them."""

    def __init__(self, folder: Path, entry: dict[str, Any]) -> None:
        self.folder = folder
        self.entry = {**entry, "env": {"FAKE_MCP_BANK": str(folder)}, "tools": ["pay"]}

    @property
    def payments(self) -> list[str]:
        return (self.folder / "payments").read_text().split()


@pytest.fixture
def bank(tmp_path: Path, mcp_server: dict[str, Any]) -> Bank:
    folder = tmp_path / "bank"
    folder.mkdir()
    return Bank(folder, mcp_server)


def payer(script: Script, bank: Bank, condition: Any, **arguments: Any) -> Agent[str]:
    """An agent that pays invoice 7; the model does not see the tool that looks."""
    entry = {**bank.entry, "postconditions": {"pay": condition}}
    asks = calls(call("mcp__srv__pay", "a", invoice="7", **arguments))
    return Agent("payer", model=script(asks, says("done")), mcp_servers={"srv": entry})


async def paid(place: Place, agent: Agent[str]) -> ToolResult:
    """Return the result of its one call."""
    await place.open(agent)
    run = await place.start(agent)
    assert (await run.result()).output == "done"
    assert [name for name in (await run.state()).tools if name.startswith("mcp__")] == ["mcp__srv__pay"]
    (result,) = [event for event in await place.events(run) if isinstance(event, ToolResult)]
    return result


@pytest.mark.parametrize(
    ("becomes", "error"),
    [
        ("paid", None),
        ("refused", 'json_path {"equals":"paid","path":"$.state"}: not_equal, observed "refused"'),
    ],
)
async def test_a_call_of_a_servers_tool_is_judged_by_what_another_tool_of_it_sees(
    cheap: Place, script: Script, bank: Bank, becomes: str, error: str | None
) -> None:
    result = await paid(cheap, payer(script, bank, {"assertions": [PAID], "probe": LOOK_UP}, becomes=becomes))
    assert result.result == "paid 7"
    assert result.error == (error and f"the postcondition does not hold: {error}")
    assert [finding["assertion"] for finding in result.metadata["postcondition"]] == [PAID]
    (evidence,) = result.metadata["evidence"]
    seen = json.loads(await cheap.log.artifacts.find(evidence["id"]))
    assert seen == {"data": {"number": "7", "state": becomes}}


async def test_without_a_probe_the_answer_of_a_servers_tool_is_its_evidence(
    cheap: Place, script: Script, bank: Bank
) -> None:
    condition = {"assertions": [{"text_contains": {"text": "paid ${invoice}"}}]}
    result = await paid(cheap, payer(script, bank, condition))
    (finding,) = result.metadata["postcondition"]
    assert finding == {"assertion": {"text_contains": {"text": "paid 7"}}, "status": "passed"}


@pytest.mark.parametrize(("becomes", "success"), [("paid", True), ("refused", False)])
async def test_an_unsafe_call_whose_server_died_is_looked_at_and_not_made_again(
    cheap: Place, script: Script, bank: Bank, becomes: str, success: bool
) -> None:
    condition = {"assertions": [PAID], "probe": LOOK_UP}
    result = await paid(cheap, payer(script, bank, condition, becomes=becomes, then="die"))
    assert result.success is success
    assert "postcondition" in result.metadata
    assert bank.payments == ["7"]


async def test_a_call_in_doubt_that_the_servers_probe_cannot_see_waits_for_people(
    cheap: Place, script: Script, bank: Bank
) -> None:
    probe = {"tool": "look_up", "arguments": {"number": "not ${invoice}"}}
    agent = payer(script, bank, {"assertions": [PAID], "probe": probe}, then="die")
    await cheap.open(agent)
    run = await cheap.start(agent)
    async for event in run.stream():
        if isinstance(event, ApprovalRequested):
            assert event.kind == "unverifiable"
            (finding,) = event.postcondition
            assert finding["code"] == "probe_failed"
            assert "nobody knows invoice not 7" in finding["observed"]
            await run.resolve(event.approval_id, "approved", outcome="succeeded", result="paid")
    assert (await run.result()).output == "done"
    assert bank.payments == ["7"]


async def test_a_dead_workers_call_of_a_servers_tool_is_verified_by_the_worker_that_takes_over(
    cheap: Place, script: Script, bank: Bank
) -> None:
    agent = payer(script, bank, {"assertions": [PAID], "probe": LOOK_UP}, then="wait")
    await cheap.open(agent, lease_s=1.0)
    run = await cheap.start(agent)
    async for event in run.stream(detailed=True):
        if isinstance(event, McpProgress):
            break
    await cheap.cut_off(run)
    if cheap.executor == "local":
        await cheap.runtime.drive(run.run_id)
    assert (await run.result()).output == "done"
    (result,) = [event for event in await cheap.events(run) if isinstance(event, ToolResult)]
    assert result.success
    assert result.result.startswith("The call was interrupted, but it has achieved its purpose.")
    assert bank.payments == ["7"]


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        (
            {"assertions": [{"text_contains": {"text": "${invoce}"}}]},
            r"text_contains: \$\{invoce\} is not a parameter of the tool \(parameters: invoice, becomes, then\)",
        ),
        (
            {"assertions": [PAID], "probe": {"tool": "look_up", "arguments": {"number": "${id}"}}},
            r"mcp_servers\.srv\.postconditions\.pay\.probe\.arguments: \$\{id\} is not a parameter of the tool",
        ),
        (
            {"assertions": [PAID], "probe": {"tool": "lookup"}},
            r"srv\.postconditions\.pay\.probe: the server offers no tool 'lookup'; did you mean 'look_up'",
        ),
    ],
    ids=["assertion", "arguments", "tool"],
)
async def test_a_postcondition_that_does_not_fit_the_servers_tools_fails_the_preparation_and_says_why(
    cheap: Place, script: Script, bank: Bank, condition: Any, told: str
) -> None:
    agent = payer(script, bank, condition)
    await cheap.open(agent)
    run = await cheap.start(agent)
    with pytest.raises(RunFailed, match=told) as failed:
        await run.result()
    assert failed.value.error_type == "config_error"


async def test_a_server_cannot_set_the_user_of_the_run_that_calls_it(
    cheap: Place, script: Script, servers: dict[str, Any]
) -> None:
    seen: list[tuple[str | None, Any]] = []

    @tool(effect="pure")
    async def whose(context: ToolContext) -> str:
        """Note for whom."""
        seen.append((context.user, context.metadata))
        return "noted"

    lie = json.dumps({"user": "eve", "metadata": {"tenant": 9}, "_meta": {"user": "eve"}})
    model = script(
        calls(call("mcp__srv__search", "a", query=lie, user="eve")), calls(call("whose")), says("done")
    )
    agent = Agent(
        "finder", model=model, mcp_servers=servers, tools=[whose], injected_tool_args={"user": "For whom"}
    )
    await cheap.open(agent)
    run = await cheap.start(agent, user="ada", metadata={"tenant": 7})
    await run.result()
    assert seen == [("ada", {"tenant": 7})]
