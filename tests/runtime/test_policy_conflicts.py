"""Rules that contradict each other: which wins, against an oracle that is the table of docs/how-to/policy.md."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from foldlog.eventlog import CallRules
from foldlog.eventlog.events import ForkLink, ResultRecorded, Submitted, ToolResult, ToolSpec
from foldlog.projections.call_texts import recording_key
from foldlog.projections.run_state import CallState, RunState
from foldlog.replay import load_trace
from foldlog.replay.replaying.policy_trial import try_policy
from foldlog.runtime import Agent, Registry, RunHandle, WorkflowRun, WorkflowTable, tool, workflow
from foldlog.runtime.core.rules import Rules, rules_of_run
from foldlog.runtime.core.tool_calls import (
    action_on,
    approval_needed,
    recorded_result,
    ruling_of,
    settle_each,
    stored_ruling,
)
from foldlog.runtime.core.turn import Turn
from foldlog.runtime.shared.approved_calls import ApprovedCalls

from tests.runtime.conftest import Place, call, calls, says
from tests.runtime.test_approvals import asked, results

Script = Callable[..., str]
ARGUMENTS: dict[str, Any] = {"eur": 150, "env": "test"}
APPLIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "left out": {"unless": {"env": "test*"}},
    "not left out": {"unless": {"env": "prod*"}},
    "met": {"when": "args.eur > 100"},
    "not met": {"when": "args.eur > 1000"},
    "cannot judge": {"when": "args.amount > 100"},
}
"""What is said of a rule, by what follows for the call."""
ACTIONS = ("allow", "require_approval", "deny")
Rule = tuple[str, str]
"""The action of a rule, and what is said of it."""


class Case(NamedTuple):
    """What all sources say about one call. `default` are those of the agent and the namespace."""

    own: Rule | None
    shared: Rule | None
    default: tuple[str, str]
    hitl: bool
    always: str
    step: Any
    fork: Any
    effect: Any


ANY_RULE = [None, *itertools.product(ACTIONS, APPLIES)]
PLAIN_RULE = [None, *((action, "plain") for action in ACTIONS)]
DEFAULTS = [("require_approval", "allow"), ("allow", "deny")]
CASES = [
    Case(*each)
    for each in itertools.chain(
        itertools.product(  # every rule against every other one
            ANY_RULE, ANY_RULE, DEFAULTS, [False], [""], [""], [""], ["unsafe"]
        ),
        itertools.product(  # every source against every other one
            PLAIN_RULE,
            [*PLAIN_RULE, ("deny", "cannot judge")],
            [("allow", "allow"), ("require_approval", "allow")],
            [False, True],
            ["", "namespace", "run"],
            ["", "compensation"],
            ["run", "ask", "replay"],
            ["pure", "unsafe"],
        ),
    )
]


def wins(case: Case) -> str:
    """The table in the documentation, read from above: the first row that applies decides."""
    rules = [rule for rule in (case.own, case.shared) if rule is not None]
    applying = [
        action
        for action, said in rules
        if said in {"plain", "not left out", "met"} or (said == "cannot judge" and action != "allow")
    ]
    said_by = applying or case.default
    if "deny" in said_by:
        return "denied"
    if case.fork == "replay":
        return "recorded"
    if case.step:
        return f"asks: {case.step}"
    if not case.always and case.hitl:
        return "asks: tool"
    if not case.always and "require_approval" in said_by:
        return "asks: policy"
    if case.fork == "ask" and case.effect != "pure":
        return "asks: policy"
    return "runs"


def rules_for(case: Case, known: dict[Any, Rules]) -> Rules:
    """The rules of a run that was submitted like this."""
    key = (case.own, case.shared, case.default, case.hitl, case.always == "namespace", case.fork)
    if key not in known:
        link = ForkLink(run="o", root="o", revision=1, digest="d", shared=1, tools=case.fork or "ask")
        own, shared = (_policy(rule, default) for rule, default in zip(case[:2], case.default, strict=True))
        if case.always == "namespace":
            shared["always"] = [{"tool": "pay", "arguments": ARGUMENTS}]
        known[key] = rules_of_run(
            Submitted(
                kind="agent",
                config={"model": "sim:m", "policy": own, "hitl_tools": ["pay"] if case.hitl else []},
                config_digest="c",
                input="i",
                input_digest="i",
                policy=shared,
                fork=link if case.fork else None,
            )
        )
    return known[key]


def _policy(rule: Rule | None, default: str) -> dict[str, Any]:
    other = {"tool": "other", "action": "deny"}
    said = [{"tool": "p*", "action": rule[0], **APPLIES[rule[1]]}] if rule is not None else []
    return {"rules": [other, *said], "default": default}


def decided(case: Case, rules: Rules) -> tuple[str, str]:
    """What the core does with the call, and the action that a trial of a policy tells for it."""
    key = recording_key("pay", ARGUMENTS)
    state = RunState(run="r", root="r", path="agent", step=1)
    state.tools = {
        "pay": ToolSpec(name="pay", description="Pay.", parameters={"type": "object"}, effect=case.effect)
    }
    state.always = {"ap": key} if case.always == "run" else {}
    if case.fork == "replay":
        state.recorded = {key: [ResultRecorded(source="c0", tool_name="pay", arguments=ARGUMENTS)]}
    turn = Turn(state, rules, 1.0)
    asked_for = CallState(id="c", index=0, name="pay", arguments=ARGUMENTS)
    asked_for.policy = stored_ruling(turn, "pay", ARGUMENTS)
    asked_for.rules = CallRules(approval=case.step) if case.step else None
    state.calls = {"c": asked_for}
    action = action_on(state, rules, asked_for, ruling_of(state, rules, asked_for))
    need, is_recorded = approval_needed(turn, asked_for), recorded_result(state, asked_for) is not None
    settle_each(turn)
    ended = next((event for event in turn.events if isinstance(event, ToolResult)), None)
    if ended is None:
        assert not is_recorded
        return ("runs" if need is None else f"asks: {need.kind}"), action
    assert need is None
    return ("recorded" if "recorded_from" in ended.metadata else "denied"), action


def test_of_all_sources_that_contradict_each_other_the_first_of_the_table_wins() -> None:
    known: dict[Any, Rules] = {}
    actions = {"denied": "deny", "runs": "allow"}
    found = set()
    for case in CASES:
        done, action = decided(case, rules_for(case, known))
        assert done == wins(case), case
        if done != "recorded":
            assert action == actions.get(done, "require_approval"), case
        found.add(done)
    assert found == {
        "denied",
        "recorded",
        "runs",
        "asks: tool",
        "asks: policy",
        "asks: compensation",
    }


def made(name: str, ran: list[str]) -> Any:
    """A tool that notes that it ran."""

    @tool(name=name, effect="idempotent")
    def note() -> str:
        """Note it."""
        ran.append(name)
        return name

    return note


async def test_the_same_wins_in_a_run_below_and_in_a_run_with_fewer_tools_on_both_executors(
    cheap: Place, script: Script
) -> None:
    ran: list[str] = []
    names = ["free", "barred", "asked", "listed", "known", "known_barred"]
    rules = [
        {"tool": "*", "action": "allow"},
        {"tool": "known*", "action": "require_approval"},
        {"tool": "listed", "action": "allow", "unless": {"no": "*"}},
    ]
    inner = Agent(
        "inner",
        model=script(calls(*(call(name, name) for name in names)), says("done")),
        tools=[made(name, ran) for name in names],
        policy={"rules": rules},
        hitl_tools=["listed", "barred"],
    )
    outer = Agent(
        "outer", model=script(calls(call("inner", input="Go")), says("done")), tools=[inner.as_tool()]
    )
    cheap.policy = {
        "rules": [
            {"tool": "*barred", "action": "deny"},
            {"tool": "asked", "when": "args.missing > 1", "action": "require_approval"},
            {"tool": "free", "when": "args.missing > 1", "action": "allow"},
        ]
    }
    for name in ("known", "known_barred", "barred"):
        await ApprovedCalls(cheap.log).add(recording_key(name, {}), "ann")
    await cheap.open(outer, inner)
    below = await cheap.start(outer)
    assert await asked_for(below) == {"asked": "policy", "listed": "tool"}
    assert (await below.result()).output == "done"
    assert sorted(ran) == ["asked", "free", "known", "listed"]
    child = next(event.child_run for event in await cheap.events(below) if event.type == "child_started")
    barred = {
        name for name, event in (await results(cheap, cheap.runtime.get_run(child))).items() if event.error
    }
    assert barred == {"barred", "known_barred"}
    ran.clear()
    fewer = await cheap.start(inner, tools=["listed", "known_barred", "free"])
    assert await asked_for(fewer) == {"listed": "tool"}
    assert (await fewer.result()).output == "done"
    assert sorted(ran) == ["free", "listed"]
    refused = (await results(cheap, fewer))["known_barred"]
    assert refused.error == "namespace policy rule 1 (tool '*barred') denies the call"


async def asked_for(run: RunHandle[Any]) -> dict[str, str]:
    """The kinds of the approvals that a run or one below it waits for, by tool, once it waits; all are approved."""
    waits = [event async for event in run.until_waiting() if event.type == "approval_requested"]
    for event in waits:
        await run.resolve(event.approval_id, "approved")
    return {event.tool_name: event.kind for event in waits}


async def test_a_call_of_a_workflow_that_is_approved_for_good_is_asked_about_no_more_but_that_of_a_step_is(
    cheap: Place,
) -> None:
    ran: list[str] = []
    pay = made("pay", ran)

    @workflow(tools=[pay], hitl_tools=["pay"])
    async def pays(run: WorkflowRun, text: str) -> str:
        return str(await run.call("pay"))

    steps = [{"id": "pay", "tool": "pay", "approval": "required"}]
    table = WorkflowTable.from_config(
        {"kind": "workflow", "name": "stepwise", "steps": steps, "hitl_tools": ["pay"]}, Registry(tools=[pay])
    )
    await cheap.open(pays, table)
    first = await cheap.start(pays)
    (approval,) = await asked(first)
    await first.resolve(approval, "approved", always=True, by="ann")
    await first.result()
    later = await cheap.start(pays)
    await later.result()
    assert (ran, (await later.state()).approvals) == (["pay", "pay"], {})
    by_step = await cheap.start(table)
    assert await asked_for(by_step) == {"pay": "tool"}
    await by_step.result()
    trial = try_policy(await load_trace(cheap.log, by_step.run_id), {"rules": [], "default": "deny"})
    assert [(each.tool, each.was, each.now) for each in trial] == [("pay", "require_approval", "deny")]


async def test_a_copy_and_a_run_with_fewer_tools_keep_the_approvals_of_tools_that_stay(
    cheap: Place, script: Script
) -> None:
    agent = Agent(
        "planner",
        model=script(calls(call("spawn_self", task="look", tool_names=["look"])), says("done")),
        tools=[made("look", []), made("send", [])],
        context={},
        hitl_tools=["send", "look", "retrieve_artifact"],
        allow_self_spawn=True,
    )
    await cheap.open(agent)
    run = await cheap.start(agent, tools=["look", "spawn_self"])
    await run.result()
    trace = await load_trace(cheap.log, run.run_id)
    assert [event.config["hitl_tools"] for event in trace.events if isinstance(event, Submitted)] == [
        ["look", "retrieve_artifact"],
        ["look", "retrieve_artifact"],
    ]
