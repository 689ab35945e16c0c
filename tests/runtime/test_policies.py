"""Policies of namespaces and conditions: joined at the submission, decided once, and the same for every reader."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, MemoryLog
from foldlog.eventlog.errors import ApprovalError
from foldlog.projections.call_texts import recording_key
from foldlog.replay import load_trace, replay, rerun
from foldlog.replay.replaying.policy_trial import try_policy
from foldlog.runtime import Agent, Registry, Runtime, Worker, tool
from foldlog.runtime.core import policy as core_policy
from foldlog.runtime.driving.host import Host
from foldlog.runtime.ports import conditions
from foldlog.runtime.shared.approved_calls import ApprovedCalls, id_of

from tests.runtime.conftest import Place, call, calls, says
from tests.runtime.test_approvals import asked, results

Script = Callable[..., str]


def payer(script: Script, ran: list[int], *amounts: int, rules: Any = (), **fields: Any) -> Agent[str]:
    @tool(effect="idempotent")
    async def pay(eur: int) -> str:
        """Pay."""
        ran.append(eur)
        return f"paid {eur}"

    requests = [call("pay", f"c{number}", eur=eur) for number, eur in enumerate(amounts)]
    if rules:
        fields["policy"] = {"rules": rules}
    return Agent(
        "payer", model=script(*[calls(each) for each in requests], says("done")), tools=[pay], **fields
    )


async def test_a_condition_counts_the_calls_and_its_ruling_is_stored_with_each(
    place: Place, script: Script
) -> None:
    ran: list[int] = []
    rules = [
        {"tool": "pay", "when": "args.eur > 100", "action": "require_approval"},
        {"tool": "pay", "when": "call.count >= 2", "action": "deny", "reason": "twice is enough"},
    ]
    agent = payer(script, ran, 50, 150, 60, rules=rules)
    await place.open(agent)
    run = await place.start(agent)
    (approval,) = await asked(run)
    assert (
        (await run.state())
        .approvals[approval]
        .request.reason.startswith("policy rule 1 (tool 'pay' when args.eur")
    )
    with pytest.raises(ApprovalError, match="only a call that is approved to run"):
        await run.resolve(approval, "rejected", always=True)
    await run.resolve(approval, "approved")
    await run.result()
    assert ran == [50, 150]
    denied = (await results(place, run))["c2"]
    assert denied.error == "policy rule 2 (tool 'pay' when call.count >= 2: twice is enough) denies the call"
    trace = await load_trace(place.log, run.run_id)
    stored = [event.policy.action for event in trace.events if event.type == "tool_call" and event.policy]
    assert stored == ["allow", "require_approval", "deny"]


async def test_a_run_with_conditions_is_replayed_and_read_without_the_extra_but_not_driven(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    rules = [
        {"tool": "pay", "when": "args.eur > 100", "action": "require_approval"},
        {"tool": "pay", "when": "args.eur > 1000", "action": "deny"},
    ]
    agent, log = payer(script, ran, 50, 2000, 150, rules=rules), MemoryLog()
    registry = Registry(agents=[agent])
    async with Runtime.open(log=log, registry=registry) as runtime:
        run = await runtime.start(agent, "Pay")
        (approval,) = await asked(run)
        await run.resolve(approval, "approved", arguments={"eur": 140})
        await run.result()
        trace = await load_trace(log, run.run_id)
        assert replay(trace).agrees
        waiting = await runtime.start(agent, "Pay", executor="durable")
        monkeypatch.setitem(sys.modules, "cel", None)
        monkeypatch.setattr(conditions, "installed", lambda: False)
        conditions._compiled.cache_clear()
        core_policy._read.cache_clear()
        assert replay(trace).agrees
        assert ran == [50, 140]
        worker = Worker(Host(log=log, registry=registry, worker="poor"))
        serving = asyncio.create_task(worker.serve())
        journal = await waiting._journal()
        async with asyncio.timeout(120):
            await journal.follow_until(lambda state: bool(state.left))
        (why,) = journal.state.left
        assert why.endswith("lacks the extra that evaluates them: pip install 'foldlog[cel]'")
        worker.stop()
        await serving
        assert ran == [50, 140]


async def test_the_policy_of_a_namespace_is_joined_with_that_of_every_agent_and_kept_with_the_run(
    script: Script,
) -> None:
    ran: list[int] = []
    inner = payer(script, ran, 700, 70)
    outer = Agent(
        "outer", model=script(calls(call("payer", input="Pay")), says("done")), tools=[inner.as_tool()]
    )
    shared = {"rules": [{"tool": "pay", "when": "args.eur > 500", "action": "deny", "reason": "too much"}]}
    log, registry = MemoryLog(), Registry(agents=[outer, inner])
    async with Runtime.open(log=log, registry=registry, policy=shared) as runtime:
        run = await runtime.start(outer, "Go")
        await run.result()
        assert ran == [70]
        trace = await load_trace(log, run.run_id)
        submitted = [event for event in trace.events if event.type == "submitted"]
        assert [each.policy["rules"][0]["reason"] for each in submitted] == ["too much", "too much"]
        (denied,) = [
            e for e in trace.events if e.type == "tool_result" and e.tool_name == "pay" and not e.success
        ]
        assert denied.error.startswith("namespace policy rule 1 (tool 'pay' when args.eur > 500: too much)")
        assert replay(trace).agrees
        again = await rerun(trace)
        assert [e.success for e in again.events if e.type == "tool_result" and e.tool_name == "pay"] == [
            False,
            True,
        ]
        fork = await runtime.fork(run.run_id, at=2, tools="run")
        await fork.result()
        assert ran == [70, 70]
    found = list(try_policy(trace, {"rules": [], "default": "require_approval"}))
    assert [(each.tool, each.was, each.now) for each in found] == [
        ("payer", "allow", "require_approval"),
        ("pay", "deny", "require_approval"),
        ("pay", "allow", "require_approval"),
    ]


async def test_a_call_approved_for_good_is_asked_about_no_more_and_no_other_call_is(script: Script) -> None:
    ran: list[int] = []
    rule = {"tool": "pay", "action": "require_approval"}
    agent, log = payer(script, ran, 5, 5, 6, rules=[rule], hitl_tools=["pay"]), MemoryLog()
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "Pay")
        (first,) = await asked(run)
        await run.resolve(first, "approved", always=True, by="ann")
        await run.resolve(first, "approved", always=True, by="ann")
        while len((await run.state()).approvals) < 2:
            await log.clock.sleep(0.01)
        assert ran == [5, 5]
        await run.cancel()
        (stored,) = await ApprovedCalls(log).read()
        assert (stored.tool, stored.arguments, stored.by) == ("pay", {"eur": 5}, "ann")
        later = await runtime.start(agent, "Pay")
        (approval,) = await asked(later)
        assert (await later.state()).approvals[approval].request.arguments == {"eur": 6}
        assert ran == [5, 5, 5, 5]
        await later.cancel()
        assert replay(await load_trace(log, later.run_id)).agrees
        assert await ApprovedCalls(log).remove(id_of(stored))
        assert not await ApprovedCalls(log).remove(id_of(stored))
    strict = {"rules": [{"tool": "pay", "arguments": {"eur": "5"}, "action": "deny"}]}
    async with Runtime.open(log=log, registry=Registry(agents=[agent]), policy=strict) as runtime:
        await ApprovedCalls(log).add(recording_key("pay", {"eur": 5}), "ann")
        run = await runtime.start(agent, "Pay")
        await asked(run)
        assert ran == [5, 5, 5, 5]


async def test_calls_approved_for_good_are_bounded(script: Script) -> None:
    approved = ApprovedCalls(MemoryLog())
    for number in range(60):
        await approved.add(recording_key("pay", {"text": "x" * 1_000, "n": number}), "ann")
    with pytest.raises(ApprovalError, match=r"more than 64 KiB: write a rule .* or forget some"):
        await approved.add(recording_key("pay", {"text": "x" * 8_000}), "ann")
    assert len(await approved.read()) == 60


async def test_a_wrong_policy_of_the_project_is_refused_before_the_first_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: Script
) -> None:
    file = tmp_path / "foldlog.toml"
    monkeypatch.setenv("FOLDLOG_CONFIG", str(file))
    agent = payer(script, [], 1)
    for text, told in (
        ('[policy]\ndefault = "never"\n', "foldlog.toml: [policy]: default: "),
        ('[[policy.rules]]\naction = "deny"\nwhen = "1 +"\n', "[policy]: rules.0.when: '1 +' is not CEL"),
        ("[policy]\nrule = []\n", "unknown key 'rule'; did you mean 'rules'?"),
    ):
        file.write_text(text)
        async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
            with pytest.raises(ConfigError) as refused:
                await runtime.start(agent, "Pay")
            assert told in str(refused.value)
            assert [row async for row in runtime.list_runs()] == []
    file.write_text('[[policy.rules]]\ntool = "pay"\naction = "deny"\n')
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "Pay")
        await run.result()
        ended = [event async for event in run.stream(detailed=True) if event.type == "tool_result"]
        assert [event.success for event in ended] == [False]
