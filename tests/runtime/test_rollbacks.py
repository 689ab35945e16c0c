"""Rollbacks: what the calls of a run did is undone once, the last result first, each with an approval (R31, W42)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, MemoryLog, NotRegistered, RunFailed
from foldlog.eventlog.ports import NEW, CommitWrite, Selector, Stored, Write
from foldlog.runtime import Agent, Registry, Runtime, ToolFailed, WorkflowTable, tool
from foldlog.runtime.executors.preflight import Preflight
from foldlog.runtime.journal.keys import run_of_key
from foldlog.runtime.rollbacks.rollback import key_of_rollback

from tests.runtime.conftest import Place, call, calls, says

DONE: list[str] = []
FAILS: set[str] = set()


@tool(effect="unsafe")
def refund(invoice: str, eur: int) -> str:
    """Give money back."""
    if invoice in FAILS:
        raise ToolFailed("the bank is closed")
    DONE.append(f"refund {invoice} {eur}")
    return "refunded"


@tool(
    effect="unsafe",
    compensate=lambda args, result: refund(invoice=args["invoice"], eur=result["eur"]),
)
def pay(invoice: str) -> dict[str, Any]:
    """Pay an invoice."""
    DONE.append(f"pay {invoice}")
    return {"eur": 3}


@tool(effect="idempotent", rollback_hint="Ask the printer to throw it away.")
def print_letter(text: str) -> str:
    """Print a letter."""
    return "printed"


@tool(effect="pure")
def look(at: str) -> str:
    """Look."""
    return "seen"


TOOLS = [pay, refund, print_letter, look]


def clerk(script: Any) -> Agent[Any]:
    """An agent that pays twice, prints a letter, and looks."""
    turns = (
        calls(call("pay", "c1", invoice="${input.undo_1}"), call("look", "c2", at="a")),
        calls(call("print_letter", "c3", text="Paid.")),
        calls(call("pay", "c4", invoice="b")),
        says("done"),
    )
    return Agent("clerk", model=script(*turns), tools=TOOLS)


async def answered(run: Any, *decisions: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Answer the approvals that are pending as they come; return their kinds, tools and arguments."""
    seen = []
    left = list(decisions)
    async for event in run.stream():
        if event.type == "approval_requested":
            if event.approval_id in {
                each.request.approval_id for each in (await run.state()).pending_approvals
            }:
                await run.resolve(event.approval_id, left[0])
            seen.append((event.kind, event.tool_name, event.arguments))
            left.pop(0)
        if not left:
            break
    return seen


async def test_what_a_run_did_is_undone_in_reverse_order_each_with_an_approval(
    place: Place, script: Any
) -> None:
    DONE.clear()
    agent = clerk(script)
    await place.open(agent, tools=TOOLS)
    run = await place.start(agent)
    await run.result()
    undone = await place.runtime.rollback(run.run_id, by="ada", executor=place.executor)
    place._started[undone.run_id] = undone
    asked = await answered(undone, "approved", "approved", "approved")
    await undone.result()
    assert [kind for kind, _, _ in asked] == ["compensation", "elicitation", "compensation"]
    assert asked[0][1:] == ("refund", {"invoice": "b", "eur": 3})
    assert asked[1][2]["message"] == (
        'Undo print_letter {"text":"Paid."} by hand. Ask the printer to throw it away. '
        "Approve when it is done by hand."
    )
    assert DONE[-2:] == ["refund b 3", "refund ${input.undo_1} 3"]
    submitted = (await undone.state()).submitted
    assert submitted is not None
    assert submitted.trigger is not None
    assert (submitted.trigger.kind, submitted.trigger.key, submitted.trigger.by) == (
        "rollback",
        run.run_id,
        "ada",
    )
    assert submitted.idempotency_key == f"rollback:{run.run_id}"


async def test_a_rollback_that_is_asked_for_again_is_the_same_run_and_nothing_is_undone_twice(
    cheap: Place, script: Any
) -> None:
    DONE.clear()
    agent = clerk(script)
    await cheap.open(agent, tools=TOOLS)
    run = await cheap.start(agent)
    await run.result()
    rt = cheap.runtime
    first, second = await asyncio.gather(
        rt.rollback(run.run_id, executor=cheap.executor), rt.rollback(run.run_id, executor=cheap.executor)
    )
    assert first.run_id == second.run_id
    await answered(first, "approved", "approved", "approved")
    await first.result()
    assert (await rt.rollback(run.run_id, executor=cheap.executor)).run_id == first.run_id
    assert len([each for each in DONE if each.startswith("refund")]) == 2
    (job,) = [job for job in await rt.operations.jobs() if job.job_id == run.run_id]
    assert await rt.operations.job(run.run_id) == job
    assert ([each.run_id for each in job.runs], [each.run_id for each in job.rollbacks]) == (
        [run.run_id],
        [first.run_id],
    )


class Died(Exception):
    """The process dies here."""


async def test_a_rollback_whose_process_died_before_it_was_stored_is_no_run_of_a_job_yet(
    cheap: Place, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = clerk(script)
    await cheap.open(agent, tools=TOOLS)
    run = await cheap.start(agent)
    await run.result()
    rt, append = cheap.runtime, cheap.log.events.append

    async def dies(*writes: Write) -> tuple[int, ...]:
        commits = [each for each in writes if isinstance(each, CommitWrite)]
        if any(each.subject.kind == "run" and each.expected == NEW for each in commits):
            raise Died
        return await append(*writes)

    with monkeypatch.context() as patch:
        patch.setattr(cheap.log.events, "append", dies)
        with pytest.raises(Died):
            await rt.rollback(run.run_id, executor=cheap.executor)
    recorded = await run_of_key(cheap.log, key_of_rollback(run.run_id))
    (job,) = await rt.operations.jobs()
    assert (job, job.rollbacks) == (await rt.operations.job(run.run_id), ())
    undone = await rt.rollback(run.run_id, executor=cheap.executor)
    assert undone.run_id == recorded
    assert [each.run_id for each in (await rt.operations.job(run.run_id)).rollbacks] == [recorded]
    await answered(undone, "rejected")


async def test_a_page_of_jobs_reads_the_log_as_often_as_a_page_with_one(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MemoryLog()
    reads, read, head = list[object](), log.events.read, log.events.head

    def counted_read(selector: Selector, after: int = 0) -> AsyncIterator[Stored]:
        reads.append(selector)
        return read(selector, after)

    async def counted_head(selector: Selector) -> Stored | None:
        reads.append(selector)
        return await head(selector)

    agent = Agent("clerk", model=script(says("done")))
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as rt:
        for _ in range(12):
            await rt.run(agent, "go")
        monkeypatch.setattr(log.events, "read", counted_read)
        monkeypatch.setattr(log.events, "head", counted_head)
        (one,) = await rt.operations.jobs(1)
        of_one = len(reads)
        assert len(await rt.operations.jobs()) == 12
        assert len(reads) == 2 * of_one
        assert (await rt.operations.job(one.job_id), of_one) == (one, log.events.shards)


async def test_a_further_rollback_has_only_what_is_not_undone_yet(cheap: Place, script: Any) -> None:
    DONE.clear()
    agent = clerk(script)
    await cheap.open(agent, tools=TOOLS)
    run = await cheap.start(agent)
    await run.result()
    first = await cheap.runtime.rollback(run.run_id, executor=cheap.executor)
    await answered(first, "approved", "rejected")
    with pytest.raises(RunFailed, match="step 'undo_2' failed: rejected"):
        await first.result()
    plan = await cheap.runtime.plan_rollback(run.run_id)
    assert (plan.number, [each.call.call for each in plan.steps]) == (2, ["c3", "c1"])
    second = await cheap.runtime.rollback(run.run_id, executor=cheap.executor)
    await answered(second, "approved", "approved")
    await second.result()
    assert [each for each in DONE if each.startswith("refund")] == ["refund b 3", "refund ${input.undo_1} 3"]


async def test_a_part_is_rolled_back_from_a_call_on(cheap: Place, script: Any) -> None:
    agent = clerk(script)
    await cheap.open(agent, tools=TOOLS)
    run = await cheap.start(agent)
    await run.result()
    plan = await cheap.runtime.plan_rollback(run.run_id, from_step="c3")
    assert [each.call.call for each in plan.steps] == ["c4", "c3"]
    with pytest.raises(ConfigError, match="there is no call 'c9' that can be rolled back"):
        await cheap.runtime.plan_rollback(run.run_id, from_step="c9")
    part = await cheap.runtime.rollback(run.run_id, from_step="c4", executor=cheap.executor)
    await answered(part, "approved")
    await part.result()
    again = await cheap.runtime.plan_rollback(run.run_id, from_step="c4")
    assert again.rollback == part.run_id
    rest = await cheap.runtime.rollback(run.run_id, executor=cheap.executor)
    await answered(rest, "rejected")
    with pytest.raises(RunFailed):
        await rest.result()
    with pytest.raises(ConfigError, match="nothing to be rolled back: all from call c4 on is undone"):
        await cheap.runtime.plan_rollback(run.run_id, from_step="c4")


async def test_a_run_that_is_open_or_has_done_nothing_or_whose_tools_are_missing_is_not_rolled_back(
    cheap: Place, script: Any
) -> None:
    agent = clerk(script)
    steps = [{"id": "see", "tool": "look", "arguments": {"at": "a"}}]
    sees = WorkflowTable.from_config(
        {"kind": "workflow", "name": "sees", "steps": steps}, Registry(tools=TOOLS)
    )
    waits = WorkflowTable.from_config(
        {"kind": "workflow", "name": "waits", "steps": [{"id": "wait", "wait": "go"}]}
    )
    await cheap.open(agent, sees, waits, tools=TOOLS)
    rt = cheap.runtime
    seen, waiting, run = await cheap.start(sees, ""), await cheap.start(waits, ""), await cheap.start(agent)
    await seen.result()
    await run.result()
    with pytest.raises(ConfigError, match="has nothing to be rolled back"):
        await rt.rollback(seen.run_id)
    with pytest.raises(ConfigError, match="is open: wait for its end, or cancel it"):
        await rt.rollback(waiting.run_id)
    rt.registry._tools.pop("refund")
    rt.registry._agents["clerk"] = Agent("clerk", tools=[pay, print_letter, look])
    with pytest.raises(
        NotRegistered, match="the compensation of 'pay' is 'refund', which is not in the registry"
    ):
        await rt.rollback(run.run_id)
    await waiting.cancel()


def _breaks(args: dict[str, Any], result: Any) -> object:
    return refund(invoice=args["invoice"], eur=result["dollars"])


def _misspells(args: dict[str, Any], result: Any) -> object:
    return refund(bill=args["invoice"])


@pytest.mark.parametrize(
    ("compensate", "told"),
    [
        (_breaks, "KeyError: 'dollars'."),
        (_misspells, "ConfigError: it calls 'refund' wrongly: got an unexpected keyword argument 'bill'."),
        (lambda *_: "later", "ConfigError: it must return a call of a tool, or None, not 'later'."),
    ],
    ids=["raises", "calls wrongly", "returns no call"],
)
async def test_a_compensation_that_cannot_be_named_is_done_by_hand_and_the_others_are_made(
    cheap: Place, script: Any, compensate: Any, told: str
) -> None:
    DONE.clear()

    @tool(effect="unsafe", compensate=compensate, rollback_hint="Call the bank")
    def order(invoice: str) -> dict[str, Any]:
        return {"eur": 4}

    turns = (calls(call("pay", "c1", invoice="a")), calls(call("order", "c2", invoice="b")), says("done"))
    agent = Agent("buyer", model=script(*turns), tools=[pay, order])
    await cheap.open(agent, tools=[pay, refund, order])
    run = await cheap.start(agent)
    await run.result()
    undone = await cheap.runtime.rollback(run.run_id, executor=cheap.executor)
    cheap._started[undone.run_id] = undone
    by_hand, paid_back = await answered(undone, "approved", "approved")
    await undone.result()
    assert (by_hand[0], paid_back[0]) == ("elicitation", "compensation")
    assert by_hand[2]["message"] == (
        f'Undo order {{"invoice":"b"}} by hand. Its compensation could not be named: {told} Call the bank. '
        "Approve when it is done by hand."
    )
    assert DONE == ["pay a", "refund a 3"]


def test_a_compensation_that_can_be_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="tool 'a' is pure: there is nothing to roll back"):
        tool(name="a", effect="pure", rollback_hint="no")(print)
    with pytest.raises(ConfigError, match="tool 'a': compensate must be a function"):
        tool(name="a", compensate="refund")(print)  # type: ignore[call-overload]


async def test_a_table_that_fails_is_rolled_back_if_its_step_says_so(place: Place) -> None:
    DONE.clear()
    FAILS.add("x")
    steps = [
        {"id": "pay", "tool": "pay", "arguments": {"invoice": "a"}},
        {
            "id": "back",
            "tool": "refund",
            "arguments": {"invoice": "x", "eur": 1},
            "needs": ["pay"],
            "on_error": "rollback",
        },
    ]
    table = WorkflowTable.from_config(
        {"kind": "workflow", "name": "sells", "steps": steps}, Registry(tools=TOOLS)
    )
    await place.open(table, tools=TOOLS)
    run = await place.start(table, "")
    with pytest.raises(RunFailed, match="step 'back' failed: the bank is closed; its rollback was started"):
        await run.result()
    started = (await place.runtime.plan_rollback(run.run_id)).rollback
    assert started is not None
    undone = place.runtime.get_run(started)
    place._started[undone.run_id] = undone
    assert [kind for kind, _, _ in await answered(undone, "approved")] == ["compensation"]
    await undone.result()
    assert DONE == ["pay a", "refund a 3"]
    again = await place.runtime.rollback(run.run_id, executor=place.executor)
    assert again.run_id == undone.run_id


async def test_a_driver_that_vanishes_between_two_compensations_makes_none_of_them_twice(
    cheap: Place, script: Any
) -> None:
    DONE.clear()
    agent = clerk(script)
    await cheap.open(agent, tools=TOOLS, lease_s=1.0)
    run = await cheap.start(agent)
    await run.result()
    undone = await cheap.runtime.rollback(run.run_id, executor=cheap.executor)
    cheap._started[undone.run_id] = undone
    await answered(undone, "approved", "approved")
    await cheap.cut_off(undone)
    await answered(undone, "approved", "approved", "approved")
    if cheap.executor == "local":  # a process that leaves does not wait for answers
        await cheap.runtime.drive(undone.run_id)
    await undone.result()
    assert [each for each in DONE if each.startswith("refund")] == ["refund b 3", "refund ${input.undo_1} 3"]


async def test_a_preflight_judges_an_open_rollback_and_an_open_table_as_a_worker_does(
    cheap: Place, script: Any
) -> None:
    """The rollback has the name of the agent, and no agent of the registry is the table: each has stored its steps."""
    agent = clerk(script)
    steps = [{"id": "paid", "tool": "pay", "arguments": {"invoice": "a"}, "approval": "required"}]
    settle = WorkflowTable.from_config(
        {"kind": "workflow", "name": "settle", "steps": steps}, Registry(tools=TOOLS)
    )
    await cheap.open(agent, settle, tools=TOOLS)
    run = await cheap.start(agent)
    await run.result()
    undone = await cheap.runtime.rollback(run.run_id, executor=cheap.executor)
    table = await cheap.start(settle)
    for each in (undone, table):
        await cheap.runtime.watch(each.run_id, _until_asked(each))
    rows = [row for row in await cheap.runtime.list_runs() if not row.over]
    assert {row.run_id for row in rows} == {undone.run_id, table.run_id}

    async def misfits(*tools: Any) -> dict[str, str]:
        check = Preflight(cheap.log, Registry(agents=[clerk(script)] if tools else [], tools=tools))
        return {found.name: found.reason async for found in check.runs(rows)}

    assert await misfits(*TOOLS) == {}
    assert (await misfits()).keys() == {undone.run_id, table.run_id}


async def _until_asked(run: Any) -> None:
    async for event in run.stream():
        if event.type == "approval_requested":
            return
