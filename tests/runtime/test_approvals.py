"""Decisions of operators: edits, tokens, several answers at once, and answers to runs without a driver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import date
from typing import Any

import pytest
from anyio.lowlevel import checkpoint
from foldlog.eventlog import Claimed, ToolResult, decode
from foldlog.eventlog.errors import ApprovalError
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.ports import CommitWrite, Shard, Write
from foldlog.replay import compare, load_trace, replay, rerun
from foldlog.runtime import Agent, Registry, RunHandle, Runtime, tool

from tests.replay.scenarios import ShiftedClock
from tests.runtime.conftest import Place, call, calls, says

Script = Callable[..., str]


class Deployer:
    """An agent whose tool wants an approval; `ran` is what it deployed."""

    def __init__(self, script: Script, *services: str, **fields: Any) -> None:
        self.ran: list[str] = []
        ran = self.ran

        @tool
        async def deploy(service: str, replicas: int = 1, day: date = date(2026, 11, 21)) -> str:
            """Deploy."""
            ran.append(f"{service} x{replicas}")
            return f"deployed {service}"

        asked = [call("deploy", f"call-{service}", service=service) for service in services]
        model = script(calls(*asked), says("done"))
        self.agent = Agent("ops", model=model, tools=[deploy], hitl_tools=["deploy"], **fields)


async def parked(run: RunHandle[Any]) -> None:
    """Wait until the run has parked."""
    journal = await run._journal()
    async with asyncio.timeout(120):
        await journal.follow_until(lambda state: state.parked is not None)


async def asked(run: RunHandle[Any], count: int = 1) -> list[str]:
    """The ids of the run's first approvals, in their order, once it has parked."""
    await parked(run)
    found = list((await run.state()).approvals)
    assert len(found) == count
    return found


async def results(place: Place, run: RunHandle[Any]) -> dict[str | None, Any]:
    return {e.tool_call_id: e for e in await place.events(run) if e.type == "tool_result"}


@pytest.fixture
async def memory(script: Script) -> AsyncIterator[tuple[Runtime, Deployer, ShiftedClock]]:
    """A runtime over a log in memory, whose clock can be put forward."""
    clock, deployer = ShiftedClock(), Deployer(script, "web", injected_tool_args={"why": "the reason"})
    log = MemoryLog(clock=clock)
    async with Runtime.open(log=log, registry=Registry(agents=[deployer.agent])) as runtime:
        yield runtime, deployer, clock


async def test_one_answer_is_for_one_approval_and_a_second_one_gets_the_name_of_the_first(
    place: Place, script: Script
) -> None:
    deployer = Deployer(script, "web", "db")
    await place.open(deployer.agent)
    run = await place.start(deployer.agent)
    web, db = await asked(run, 2)
    async with Runtime.open(log=place.log) as elsewhere:
        answers = await asyncio.gather(
            run.resolve(db, "approved", by="ann"),
            elsewhere.get_run(run.run_id).resolve(db, "rejected", by="bob"),
            return_exceptions=True,
        )
    (refused,) = [answer for answer in answers if isinstance(answer, ApprovalError)]
    first = (await run.state()).approvals[db].resolution
    assert first is not None
    assert f"was {first.decision} by {first.by} already" in str(refused)
    assert [a.request.approval_id for a in (await run.state()).pending_approvals] == [web]
    assert (await run.resolve(web, "approved", by="ann")).by == "ann"
    assert (await run.resolve(web, "approved", by="bob")).by == "ann"
    assert (await run.result()).output == "done"
    assert sorted(deployer.ran) == ["db x1"] * (first.decision == "approved") + ["web x1"]  # side by side


async def test_an_answer_is_kept_while_every_process_is_gone_and_the_next_one_goes_on(
    place: Place, script: Script
) -> None:
    deployer = Deployer(script, "web")
    await place.open(deployer.agent)
    run = await place.start(deployer.agent)
    (approval,) = await asked(run)
    for worker, task in place.workers:
        worker.stop()
        await asyncio.wait_for(task, 120)
    await place.runtime.aclose()
    async with Runtime.open(log=place.log) as passing:  # knows no agent and drives nothing
        await passing.get_run(run.run_id).resolve(approval, "approved", arguments={"service": "web-2"})
    assert deployer.ran == []
    async with Runtime.open(log=place.log, registry=place.registry) as later:
        if place.executor == "local":
            await later.drive(run.run_id)
        else:
            await place.add_worker("later")
        assert (await later.get_run(run.run_id).result()).output == "done"
    assert deployer.ran == ["web-2 x1"]
    metadata = (await results(place, run))["call-web"].metadata
    assert (metadata["edited_arguments"], metadata["approval_status"]) == ({"service": "web-2"}, "approved")


async def test_who_did_by_hand_what_a_call_does_reports_it_and_the_call_is_not_run(
    place: Place, script: Script
) -> None:
    deployer = Deployer(script, "web", "db", "app")
    await place.open(deployer.agent)
    run = await place.start(deployer.agent)
    web, db, app = await asked(run, 3)
    await run.resolve(web, "approved", outcome="succeeded", result={"version": 3}, by="ann")
    await run.resolve(web, "approved", outcome="succeeded", result={"version": 3})
    with pytest.raises(ApprovalError, match="was approved as succeeded by ann already"):
        await run.resolve(web, "approved")
    await run.resolve(db, "approved", outcome="failed", note="the disk is full")
    await run.resolve(app, "approved")
    await run.result()
    assert deployer.ran == ["app x1"]
    found = await results(place, run)
    by_hand = found["call-web"]
    assert (by_hand.success, by_hand.result, by_hand.metadata["status"]) == (True, {"version": 3}, "success")
    assert (by_hand.metadata["approval_status"], by_hand.metadata["approval_id"]) == ("approved", web)
    assert (found["call-db"].error, found["call-db"].metadata["status"]) == ("the disk is full", "error")
    trace = await load_trace(place.log, run.run_id)
    assert compare(trace, await rerun(trace)).equal


@pytest.mark.parametrize(
    ("decision", "answer", "why"),
    [
        ("approved", {"outcome": "retry"}, "the call has not started"),
        ("approved", {"result": 1}, "a result belongs to outcome succeeded"),
        ("approved", {"outcome": "failed", "result": 1}, "a result belongs to outcome succeeded"),
        ("approved", {"outcome": "succeeded", "arguments": {"service": "db"}}, "it takes no arguments"),
        ("rejected", {"outcome": "failed"}, "a rejected call has no outcome"),
    ],
)
async def test_an_outcome_that_says_two_things_is_refused(
    memory: tuple[Runtime, Deployer, ShiftedClock], decision: Any, answer: dict[str, Any], why: str
) -> None:
    runtime, deployer, _ = memory
    run = await runtime.start(deployer.agent, "question")
    (approval,) = await asked(run)
    with pytest.raises(ApprovalError, match=why):
        await run.resolve(approval, decision, **answer)
    assert len((await run.state()).pending_approvals) == 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"service": 7}, "7 is not of type 'string'"),
        ({"replicas": 2}, "'service' is a required property"),
        ({"service": "web", "why": "x"}, "'why' is an injected argument"),
        ({"service": "web", "day": "tomorrow"}, "'tomorrow' is not a 'date'"),
        (5, "the arguments of an answer must be an object, not 5"),
        ([["service", "web"]], "the arguments of an answer must be an object, not \\[\\["),
    ],
)
async def test_edited_arguments_that_the_tool_does_not_take_are_refused(
    memory: tuple[Runtime, Deployer, ShiftedClock], arguments: Any, why: str
) -> None:
    runtime, deployer, _ = memory
    run = await runtime.start(deployer.agent, "question")
    (approval,) = await asked(run)
    with pytest.raises(ApprovalError, match=why):
        await run.resolve(approval, "approved", arguments=arguments)
    with pytest.raises(ApprovalError, match=why):
        await runtime.resolve_with_token(await run.issue_token(approval), "approved", arguments=arguments)
    await run.resolve(approval, "approved", arguments={"service": "web", "replicas": 2})
    await run.result()
    assert deployer.ran == ["web x2"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"replicas": 2}, "service"),
        ({"service": "web", "replicas": "many"}, "many"),
        ({"service": "web", "day": "someday"}, "someday"),
    ],
    ids=["missing", "type", "format"],
)
async def test_arguments_that_do_not_fit_go_back_to_the_model_and_nobody_is_asked_about_them(
    place: Place, script: Script, arguments: dict[str, Any], problem: str
) -> None:
    deployer = Deployer(script, "db")
    turns = (calls(call("deploy", "bad", **arguments), call("deploy", "good", service="db")), says("done"))
    agent = Agent(
        "ops", model=script(*turns), tools=list(deployer.agent.tools.values()), hitl_tools=["deploy"]
    )
    await place.open(agent)
    run = await place.start(agent)
    (good,) = await asked(run)
    await run.resolve(good, "approved")
    await run.result()
    assert deployer.ran == ["db x1"]
    refused = (await results(place, run))["bad"]
    assert refused.metadata["status"] == "error"
    assert refused.error.startswith("invalid arguments: ")
    assert problem in refused.error


async def test_the_same_decision_with_other_arguments_is_another_answer(
    memory: tuple[Runtime, Deployer, ShiftedClock],
) -> None:
    runtime, deployer, _ = memory
    run = await runtime.start(deployer.agent, "question")
    (approval,) = await asked(run)
    await run.resolve(approval, "approved", arguments={"service": "a"}, by="ann")
    await run.resolve(approval, "approved", arguments={"service": "a"})
    with pytest.raises(ApprovalError, match="was approved with other arguments by ann already"):
        await run.resolve(approval, "approved")
    await run.result()
    assert deployer.ran == ["a x1"]
    kept = (await run.state()).approvals[
        approval
    ]  # of the step before the last: what was asked is in the log alone
    assert (kept.request.kind, kept.request.arguments, kept.request.injected_args) == ("tool", {}, {})
    await run.resolve(approval, "approved", arguments={"service": "a"})
    with pytest.raises(ApprovalError, match="was approved with other arguments by ann already"):
        await run.resolve(approval, "approved")


async def test_many_answers_at_once_are_all_accepted(script: Script) -> None:
    services = [f"s{number}" for number in range(80)]
    deployer = Deployer(script, *services)
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[deployer.agent])) as runtime:
        run = await runtime.start(deployer.agent, "question")
        approvals = await asked(run, len(services))
        given = await asyncio.gather(*[run.resolve(each, "approved", by=each) for each in approvals])
        assert [(answer.approval_id, answer.by) for answer in given] == [(each, each) for each in approvals]
        await run.result()
    assert sorted(deployer.ran) == sorted(f"{service} x1" for service in services)


async def test_an_approval_expires_and_later_answers_are_refused(
    memory: tuple[Runtime, Deployer, ShiftedClock], script: Script
) -> None:
    runtime, _, clock = memory
    deployer = Deployer(script, "web", approval_timeout_s=60.0)
    async with Runtime.open(log=runtime.log, registry=Registry(agents=[deployer.agent])) as driver:
        run = await driver.start(deployer.agent, "question")
        (approval,) = await asked(run)
    clock.ahead_s = 61.0  # and nobody is there for whom a timer could ring
    token = await runtime.get_run(run.run_id).issue_token(approval)
    with pytest.raises(ApprovalError, match=f"the approval {approval} has timed out"):
        await runtime.resolve_with_token(token, "approved")
    assert (await runtime.get_run(run.run_id).state()).paused is None
    async with Runtime.open(log=runtime.log, registry=Registry(agents=[deployer.agent])) as later:
        await later.drive(run.run_id)
        await later.get_run(run.run_id).result()
    assert deployer.ran == []
    trace = await load_trace(runtime.log, run.run_id)
    assert replay(trace).divergence is None


async def test_an_approval_times_out_though_a_call_beside_it_still_runs(place: Place, script: Script) -> None:
    free = asyncio.Event()

    @tool
    async def deploy(service: str) -> str:
        """Deploy."""
        return service

    @tool(effect="pure")
    async def wait() -> str:
        """Wait."""
        await free.wait()
        return "waited"

    model = script(calls(call("deploy", "d", service="web"), call("wait", "w")), says("done"))
    agent = Agent("ops", model=model, tools=[deploy, wait], hitl_tools=["deploy"], approval_timeout_s=0.2)
    await place.open(agent)
    run = await place.start(agent)
    async with asyncio.timeout(120):
        async for event in run.stream(detailed=True):
            if isinstance(event, ToolResult) and event.tool_call_id == "d":
                assert event.metadata["approval_status"] == "timed_out"
                free.set()
    assert (await run.result()).output == "done"


async def test_approvals_are_listed_as_they_were_asked_for_however_large_they_are(
    cheap: Place, script: Script
) -> None:
    """Values too large for a commit are stored as artifacts; the list still has the approval."""
    services = ["é" * 300_000, "web", "ü" * 300_000]
    ran: list[str] = []

    @tool
    async def deploy(service: str) -> str:
        """Deploy."""
        ran.append(service)
        return "deployed"

    asks = [call("deploy", f"c{number}", service=service) for number, service in enumerate(services)]
    agent = Agent("ops", model=script(calls(*asks), says("done")), tools=[deploy], hitl_tools=["deploy"])
    await cheap.open(agent)
    run = await cheap.start(agent)
    await asked(run, 3)
    index = await cheap.runtime.index()
    rows = await index.approvals()
    assert [row.tool_call_id for row in rows] == ["c0", "c1", "c2"]
    assert {row.tool_name for row in rows} == {"deploy"}
    assert [row.arguments for row in rows if not row.aside] == [{"service": "web"}]
    for row in rows:
        request = (await run.state()).approvals[row.approval_id].request
        assert request.arguments["service"] == services[int(row.tool_call_id[1:])]
        await run.resolve(row.approval_id, "approved")
    await run.result()
    assert sorted(ran) == sorted(services)
    assert [row.decision for row in await index.approvals(None)] == ["approved"] * 3


# --- resume tokens ----------------------------------------------------------------------------------------------------


async def test_a_token_answers_its_approval_once_and_never_enters_the_log(
    place: Place, script: Script
) -> None:
    deployer = Deployer(script, "web")
    await place.open(deployer.agent)
    run = await place.start(deployer.agent)
    (approval,) = await asked(run)
    token = await run.issue_token(approval, by="ann")
    secret = token.rpartition(".")[2]
    assert len(secret) == 43  # 256 bits in base64
    async with Runtime.open(log=place.log) as elsewhere:
        found = await elsewhere.resolve_with_token(
            token, "approved", arguments={"service": "db"}, by="holder"
        )
        assert found.run_id == run.run_id
        with pytest.raises(
            ApprovalError, match=r"approved .*by holder already: a resume token can be used only once"
        ):
            await elsewhere.resolve_with_token(token, "approved", arguments={"service": "db"})
    assert (await run.result()).output == "done"
    assert deployer.ran == ["db x1"]
    stored = [
        commit.data
        for shard in range(place.log.events.shards)
        async for commit in place.log.events.read(Shard(shard))
    ]
    assert stored
    assert not any(secret.encode() in data for data in stored)
    resolution = (await run.state()).approvals[approval].resolution
    assert resolution is not None
    assert len(resolution.token) == 64


async def test_a_token_that_is_expired_revoked_or_made_up_answers_nothing(
    memory: tuple[Runtime, Deployer, ShiftedClock],
) -> None:
    runtime, deployer, clock = memory
    run = await runtime.start(deployer.agent, "question")
    (approval,) = await asked(run)
    token = await run.issue_token(approval, expires_s=60)
    made_up = token[:-4] + ("AAAA" if token[-4:] != "AAAA" else "BBBB")
    with pytest.raises(ApprovalError, match="not valid") as refused:
        await runtime.resolve_with_token(made_up, "approved")
    assert made_up not in str(refused.value)
    for text, why in (
        ("", "begin with"),
        (token[:-1], "incomplete"),
        (token.replace("foldlog", "log"), "begin with"),
    ):
        with pytest.raises(ApprovalError, match=f"not a resume token: .*{why}"):
            await runtime.resolve_with_token(text, "approved")
    clock.ahead_s = 61.0
    with pytest.raises(ApprovalError, match="has expired"):
        await runtime.resolve_with_token(token, "approved")
    again, other = await run.issue_token(approval), await run.issue_token(approval)
    assert await run.revoke_tokens(approval, by="ann") == 3
    for revoked in (token, again, other):
        with pytest.raises(ApprovalError, match="not valid"):
            await runtime.resolve_with_token(revoked, "approved")
    assert [a.request.approval_id for a in (await run.state()).pending_approvals] == [approval]
    await run.cancel("enough")
    with pytest.raises(ApprovalError, match="void"):
        await run.issue_token(approval)


# --- policies ---------------------------------------------------------------------------------------------------------


async def test_a_policy_denies_asks_and_allows_by_name_and_arguments(place: Place, script: Script) -> None:
    ran: list[str] = []

    @tool
    async def deploy(env: str) -> str:
        """Deploy."""
        ran.append(env)
        return f"deployed to {env}"

    rules = [
        {"tool": "dep*", "arguments": {"env": "prod*"}, "action": "require_approval", "reason": "be careful"},
        {"tool": "deploy", "arguments": {"env": "prod-eu"}, "action": "deny", "reason": "frozen"},
    ]
    envs = ("prod-us", "prod-eu", "test")
    model = script(calls(*[call("deploy", env, env=env) for env in envs]), says("done"))
    agent = Agent("ops", model=model, tools=[deploy], policy={"rules": rules})
    await place.open(agent)
    run = await place.start(agent)
    (approval,) = await asked(run)
    request = (await run.state()).approvals[approval].request
    assert (request.kind, request.tool_call_id) == ("policy", "prod-us")
    assert request.reason == "policy rule 1 (tool 'dep*' with env 'prod*': be careful)"
    assert ran == ["test"]
    with pytest.raises(ApprovalError, match=r"policy rule 2 .*: frozen\) denies them"):
        await run.resolve(approval, "approved", arguments={"env": "prod-eu"})
    await run.resolve(approval, "approved", arguments={"env": "prod-de"})
    await run.result()
    assert ran == ["test", "prod-de"]
    found = await results(place, run)
    denied = found["prod-eu"]
    assert (denied.metadata["status"], denied.metadata["approval_status"]) == ("rejected", "not_required")
    assert denied.error == "policy rule 2 (tool 'deploy' with env 'prod-eu': frozen) denies the call"
    fork = await place.fork(run, at=found["test"].revision, tools="run")
    (again,) = await asked(fork)
    await fork.resolve(again, "rejected")
    await fork.result()
    assert ran == ["test", "prod-de"]


async def test_a_process_that_continues_after_an_answer_has_a_lease_when_its_claim_is_stored(
    cheap: Place, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployer, events, leases = Deployer(script, "web"), cheap.log.events, cheap.log.leases
    append, vouched = events.append, []

    async def slowly(*writes: Write) -> tuple[int, ...]:
        await checkpoint()  # as if it were on its way to a server
        positions = await append(*writes)
        commits = [decode(write.data) for write in writes if isinstance(write, CommitWrite)]
        claims = [event for commit in commits for event in commit.events if isinstance(event, Claimed)]
        vouched.extend([await leases.live(run_id, claim.worker, claim.epoch) for claim in claims])
        return positions

    await cheap.open(deployer.agent)
    run = await cheap.start(deployer.agent)
    run_id, (approval,) = run.run_id, await asked(run)
    monkeypatch.setattr(events, "append", slowly)
    await run.resolve(approval, "approved")
    assert (await run.result()).output == "done"
    assert vouched == [True]
