"""Postconditions of tools (P12), on both executors and both logs: judged after a call, and in place of a lost one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from foldlog.adapters.builtin import Workspace, shell_tool
from foldlog.adapters.secrets import EnvironmentSecret
from foldlog.eventlog import ApprovalRequested, Claimed, ToolResult
from foldlog.replay import check_parity, compare, load_trace, rerun
from foldlog.runtime import Agent, Evidence, RunHandle, ToolContext, ToolFailed, postcondition, tool

from .conftest import Place, call, calls, names, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]
PAID = {"json_path": {"path": "$.state", "equals": "paid"}}


class Bank:
    """The outside world: invoices by number, and the numbers of payments and of looks."""

    def __init__(self) -> None:
        self.invoices: dict[str, str] = {}
        self.paid = self.looked = 0
        self.closed = False
        self.arrived, self.gate = asyncio.Event(), asyncio.Event()
        self.gate.set()

    async def look(self, invoice: str, context: ToolContext) -> Evidence | None:
        """Ask the bank."""
        self.looked += 1
        context.progress(1, 1, "nobody sees a probe look")
        if self.closed:
            raise ConnectionError("the bank is closed")
        state = self.invoices.get(invoice)
        return None if state is None else Evidence(http_status=200, data={"state": state, "by": "us"})

    def tool(self, becomes: str = "paid", **options: Any) -> Any:
        """A tool that pays, after which an invoice is what it becomes."""

        @postcondition({"http_status": {"equals": 200}}, PAID, probe=self.look)
        @tool(name="pay", **{"effect": "unsafe", **options})
        async def pay(invoice: str) -> str:
            self.paid += 1
            self.invoices[invoice] = becomes
            self.arrived.set()
            await self.gate.wait()
            return f"paid {invoice}"

        return pay


def payer(script: Script, *tools: Any, **options: Any) -> Agent[str]:
    model = script(calls(call("pay", invoice="7")), says("done"))
    return Agent("payer", model=model, tools=list(tools), **options)


async def result_of(place: Place, run: RunHandle[Any]) -> ToolResult:
    (result,) = [event for event in await place.events(run) if isinstance(event, ToolResult)]
    return result


async def asked(place: Place, run: RunHandle[Any]) -> ApprovalRequested:
    """Return the approval that the run waits for."""
    async for event in run.stream():
        if isinstance(event, ApprovalRequested):
            return event
    raise AssertionError("nothing was asked")


async def unseen_by(
    probe: Any, place: Place, script: Script, **options: Any
) -> tuple[RunHandle[str], ApprovalRequested]:
    """A run with a call that this probe does not look at, and what people are asked about it."""

    @postcondition(PAID, probe=probe)
    @tool(name="pay", **options)
    async def pay(invoice: str) -> str:
        return invoice

    agent = payer(script, pay)
    await place.open(agent)
    run = await place.start(agent)
    return run, await asked(place, run)


def statuses(report: Any) -> list[str]:
    return [finding["status"] for finding in report]


# --- after a call that returned ---------------------------------------------------------------------------------------


async def test_a_call_whose_postcondition_holds_has_succeeded_with_the_report(
    place: Place, script: Script
) -> None:
    bank = Bank()
    agent = payer(script, bank.tool())
    await place.open(agent)
    run = await place.start(agent)
    assert (await run.result()).output == "done"
    result = await result_of(place, run)
    assert (result.success, result.result) == (True, "paid 7")
    assert result.metadata["postcondition"] == [
        {"assertion": {"http_status": {"equals": 200}}, "status": "passed"},
        {"assertion": PAID, "status": "passed"},
    ]
    (evidence,) = result.metadata["evidence"]
    stored = json.loads(await place.log.artifacts.find(evidence["id"]))
    assert stored == {"data": {"by": "us", "state": "paid"}, "http_status": 200}
    assert evidence["media_type"] == "application/json"
    assert "mcp_progress" not in names(await place.events(run))
    assert (bank.paid, bank.looked) == (1, 1)
    again = await rerun(await load_trace(place.log, run.run_id))
    assert compare(await load_trace(place.log, run.run_id), again).equal
    assert (bank.paid, bank.looked) == (1, 1)


async def test_a_call_whose_postcondition_fails_has_failed_and_says_how(place: Place, script: Script) -> None:
    bank = Bank()
    agent = payer(script, bank.tool(becomes="refused"))
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    result = await result_of(place, run)
    assert (result.success, result.metadata["status"], result.result) == (False, "error", "paid 7")
    assert result.error == (
        'the postcondition does not hold: json_path {"equals":"paid","path":"$.state"}: not_equal, observed "refused"'
    )
    assert statuses(result.metadata["postcondition"]) == ["passed", "failed"]
    assert result.metadata["postcondition"][1]["observed"] == "refused"
    assert bank.paid == 1
    again = await rerun(await load_trace(place.log, run.run_id))
    assert compare(await load_trace(place.log, run.run_id), again).equal


async def test_an_idempotent_call_is_tried_again_when_its_postcondition_fails(
    place: Place, script: Script
) -> None:
    tried: list[int] = []

    @postcondition({"text_contains": {"text": "at last"}})
    @tool(name="pay", effect="idempotent", max_attempts=2)
    async def pay(invoice: str) -> str:
        tried.append(1)
        return "at last" if len(tried) > 1 else "not yet"

    agent = payer(script, pay, retry={"base_s": 0.001})
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    result = await result_of(place, run)
    assert (result.result, result.metadata["attempt"]) == ("at last", 2)
    trace = await load_trace(place.log, run.run_id)
    (failed,) = [event for event in trace.events if event.type == "tool_attempt_failed"]
    assert failed.error.endswith('text_contains {"text":"at last"}: not_found, observed "not yet"')


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"decision": "approved", "outcome": "succeeded"}, (True, "paid 7", None)),
        ({"decision": "approved", "outcome": "succeeded", "result": "seen"}, (True, "seen", None)),
        ({"decision": "rejected", "note": "not there"}, (False, None, "not there")),
    ],
    ids=["kept", "told", "failed"],
)
async def test_without_evidence_people_are_asked_and_what_they_say_counts(
    cheap: Place, script: Script, answer: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    place, bank = cheap, Bank()
    bank.closed = True
    agent = payer(script, bank.tool())
    await place.open(agent)
    run = await place.start(agent)
    request = await asked(place, run)
    assert (request.kind, request.result, request.expires_at) == ("unverifiable", "paid 7", None)
    assert statuses(request.postcondition) == ["error", "error"]
    assert {finding["code"] for finding in request.postcondition} == {"probe_failed"}
    assert "ConnectionError: the bank is closed" in request.reason
    await run.resolve(request.approval_id, **answer)
    assert (await run.result()).output == "done"
    result = await result_of(place, run)
    assert (result.success, result.result, result.error) == expected
    assert "postcondition" not in result.metadata  # nobody verified it: somebody said so
    assert (bank.paid, bank.looked) == (1, 1)
    trace = await load_trace(place.log, run.run_id)
    assert compare(trace, await rerun(trace)).equal


async def test_a_repeated_unverified_call_is_verified_again(place: Place, script: Script) -> None:
    bank = Bank()
    bank.closed = True
    agent = payer(script, bank.tool())
    await place.open(agent)
    run = await place.start(agent)
    request = await asked(place, run)
    bank.closed = False
    await run.resolve(request.approval_id, "approved", outcome="retry")
    assert (await run.result()).output == "done"
    result = await result_of(place, run)
    assert (result.result, result.metadata["attempt"]) == ("paid 7", 2)
    assert statuses(result.metadata["postcondition"]) == ["passed", "passed"]
    assert (bank.paid, bank.looked) == (2, 2)


async def test_siblings_of_an_unverified_call_go_on(place: Place, script: Script) -> None:
    bank, gate = Bank(), asyncio.Event()
    bank.closed = True

    @tool(effect="unsafe")
    async def count(what: str) -> str:
        await gate.wait()
        return f"counted {what}"

    model = script(calls(call("pay", invoice="7"), call("count", "c2", what="coins")), says("done"))
    agent = Agent("payer", model=model, tools=[bank.tool(), count])
    await place.open(agent)
    run = await place.start(agent)
    request = await asked(place, run)
    gate.set()
    async for event in run.stream(detailed=True):
        if isinstance(event, ToolResult):
            assert event.result == "counted coins"
            break
    await run.resolve(request.approval_id, "approved", outcome="succeeded")
    assert (await run.result()).output == "done"
    requests = [event for event in await place.events(run) if isinstance(event, ApprovalRequested)]
    assert [each.tool_name for each in requests] == ["pay"]


async def test_a_probe_that_takes_longer_than_the_call_may_leaves_it_unverified(
    cheap: Place, script: Script
) -> None:
    async def never(invoice: str) -> Evidence:
        await asyncio.Event().wait()
        raise AssertionError

    run, request = await unseen_by(never, cheap, script, timeout_s=0.05)
    assert request.postcondition[0]["observed"] == "timed out after 0.05 s"
    await run.resolve(request.approval_id, "approved", outcome="succeeded")
    assert (await run.result()).output == "done"


async def test_a_calls_own_result_and_what_it_observed_are_its_evidence(cheap: Place, script: Script) -> None:
    @postcondition({"json_schema": {"schema": {"type": "object", "required": ["id"]}}})
    @tool(name="pay", effect="unsafe")
    async def make(invoice: str) -> dict[str, str]:
        return {"id": invoice}

    @postcondition(
        {"http_status": {"equals": 201}},
        {"dom_contains": {"text": "invoice ${invoice} paid", "selector": "p.state"}},
    )
    @tool(name="show", effect="unsafe")
    async def show(invoice: str, context: ToolContext) -> str:
        page = "<p>Hello</p><p class='state'>Invoice <b>7</b>\npaid</p>"
        context.observe(Evidence(http_status=201, text=page.lower(), text_type="text/html"))
        return "shown"

    model = script(calls(call("pay", invoice="7"), call("show", "c2", invoice="7")), says("done"))
    agent = Agent("payer", model=model, tools=[make, show])
    await cheap.open(agent)
    run = await cheap.start(agent)
    await run.result()
    results = [event for event in await cheap.events(run) if isinstance(event, ToolResult)]
    assert [result.success for result in results] == [True, True]
    (page,) = [each for each in results if each.tool_name == "show"]
    assert [each["media_type"] for each in page.metadata["evidence"]] == ["text/html", "application/json"]
    assert page.metadata["postcondition"][1]["assertion"]["dom_contains"]["text"] == "invoice 7 paid"


async def test_files_are_looked_at_in_the_workspace_and_nowhere_else(
    cheap: Place, script: Script, tmp_path: Path
) -> None:
    folder = tmp_path / "ws"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    digest = sha256(b"42").hexdigest()

    @postcondition(
        {"file_exists": {"path": "out/${name}.txt"}},
        {"file_digest": {"path": "out/${name}.txt", "sha256": digest}},
        workspace=Workspace(folder),
    )
    @tool(name="write", effect="unsafe")
    async def write(name: str, text: str = "42") -> str:
        (folder / "out").mkdir(exist_ok=True)
        if name != "nothing":
            (folder / "out" / "a.txt").write_text(text)
        return "written"

    asks = [{"name": "a"}, {"name": "a", "text": "43"}, {"name": "nothing"}, {"name": "../../secret"}]
    turns = [calls(call("write", f"c{number}", **each)) for number, each in enumerate(asks)]
    agent = Agent("writer", model=script(*turns, says("done")), tools=[write])
    await cheap.open(agent)
    run = await cheap.start(agent)
    request = await asked(cheap, run)
    await run.resolve(request.approval_id, "rejected")
    await run.result()
    reports = [
        [(finding["status"], finding.get("code")) for finding in event.metadata.get("postcondition", ())]
        for event in await cheap.events(run)
        if isinstance(event, ToolResult)
    ]
    assert reports == [
        [("passed", None), ("passed", None)],
        [("passed", None), ("failed", "not_equal")],
        [("failed", "no_file"), ("failed", "no_file")],
        [],
    ]
    assert [finding["code"] for finding in request.postcondition] == ["evidence_missing"] * 2
    assert "is outside the workspace" in request.reason


async def test_a_built_in_tool_can_have_a_postcondition(cheap: Place, script: Script, tmp_path: Path) -> None:
    from foldlog.adapters.runners import SubprocessRunner

    shell = postcondition({"exit_code": {"equals": 0}})(shell_tool(SubprocessRunner(Workspace(tmp_path))))
    turns = [
        calls(call("shell", f"c{number}", command=["sh", "-c", f"exit {number}"])) for number in range(2)
    ]
    agent = Agent("operator", model=script(*turns, says("done")), tools=[shell])
    await cheap.open(agent)
    run = await cheap.start(agent)
    await run.result()
    results = [event for event in await cheap.events(run) if isinstance(event, ToolResult)]
    assert [result.success for result in results] == [True, False]
    assert results[1].result["exit_code"] == 1


# --- in place of a call that is lost ----------------------------------------------------------------------------------


async def lost(place: Place, script: Script, bank: Bank, **options: Any) -> RunHandle[Any]:
    """A run whose unsafe call was started and is gone on with by somebody else."""
    bank.gate.clear()
    agent = payer(script, bank.tool(**options))
    await place.open(agent, lease_s=1.0)
    run = await place.start(agent)
    await bank.arrived.wait()
    await place.cut_off(run)
    return run


async def go_on(place: Place, run: RunHandle[Any]) -> None:
    """The driver is gone; a worker takes over without a request."""
    if place.executor == "local":
        await place.runtime.drive(run.run_id)


async def test_a_lost_call_whose_postcondition_holds_is_done_and_not_run_again(
    place: Place, script: Script
) -> None:
    bank = Bank()
    run = await lost(place, script, bank)
    assert (await run.result()).output == "done"
    result = await result_of(place, run)
    assert result.success
    assert result.result.startswith("The call was interrupted, but it has achieved its purpose.")
    assert statuses(result.metadata["postcondition"]) == ["passed", "passed"]
    assert len(result.metadata["evidence"]) == 1
    assert (bank.paid, bank.looked) == (1, 1)
    assert "approval_requested" not in names(await place.events(run))
    trace = await load_trace(place.log, run.run_id)
    assert compare(trace, await rerun(trace)).equal
    assert (bank.paid, bank.looked) == (1, 1)


async def test_a_lost_call_whose_postcondition_fails_has_failed(place: Place, script: Script) -> None:
    bank = Bank()
    run = await lost(place, script, bank, becomes="refused")
    assert (await run.result()).output == "done"
    result = await result_of(place, run)
    assert (result.success, result.result) == (False, None)
    assert "not_equal" in (result.error or "")
    assert bank.paid == 1


async def test_a_lost_call_that_cannot_be_verified_waits_for_an_operator(
    place: Place, script: Script
) -> None:
    bank = Bank()
    bank.closed = True
    run = await lost(place, script, bank)
    request = await asked(place, run)
    assert statuses(request.postcondition) == ["error", "error"]
    assert "the bank is closed" in request.reason
    bank.closed = False
    bank.gate.set()
    await run.resolve(request.approval_id, "approved", outcome="retry")
    await go_on(place, run)
    assert (await run.result()).output == "done"
    result = await result_of(place, run)
    assert (result.result, bank.paid) == ("paid 7", 2)


async def test_a_lost_call_without_a_probe_waits_for_people_with_a_report_of_what_is_missing(
    cheap: Place, script: Script
) -> None:
    arrived = asyncio.Event()

    @postcondition({"text_contains": {"text": "ok"}})
    @tool(name="pay", effect="unsafe")
    async def pay(invoice: str) -> str:
        arrived.set()
        await asyncio.Event().wait()
        return "ok"

    agent = payer(script, pay)
    await cheap.open(agent, lease_s=1.0)
    run = await cheap.start(agent)
    await arrived.wait()
    await cheap.cut_off(run)
    request = await asked(cheap, run)
    assert [(finding["code"], finding["observed"]) for finding in request.postcondition] == [
        ("evidence_missing", "text")
    ]
    await run.resolve(request.approval_id, "approved", outcome="succeeded", result="ok")
    await go_on(cheap, run)
    assert (await run.result()).output == "done"


async def test_of_several_lost_calls_each_is_settled_by_what_is_seen_of_it(
    cheap: Place, script: Script
) -> None:
    bank, waiting = Bank(), asyncio.Event()
    bank.gate.clear()

    @postcondition({"text_contains": {"text": "ok"}})
    @tool(effect="unsafe")
    async def note(text: str) -> str:
        waiting.set()
        await asyncio.Event().wait()
        return "ok"

    model = script(calls(call("pay", invoice="7"), call("note", "c2", text="x")), says("done"))
    agent = Agent("payer", model=model, tools=[bank.tool(), note])
    await cheap.open(agent, lease_s=1.0)
    run = await cheap.start(agent)
    await bank.arrived.wait()
    await waiting.wait()
    await cheap.cut_off(run)
    request = await asked(cheap, run)
    assert request.tool_name == "note"
    async for event in run.stream(detailed=True):
        if isinstance(event, ToolResult):
            assert event.tool_name == "pay"
            break
    await run.resolve(request.approval_id, "approved", outcome="failed", note="no")
    await go_on(cheap, run)
    assert (await run.result()).output == "done"
    assert bank.paid == 1


async def test_a_planner_reads_that_a_call_cannot_be_verified(
    cheap: Place, script: Script, tmp_path: Path
) -> None:
    async def nothing(at: str) -> None:
        return None

    @postcondition({"http_status": {"equals": 200}}, probe=nothing)
    @tool(effect="pure")
    async def look(at: str) -> str:
        return f"saw {at}"

    plans = tmp_path / "planner.json"
    plans.write_text(json.dumps({"turns": [], "planner": [calls(call("look", at="x")), says("1. Look.")]}))
    agent = Agent(
        "planned",
        model=script(says("done")),
        planning_model=f"scripted:{plans}",
        planning_enabled=True,
        tools=[look],
    )
    await cheap.open(agent)
    run = await cheap.start(agent)
    assert (await run.result()).output == "done"
    trace = await load_trace(cheap.log, run.run_id)
    (answer,) = [event for event in trace.events if event.type == "planner_tool_returned"]
    assert answer.error == (
        'the postcondition cannot be verified: http_status {"equals":200}: evidence_missing, http_status'
    )


async def test_a_probe_that_cannot_be_meant_leaves_the_call_unverified(cheap: Place, script: Script) -> None:
    def looks(invoice: str) -> Any:
        raise ToolFailed("no such page") if invoice == "7" else AssertionError

    run, request = await unseen_by(looks, cheap, script)
    assert request.postcondition[0]["observed"] == "no such page"
    await run.cancel()


# --- executors, forks, secrets ----------------------------------------------------------------------------------------


async def test_wherever_a_worker_dies_the_call_is_verified_and_the_result_is_the_same() -> None:
    looked = 0

    async def wired(text: str) -> Evidence:
        nonlocal looked
        looked += 1
        return Evidence(text=f"wired {text}", result=f"wired {text}")

    @postcondition({"text_contains": {"text": "${text}"}}, probe=wired)
    @tool(effect="unsafe")
    async def wire(text: str) -> str:
        await asyncio.sleep(0)
        return f"wired {text}"

    agent = Agent("banker", model="openai:gpt-4o", tools=[wire])
    script = {"turns": [calls(call("wire", text="x")), says("done")]}
    lost = 0
    for operation in range(1, 16):
        report = await check_parity(agent, "question", script=script, faults=f"crash@{operation}")
        assert report.equal, report.render()
        events = report.traces["durable"].events
        assert not [event for event in events if isinstance(event, ApprovalRequested)]
        started = [index for index, event in enumerate(events) if event.type == "tool_started"]
        settled = [index for index, event in enumerate(events) if isinstance(event, ToolResult)]
        lost += any(isinstance(event, Claimed) for event in events[started[0] : settled[0]])
    assert lost


async def test_a_fork_takes_a_verified_result_and_nobody_looks_again(cheap: Place, script: Script) -> None:
    bank = Bank()
    agent = payer(script, bank.tool())
    await cheap.open(agent)
    run = await cheap.start(agent)
    await run.result()
    trace = await load_trace(cheap.log, run.run_id)
    before = next(event.revision for event in trace.events if event.type == "tool_call")
    fork = await cheap.fork(run, at=before, tools="replay")
    assert (await fork.result()).output == "done"
    result = await result_of(cheap, fork)
    assert (result.result, result.metadata["deduplicated"]) == ("paid 7", True)
    assert (bank.paid, bank.looked) == (1, 1)


async def test_secrets_stay_out_of_reports_and_evidence(
    cheap: Place, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BANK_PIN", "tell-nobody")

    async def look(pin: str) -> Evidence:
        assert pin == "tell-nobody"
        return Evidence(text=f"the pin is {pin}")

    @postcondition({"text_contains": {"text": "${pin}!"}}, probe=look)
    @tool(name="pay", effect="unsafe")
    async def pay(pin: str) -> str:
        return "paid"

    model = script(calls(call("pay", pin="secret://PIN")), says("done"))
    agent = Agent("payer", model=model, tools=[pay])
    await cheap.open(agent, secrets={"PIN": EnvironmentSecret(variable="BANK_PIN", tools=("pay",))})
    run = await cheap.start(agent)
    await run.result()
    result = await result_of(cheap, run)
    (finding,) = result.metadata["postcondition"]
    assert (finding["assertion"]["text_contains"]["text"], finding["observed"]) == (
        "secret://PIN!",
        "the pin is secret://PIN",
    )
    (evidence,) = result.metadata["evidence"]
    assert await cheap.log.artifacts.find(evidence["id"]) == b"the pin is secret://PIN"
    trace = await load_trace(cheap.log, run.run_id)
    assert all(b"tell-nobody" not in stored.data for stored in trace.stored)
