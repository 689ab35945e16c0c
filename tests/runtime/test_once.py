"""One outcome for a key (W43): of all calls with it one runs, in any process, and the others get its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog import ConfigError
from foldlog.eventlog.events import OnceUpdated, ToolResult, ToolStarted
from foldlog.eventlog.names import once_subject
from foldlog.replay import load_trace, replay, rerun
from foldlog.runtime import Agent, ToolFailed, tool
from foldlog.runtime.driving import tool_once
from foldlog.runtime.journal.register import read_register

from tests.runtime.conftest import HeldTool, Place, call, calls, says
from tests.runtime.test_approvals import asked, results

Script = Callable[..., str]


def invoice(arguments: dict[str, Any]) -> object:
    return arguments["invoice"]


class Payer:
    """An agent whose tool pays each invoice once; `paid` is what it paid."""

    def __init__(self, script: Script, *turns: Any, held: HeldTool | None = None, **fields: Any) -> None:
        self.paid: list[str] = []

        @tool(effect="unsafe", once=invoice, scope="payments")
        async def pay(invoice: str, eur: int) -> dict[str, Any]:
            """Pay an invoice."""
            if held is not None:
                held.entered.set()
                await held.let_go.wait()
            self.paid.append(invoice)
            if eur == 13:
                raise ToolFailed("the bank refused it")
            return {"receipt": f"{invoice}-{len(self.paid)}"}

        model = script(*[calls(*turn) for turn in turns], says("done"))
        self.agent = Agent("payer", model=model, tools=[pay], **fields)


def pay(call_id: str, number: str = "7", eur: int = 40) -> Any:
    return call("pay", call_id, invoice=number, eur=eur)


async def test_a_call_with_a_known_key_gets_the_outcome_and_is_marked(place: Place, script: Script) -> None:
    payer = Payer(script, [pay("a"), pay("b"), pay("c", "8")], [pay("d")])
    await place.open(payer.agent)
    first = await place.start(payer.agent)
    await first.result()
    assert sorted(payer.paid) == ["7", "8"]
    found = await results(place, first)
    receipts = {name: found[name].result for name in "abd"}
    assert receipts["a"] == receipts["b"] == receipts["d"]
    twins = [name for name in "abcd" if found[name].metadata.get("deduplicated")]
    assert len(twins) == 2
    (owner,) = {"a", "b"} - {*twins}
    assert found["d"].metadata["twin_of"] == f"{first.run_id}/{owner}"
    trace = await load_trace(place.log, first.run_id)
    assert [event.tool_call_id for event in trace.events if isinstance(event, ToolStarted)].count(owner) == 1
    assert len([event for event in trace.events if isinstance(event, ToolStarted)]) == 2
    assert replay(trace).agrees
    again = await rerun(trace)
    told = [
        {e.tool_call_id: e.result for e in each.events if isinstance(e, ToolResult)}
        for each in (trace, again)
    ]
    assert told[0] == told[1]
    second = await place.start(payer.agent)
    await second.result()
    later = await results(place, second)
    assert {name: later[name].result for name in "ac"} == {name: found[name].result for name in "ac"}
    assert all(later[name].metadata["deduplicated"] for name in "abcd")
    assert sorted(payer.paid) == ["7", "8"]
    fork = await place.fork(first, at=2, tools="run")
    await fork.result()
    assert sorted(payer.paid) == ["7", "8"]
    assert replay(await load_trace(place.log, fork.run_id)).agrees


async def test_two_runs_at_once_act_once_and_the_twin_waits_parked_if_it_takes_long(
    place: Place, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_once, "IN_PLACE_S", 0.0)
    monkeypatch.setattr(tool_once, "PARKED_S_MIN", 0.5)
    held = HeldTool()
    payer = Payer(script, [pay("a")], held=held)
    await place.open(payer.agent)
    first = await place.start(payer.agent)
    async with asyncio.timeout(120):
        await held.entered.wait()
    second = await place.start(payer.agent)
    journal = await second._journal()
    async with asyncio.timeout(120):
        await journal.follow_until(lambda state: state.parked is not None)
    (wait,) = (await second.pending()).waits
    assert (wait.tool_name, wait.kind, wait.name) == ("pay", "sleep", "once")
    held.let_go.set()
    for run in (first, second):
        await run.result()
    assert payer.paid == ["7"]
    assert (await results(place, second))["a"].metadata["twin_of"] == f"{first.run_id}/a"
    assert replay(await load_trace(place.log, second.run_id)).agrees
    subject = once_subject("payments", "7", place.log.events.shards)
    _head, (record,) = await read_register(place.log, subject)
    assert isinstance(record, OnceUpdated)
    assert (record.run, record.call, record.key) == (first.run_id, "a", "7")


async def test_a_key_with_other_arguments_fails_and_a_failure_is_an_outcome_too(
    place: Place, script: Script
) -> None:
    payer = Payer(script, [pay("a", eur=13)], [pay("b", eur=13)], [pay("c", eur=14)])
    await place.open(payer.agent)
    run = await place.start(payer.agent)
    await run.result()
    found = await results(place, run)
    assert payer.paid == ["7"]
    assert found["a"].error == found["b"].error == "the bank refused it"
    assert found["c"].error == (
        f"not called: the key '7' in 'payments' belongs to the call a of run {run.run_id}, which has other arguments"
    )
    assert "deduplicated" not in found["c"].metadata
    assert replay(await load_trace(place.log, run.run_id)).agrees


async def test_a_key_of_a_call_that_never_started_is_taken_over(place: Place, script: Script) -> None:
    payer = Payer(script, [pay("a")], hitl_tools=["pay"])
    await place.open(payer.agent)
    first = await place.start(payer.agent)
    (approval,) = await asked(first)
    await first.resolve(approval, "rejected")
    await first.result()
    second = await place.start(payer.agent)
    (approval,) = await asked(second)
    await second.resolve(approval, "approved", arguments={"invoice": "7", "eur": 41})
    await second.result()
    assert payer.paid == ["7"]
    third = await place.start(payer.agent)
    (approval,) = await asked(third)
    await third.resolve(approval, "approved", arguments={"invoice": "7", "eur": 41})
    await third.result()
    assert payer.paid == ["7"]
    assert (await results(place, third))["a"].metadata["deduplicated"]


async def test_a_twin_of_a_call_that_was_cancelled_on_its_way_is_told_that_nobody_knows(
    place: Place, script: Script
) -> None:
    held = HeldTool()
    payer = Payer(script, [pay("a")], held=held)
    await place.open(payer.agent)
    first = await place.start(payer.agent)
    async with asyncio.timeout(120):
        await held.entered.wait()
    await first.cancel()
    second = await place.start(payer.agent)
    await second.result()
    told = (await results(place, second))["a"]
    assert (
        f"not called: the call a of run {first.run_id}, which has the same key, was under way" in told.error
    )
    assert payer.paid == []


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (lambda _: "", "must return 1 to 512 characters, not ''"),
        (lambda _: "x" * 513, "must return 1 to 512 characters"),
        (lambda _: None, "must return 1 to 512 characters, not None"),
        (lambda arguments: arguments["nothing"], "`once` of 'act' failed: KeyError: 'nothing'"),
    ],
)
async def test_a_call_without_a_key_is_not_made(place: Place, script: Script, key: Any, why: str) -> None:
    @tool(effect="unsafe", once=key)
    async def act() -> str:
        """Act."""
        raise AssertionError("it was called")

    agent = Agent("a", model=script(calls(call("act")), says("done")), tools=[act])
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    told = (await results(place, run))["c1"]
    assert told.error.startswith("not called: ")
    assert why in told.error
    assert replay(await load_trace(place.log, run.run_id)).agrees


def test_wrong_options_of_a_tool_with_keys_are_refused() -> None:
    def act(name: str) -> str:
        """Act."""
        return name

    async def later(arguments: dict[str, Any]) -> object:
        return arguments["name"]

    with pytest.raises(ConfigError, match="once must be a function from the arguments to a key, not 'name'"):
        tool(once="name")(act)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="once must return a key, and not be an async function"):
        tool(once=later)(act)
    with pytest.raises(ConfigError, match="a scope is that of the keys of once: give once, too"):
        tool(scope="names")(act)
    scopes: list[Any] = ["", "s" * 201, 7]
    for scope in scopes:
        with pytest.raises(ConfigError, match="scope must be a text of 1 to 200 characters"):
            tool(once=lambda arguments: arguments["name"], scope=scope)(act)
