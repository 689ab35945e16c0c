"""Unsafe calls that started and whose end says nothing certain: a postcondition is asked, else people (R22, P14)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog import ApprovalRequested, LateOutcome, ToolResult, ToolStarted, decode
from foldlog.replay import load_trace, rerun
from foldlog.runtime import (
    Agent,
    Evidence,
    Retryable,
    RunHandle,
    ToolContext,
    ToolFailed,
    postcondition,
    tool,
)
from foldlog.runtime.ports.tools import ChildFailed, InvalidArguments, ToolTimedOut

from .conftest import Place, call, calls, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]
PAID = {"json_path": {"path": "$.state", "equals": "paid"}}


class Till:
    """The outside world: the number of payments, and the tool that pays and then ends as `end` says."""

    def __init__(self, end: Callable[[], Any]) -> None:
        self.paid, self.end = 0, end

    def tool(self, **options: Any) -> Any:
        @tool(name="pay", **{"effect": "unsafe", **options})
        async def pay(invoice: str) -> Any:
            """Pay an invoice."""
            self.paid += 1
            return self.end()

        return pay


def payer(script: Script, *tools: Any, **options: Any) -> Agent[str]:
    model = script(calls(call("pay", invoice="7")), says("done"))
    return Agent("payer", model=model, tools=list(tools), **options)


def raises(error: BaseException) -> Callable[[], Any]:
    def end() -> Any:
        raise error

    return end


async def asked(run: RunHandle[Any]) -> ApprovalRequested:
    """Return the first approval that the run requests."""
    async for event in run.stream():
        if isinstance(event, ApprovalRequested):
            return event
    raise AssertionError("nothing was asked")


async def result_of(place: Place, run: RunHandle[Any]) -> ToolResult:
    (result,) = [event for event in await place.events(run) if isinstance(event, ToolResult)]
    return result


IN_DOUBT: list[tuple[Callable[[], Any], str]] = [
    (raises(ConnectionResetError("reset by peer")), "ConnectionResetError: reset by peer"),
    (raises(TimeoutError("the bank is slow")), "TimeoutError: the bank is slow"),
    (raises(asyncio.CancelledError()), "the call was cancelled from within the tool"),
    (raises(SystemExit(1)), "SystemExit: 1"),
    (raises(ToolFailed("lost it", in_doubt=True)), "lost it"),
    (raises(Retryable("lost again", in_doubt=True)), "lost again"),
    (raises(ToolTimedOut(3)), "timed out after 3 s"),
    (
        raises(ExceptionGroup("both", [ToolFailed("no"), OSError("lost")])),
        "ExceptionGroup: both (2 sub-exceptions): ToolFailed: no; OSError: lost",
    ),
    (object, "the tool returned a value that JSON cannot hold"),
]


@pytest.mark.parametrize(("end", "why"), IN_DOUBT)
async def test_a_call_in_doubt_is_not_told_to_the_model_but_asked_about(
    cheap: Place, script: Script, end: Callable[[], Any], why: str
) -> None:
    till = Till(end)
    agent = payer(script, till.tool())
    await cheap.open(agent)
    run = await cheap.start(agent)
    request = await asked(run)
    assert (request.kind, request.tool_name, request.expires_at) == ("unverifiable", "pay", None)
    assert request.reason.startswith(why)
    assert not [
        event for event in (await load_trace(cheap.log, run.run_id)).events if event.type == "tool_result"
    ]
    await run.resolve(request.approval_id, "approved", outcome="succeeded", result="paid by hand")
    assert (await run.result()).output == "done"
    result = await result_of(cheap, run)
    assert (result.success, result.result, till.paid) == (True, "paid by hand", 1)


CERTAIN: list[BaseException] = [
    ToolFailed("no such invoice"),
    InvalidArguments("the invoice is a number"),
    Retryable("try again"),
    ChildFailed("the child failed", status="error", run_id="r"),
    ExceptionGroup("both", [ToolFailed("no"), ToolFailed("nor this")]),
]


@pytest.mark.parametrize("error", CERTAIN)
async def test_what_a_tool_says_for_certain_goes_to_the_model(
    cheap: Place, script: Script, error: BaseException
) -> None:
    agent = payer(script, Till(raises(error)).tool())
    await cheap.open(agent)
    run = await cheap.start(agent)
    assert (await run.result()).output == "done"
    assert not (await result_of(cheap, run)).success


@pytest.mark.parametrize("options", [{"effect": "pure"}, {"effect": "idempotent"}, {"on_error": "report"}])
async def test_an_error_of_a_tool_that_may_be_repeated_or_reports_goes_to_the_model(
    cheap: Place, script: Script, options: dict[str, Any]
) -> None:
    agent = payer(script, Till(raises(ConnectionResetError("reset"))).tool(**options))
    await cheap.open(agent)
    run = await cheap.start(agent)
    assert (await run.result()).output == "done"
    assert (await result_of(cheap, run)).error == "ConnectionResetError: reset"


async def test_a_call_in_doubt_starts_again_only_by_a_decision(place: Place, script: Script) -> None:
    till = Till(raises(ConnectionResetError("reset")))
    agent = payer(script, till.tool())
    await place.open(agent)
    run = await place.start(agent)
    request = await asked(run)
    assert till.paid == 1
    till.end = str
    await run.resolve(request.approval_id, "approved", outcome="retry")
    assert (await run.result()).output == "done"
    trace = await load_trace(place.log, run.run_id)
    starts = [event for event in trace.events if isinstance(event, ToolStarted)]
    assert ([start.attempt for start in starts], till.paid) == ([1, 2], 2)


async def test_a_call_that_is_out_of_time_is_in_doubt(place: Place, script: Script) -> None:
    begun = asyncio.Event()

    @tool(effect="unsafe", timeout_s=0.05)
    async def pay(invoice: str) -> str:
        """Pay an invoice."""
        begun.set()
        await asyncio.Event().wait()
        return invoice

    agent = payer(script, pay)
    await place.open(agent)
    run = await place.start(agent)
    request = await asked(run)
    assert request.reason == "timed out after 0.05 s"
    assert begun.is_set()
    await run.resolve(request.approval_id, "rejected", note="the bank has nothing of it")
    assert (await run.result()).output == "done"
    assert (await result_of(place, run)).error == "the bank has nothing of it"


async def test_a_part_that_cannot_be_stored_leaves_its_call_in_doubt(cheap: Place, script: Script) -> None:
    @tool(effect="unsafe")
    async def pay(invoice: str, context: ToolContext) -> str:
        """Pay an invoice."""
        return str(await context.memo(invoice, object))

    agent = payer(script, pay)
    await cheap.open(agent)
    run = await cheap.start(agent)
    request = await asked(run)
    assert request.reason.startswith("memo '7' cannot be stored as JSON")
    await run.cancel()


async def test_people_are_asked_about_the_arguments_that_the_call_ran_with(
    cheap: Place, script: Script
) -> None:
    agent = payer(script, Till(raises(OSError("lost"))).tool(), hitl_tools=["pay"])
    await cheap.open(agent)
    run = await cheap.start(agent)
    await run.resolve((await asked(run)).approval_id, "approved", arguments={"invoice": "8"})
    async for event in run.stream():
        if isinstance(event, ApprovalRequested) and event.kind == "unverifiable":
            assert event.arguments == {"invoice": "8"}
            await run.resolve(event.approval_id, "approved", outcome="failed")
    assert (await run.result()).output == "done"


@pytest.mark.parametrize(
    ("state", "success"), [("paid", True), ("open", False)], ids=["it was done", "it was not done"]
)
async def test_the_postcondition_settles_a_call_in_doubt(
    place: Place, script: Script, state: str, success: bool
) -> None:
    def look(invoice: str) -> Evidence:
        return Evidence(data={"state": state, "invoice": invoice})

    till = Till(raises(ConnectionResetError("reset")))
    agent = payer(script, postcondition(PAID, probe=look)(till.tool()))
    await place.open(agent)
    run = await place.start(agent)
    assert (await run.result()).output == "done"
    result = await result_of(place, run)
    assert (result.success, till.paid) == (success, 1)
    assert (
        "ConnectionResetError: reset; the postcondition does not hold" in (result.error or "")
    ) is not success


async def test_a_call_in_doubt_that_cannot_be_verified_needs_a_decision_and_shows_the_report(
    cheap: Place, script: Script
) -> None:
    def look(invoice: str) -> Evidence:
        raise OSError(f"nobody answers for {invoice}")

    till = Till(raises(ConnectionResetError("reset")))
    agent = payer(script, postcondition(PAID, probe=look)(till.tool()))
    await cheap.open(agent)
    run = await cheap.start(agent)
    request = await asked(run)
    assert request.reason.startswith("ConnectionResetError: reset; the postcondition cannot be verified")
    assert [finding["code"] for finding in request.postcondition] == ["probe_failed"]
    await run.resolve(request.approval_id, "approved", outcome="failed")
    assert (await run.result()).output == "done"


async def test_a_recording_with_a_call_in_doubt_runs_again(cheap: Place, script: Script) -> None:
    till = Till(raises(ConnectionResetError("reset")))
    agent = payer(script, till.tool())
    await cheap.open(agent)
    run = await cheap.start(agent)
    await run.resolve((await asked(run)).approval_id, "approved", outcome="succeeded", result="paid")
    await run.result()
    again = await rerun(await load_trace(cheap.log, run.run_id))
    assert again.events[-1].type == "status"
    assert till.paid == 1


# --- threads that go on ---


class Thread:
    """A synchronous tool that nothing can stop, until it is let go."""

    def __init__(self) -> None:
        self.begun, self.gate = threading.Event(), threading.Event()

    def tool(self, **options: Any) -> Any:
        @tool(name="pay", effect="unsafe", **options)
        def pay(invoice: str) -> str:
            """Pay an invoice."""
            self.begun.set()
            assert self.gate.wait(timeout=120)
            return f"paid {invoice}"

        return pay


async def late_outcomes(place: Place, run: RunHandle[Any], count: int) -> list[tuple[str, Any]]:
    """The first so many late outcomes of the run."""
    found: list[tuple[str, Any]] = []
    async for stored in place.log.events.follow(await place.runtime.locate(run.run_id)):
        found += [(e.outcome, e.result) for e in decode(stored.data).events if isinstance(e, LateOutcome)]
        if len(found) >= count:
            break
    return found


async def test_a_cancelled_thread_is_unknown_at_once_and_told_when_it_ends(
    place: Place, script: Script
) -> None:
    thread = Thread()
    agent = payer(script, thread.tool())
    await place.open(agent)
    run = await place.start(agent)
    assert await asyncio.to_thread(thread.begun.wait, 30)
    await run.cancel()
    assert await late_outcomes(place, run, 1) == [("unknown", None)]
    thread.gate.set()
    assert await late_outcomes(place, run, 2) == [("unknown", None), ("success", "paid 7")]


async def test_a_thread_that_is_out_of_time_is_asked_about_and_told_when_it_ends(
    place: Place, script: Script
) -> None:
    thread = Thread()

    def look() -> Evidence:
        return Evidence(data={"state": "open"})  # not yet: the thread is still at work

    agent = payer(script, postcondition(PAID, probe=look)(thread.tool(timeout_s=0.5)))
    await place.open(agent)
    run = await place.start(agent)
    request = await asked(run)
    assert request.reason.startswith("timed out after 0.5 s; the postcondition does not hold")
    thread.gate.set()
    assert await late_outcomes(place, run, 1) == [("success", "paid 7")]
    await run.resolve(request.approval_id, "approved", outcome="succeeded", result="paid 7")
    assert (await run.result()).output == "done"
