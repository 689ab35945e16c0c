"""The parity kit: what is equal is called equal, and every defect is found and named (R14 to R16, R20, R24)."""

from __future__ import annotations

import json
import re
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, Event, MemoryLog, UnsupportedByExecutor
from foldlog.eventlog.events import (
    ApprovalRequested,
    McpProgress,
    OutputMade,
    Status,
    Text,
    TextReset,
    TokenUsage,
    ToolEffect,
    ToolResult,
    ToolStarted,
    Usage,
)
from foldlog.eventlog.faults import CrashAt, LostAck
from foldlog.replay import load_trace
from foldlog.replay.canonical.canonical import canonical
from foldlog.replay.parity.fault_spec import describe, parse_faults
from foldlog.replay.parity.inputs import Answer, Cancel, Input, Message, Pause, WaitEnd, inputs_of
from foldlog.replay.parity.live import as_stored
from foldlog.replay.parity.parity import ParityViolation, assert_parity, check_parity
from foldlog.replay.parity.stage import ForkOf
from foldlog.replay.rerunning.recorded import rerun
from foldlog.runtime import (
    CAPABILITIES,
    Agent,
    Registry,
    Runtime,
    ToolContext,
    ToolFailed,
    WorkflowRun,
    WorkflowTable,
    tool,
    workflow,
)
from foldlog.runtime.ports.plugins import installed
from foldlog.runtime.stream import Joiner

from .executors import (
    DropsProgress,
    EmitsAfterCancel,
    ForgetsMessages,
    HoldsProgressBack,
    NeverEnds,
    OwnExecutor,
    ReordersResults,
    RepeatsATool,
    ShowsProgressLate,
    SwallowsUsage,
)
from .scenes import AGENT, EVERYTHING, TWO_CALLS, call, calls, look, says

pytestmark = pytest.mark.anyio
INPUTS: list[Input] = [
    Message(step=1, content="first"),
    Message(step=2, content="hurry"),
    Pause(step=3),
    Message(step=5, content="go on"),
    Answer(call="2.0", arguments={"to": "z"}, note="not x"),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_equal_traces_are_equal_and_say_so_in_one_line() -> None:
    report = await check_parity(AGENT, "question", script=TWO_CALLS)
    assert report.equal
    assert report.boundaries == (16, 16)
    assert report.first_difference is None
    assert report.render() == "parity: equal (16 of 16 boundaries), local and durable"
    assert set(report.traces) == {"local", "durable"}


async def test_every_kind_of_input_reaches_both_executors_at_its_place() -> None:
    report = await check_parity(AGENT, "question", script=EVERYTHING, inputs=INPUTS)
    assert report.equal, report.render()
    assert sorted(map(repr, report.inputs)) == sorted(map(repr, INPUTS))
    assert inputs_of(report.traces["durable"]) == inputs_of(report.traces["local"])


FOLLOWING: dict[str, Any] = {
    "turns": [
        calls(
            call("read_plan"), call("update_plan_step", "c2", step="1", status="completed", note="in boxes")
        ),
        calls(call("update_plan_step", "c3", step="2", status="in_progress")),
        says("on the road"),
    ],
    "plans": {"move": ["Pack.", "Drive."]},
}


async def test_both_executors_follow_a_standing_plan_from_the_same_beginning() -> None:
    """Also after a crash in between, each call has changed it once (W63)."""
    agent, log = Agent("mover", standing_plan="move"), MemoryLog()
    report = await check_parity(agent, "question", script=FOLLOWING, faults="crash@12", log=log)
    assert report.equal, report.render()
    assert report.fired
    for trace in report.traces.values():
        results = [event.result for event in trace.events if isinstance(event, ToolResult)]
        assert [[step["status"] for step in result["steps"]] for result in results] == [
            ["pending", "pending"],
            ["completed", "pending"],
            ["completed", "in_progress"],
        ]
    async with Runtime.open(log=log) as runtime:
        made = [(each.run, each.call) for each in await runtime.plans.versions("move") if each.call]
    assert len(made) == len(set(made)) == 4


async def test_an_agent_whose_standing_plan_is_not_in_the_script_is_refused_by_its_name() -> None:
    agent = Agent("mover", standing_plan="move")
    with pytest.raises(ConfigError, match=r"agent 'mover' follows the standing plan 'move': give its steps"):
        await check_parity(agent, "question", script=[says("done")])
    wrong = {"turns": [says("done")], "plans": {"move": [{"text": ""}]}}
    with pytest.raises(ConfigError, match="script: plan 'move': step 1 has no text"):
        await check_parity(agent, "question", script=wrong)


async def test_the_inputs_can_be_taken_from_a_trace() -> None:
    log = MemoryLog()
    first = await check_parity(AGENT, "question", script=EVERYTHING, inputs=INPUTS, log=log)
    trace = await load_trace(log, first.traces["durable"].root)
    again = await check_parity(AGENT, "question", script=EVERYTHING, inputs=trace)
    assert again.equal, again.render()
    assert again.boundaries == first.boundaries


async def test_a_message_that_no_step_carried_counts_for_the_budget_all_the_same() -> None:
    context = {"window_tokens": 40}
    agent = Agent("helper", model="openai:gpt-4o", tools=[big], context=context, budget_awareness="limit:50")
    report = await check_parity(
        agent, "question", script=[says("ok")], inputs=[Message(step=1, content="more")]
    )
    assert report.equal, report.render()
    assert report.inputs == (Message(step=1, content="more"),)


@pytest.mark.parametrize("decision", ["approved", "rejected", "timed_out"])
async def test_an_approval_is_answered_alike_whatever_the_answer(decision: Any) -> None:
    inputs = [Answer(call="1.0", decision=decision)]
    report = await check_parity(
        AGENT, "question", script=[calls(call("deploy", to="x")), says("ok")], inputs=inputs
    )
    assert report.equal, report.render()
    assert list(report.inputs) == inputs


async def test_questions_of_tools_are_answered_alike_and_a_recording_asks_them_again() -> None:
    form = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

    @tool
    async def travel(ctx: ToolContext) -> str:
        """Travel."""
        ctx.progress(1)
        answer = await ctx.ask("Where to?", form)
        return f"{answer.action} {answer.content} {(await ctx.ask('Sure?')).action}"

    agent = Agent("helper", model="openai:gpt-4o", tools=[travel])
    inputs = [
        Answer(call="1.0", kind="elicitation", arguments={"city": "Rome"}),
        Answer(call="1.0", kind="elicitation", ordinal=1, decision="rejected"),
    ]
    report = await check_parity(agent, "question", script=[calls(call("travel")), says("ok")], inputs=inputs)
    assert report.equal, report.render()
    assert list(report.inputs) == inputs
    again = await rerun(report.traces["local"])
    assert canonical(again).digest == canonical(report.traces["durable"]).digest


@pytest.mark.parametrize("effect", ["pure", "unsafe"])
async def test_waits_of_tools_end_alike_and_a_recording_waits_again(effect: ToolEffect) -> None:
    @tool(effect=effect)
    async def chase(ctx: ToolContext) -> list[Any]:
        """Chase."""
        ctx.progress(1)
        await ctx.sleep(days=3)
        signals = [await ctx.wait_for("paid", timeout_s=3600) for _ in range(3)]
        signals.append(await (await ctx.callback("scan", timeout_s=3600)).outcome())
        return [signal and signal.data for signal in signals]

    agent = Agent("helper", model="openai:gpt-4o", tools=[chase])
    inputs = [
        WaitEnd(call="1.0", wait="signal-paid-0", data={"eur": 1}, key="a"),
        WaitEnd(call="1.0", wait="signal-paid-1", timed_out=True),
        WaitEnd(call="1.0", wait="signal-paid-2", data={"eur": 2}),
        WaitEnd(call="1.0", wait="callback-scan-0", data="scanned"),
    ]
    script = [calls(call("chase")), says("ok")]
    report = await check_parity(agent, "question", script=script, inputs=inputs)
    assert report.equal, report.render()
    assert list(report.inputs) == inputs
    (result,) = [e.result for e in report.traces["durable"].events if isinstance(e, ToolResult)]
    assert result == [{"eur": 1}, None, {"eur": 2}, "scanned"]
    again = await rerun(report.traces["local"])
    assert canonical(again).digest == canonical(report.traces["durable"]).digest
    with pytest.raises(ConfigError, match=r"the wait signal-paid-2 of call 1\.0 has no end: add WaitEnd"):
        await check_parity(agent, "question", script=script, inputs=inputs[:2])


async def test_one_answer_may_stand_for_all_that_have_none_of_their_own() -> None:
    script = [calls(call("deploy", to="x"), call("deploy", to="y")), says("ok")]
    inputs = [Answer(call="*", note="any"), Answer(call="1.1", decision="rejected")]
    report = await check_parity(AGENT, "question", script=script, inputs=inputs)
    assert report.equal, report.render()
    found = [item for item in report.inputs if item.call != "*"]
    assert found == [Answer(call="1.0", note="any"), Answer(call="1.1", decision="rejected")]


async def test_a_fork_is_the_same_on_every_executor() -> None:
    log = MemoryLog()
    inputs = [Answer(call="1.0")]
    script = [calls(call("deploy", to="x")), calls(call("deploy", to="y")), says("ok")]
    whole = await check_parity(AGENT, "question", script=script, inputs=[Answer(call="*")], log=log)
    root = whole.traces["local"].root
    for at in (2, 12, 20):
        fork = ForkOf(run=root, at=at, tools="replay", input="and then?")
        answers = [Answer(call="*"), *inputs]
        report = await check_parity(AGENT, "question", script=script, inputs=answers, log=log, fork=fork)
        assert report.equal, report.render()
        assert all(trace.commits[0].commit.events[0].fork.revision == at for trace in report.traces.values())
    with pytest.raises(ConfigError, match="messages and pauses are not possible in a fork"):
        await check_parity(AGENT, "question", script=script, inputs=[Pause(step=2)], log=log, fork=fork)


@tool(effect="unsafe")
def give_back(invoice: str, eur: int) -> str:
    """Give money back."""
    return f"gave {eur} back"


@tool(effect="unsafe", compensate=lambda args, made: give_back(invoice=args["invoice"], eur=made["eur"]))
def pay(invoice: str) -> dict[str, int]:
    """Pay an invoice."""
    return {"eur": len(invoice)}


@tool(effect="unsafe", rollback_hint="Ask the printer.")
def print_letter(text: str) -> str:
    """Print a letter."""
    return "printed"


@tool(effect="pure")
def refuse(text: str) -> str:
    """Refuse."""
    raise ToolFailed(f"no {text}")


UNDOING = [pay, give_back, print_letter, refuse]
CLERK = Agent("clerk", tools=UNDOING)
CLERKS_WORK = [
    calls(call("pay", invoice="a")),
    calls(call("print_letter", text="Paid.")),
    calls(call("pay", invoice="bb")),
    says("ok"),
]
SALE = WorkflowTable.from_config(
    {
        "kind": "workflow",
        "name": "sale",
        "steps": [
            {"id": "paid", "tool": "pay", "arguments": {"invoice": "${input.of}"}},
            {"id": "told", "tool": "print_letter", "arguments": {"text": "Paid."}, "needs": ["paid"]},
            {
                "id": "sold",
                "tool": "refuse",
                "arguments": {"text": "way"},
                "needs": ["told"],
                "on_error": "rollback",
            },
        ],
    },
    Registry(tools=UNDOING),
)
DONE_BY_HAND = Answer(call="*", kind="elicitation")


@pytest.mark.parametrize("faults", [None, "crash@14", "crash-after@22,lost-ack@3", "duplicate@1"])
@pytest.mark.parametrize(
    ("runnable", "text", "script", "undone"),
    [
        (CLERK, "question", CLERKS_WORK, ["give_back", "", "give_back"]),
        (SALE, '{"of": "a"}', {"turns": []}, ["", "give_back"]),
    ],
    ids=["an agent", "a table that rolls itself back"],
)
async def test_a_rollback_is_the_same_on_every_executor(
    runnable: Any, text: str, script: Any, undone: list[str], faults: str | None
) -> None:
    approved = Answer(call="*", kind="compensation")
    report = await check_parity(
        runnable,
        text,
        script=script,
        inputs=[approved, DONE_BY_HAND],
        registry=Registry(tools=UNDOING),
        rollback=True,
        faults=faults,
    )
    assert report.equal, report.render()
    assert [pairing.undoing for pairing in report.pairings] == [False, True]
    assert "the rollbacks of local and durable" in report.render()
    for trace in report.rollbacks.values():
        asked = [e for e in trace.events if isinstance(e, ApprovalRequested) and e.kind != "unverifiable"]
        assert [each.tool_name for each in asked] == undone


async def test_a_rollback_that_is_rejected_ends_alike_and_one_of_a_cancelled_run_is_not_compared() -> None:
    rejected = Answer(call="*", kind="compensation", decision="rejected", note="keep it")
    options: Any = {"script": CLERKS_WORK, "registry": Registry(tools=UNDOING), "rollback": True}
    report = await check_parity(CLERK, "question", inputs=[rejected, DONE_BY_HAND], **options)
    assert report.equal, report.render()
    for trace in report.rollbacks.values():
        assert [e.tool_name for e in trace.events if isinstance(e, ApprovalRequested)] == ["give_back"]
        assert not any(isinstance(e, ToolStarted) for e in trace.events)
    with pytest.raises(ConfigError, match="leave rollback out"):
        await check_parity(CLERK, "question", inputs=[Cancel(after=5)], **options)
    with pytest.raises(ConfigError, match="nothing to be rolled back"):
        await check_parity(CLERK, "question", **{**options, "script": [says("ok")]})


async def test_an_approval_without_an_answer_is_asked_for_by_its_place() -> None:
    with pytest.raises(
        ConfigError, match=r"approval 0 \(kind tool\) of call 1\.0, tool 'deploy', has no answer"
    ):
        await check_parity(AGENT, "question", script=[calls(call("deploy", to="x")), says("ok")])


@pytest.mark.parametrize("after", [1, 4, 9, 14, 20, 1000])
async def test_a_cancelled_run_is_a_prefix_of_the_whole_one(after: int) -> None:
    inputs = [*INPUTS, Cancel(after=after, reason="enough")]
    report = await check_parity(AGENT, "question", script=EVERYTHING, inputs=inputs)
    assert report.equal, report.render()
    assert report.render().count("a prefix of local") == (0 if after == 1000 else 2)


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(3))
async def test_a_worker_that_dies_at_any_operation_leaves_a_trace_equal_to_the_undisturbed_one(
    first: int,
) -> None:
    for number in range(1 + first, 72, 3):
        fault = f"crash{'-after' if number % 2 else ''}@{number}"
        report = await check_parity(AGENT, "question", script=EVERYTHING, inputs=INPUTS, faults=fault)
        assert report.equal, f"{fault}: {report.render()}"


async def test_the_faults_that_happened_are_told_and_those_that_were_not_reached() -> None:
    report = await check_parity(AGENT, "question", script=TWO_CALLS, faults="lost-ack@1,duplicate,crash@9999")
    assert report.equal, report.render()
    assert report.render().splitlines()[1:] == [
        "faults that happened: duplicate@1, lost-ack@1",
        "not reached: crash@9999",
    ]


@pytest.mark.parametrize(
    "faults", ["lost-ack@2", "refused@2", "conflict@1,conflict@3", "outage@9", "late-append@2", "delay@2"]
)
async def test_a_log_that_misbehaves_does_not_change_what_is_seen(faults: str) -> None:
    report = await check_parity(AGENT, "question", script=EVERYTHING, inputs=INPUTS, faults=faults)
    assert report.equal, report.render()
    assert report.fired == parse_faults(faults)


def test_a_specification_reads_back_as_it_was_written() -> None:
    spec = "crash@5,crash-after@6,lost-ack@7,duplicate@1,delay@2:events.read"
    faults = parse_faults(spec)
    assert faults[:3] == (CrashAt(5), CrashAt(6, after=True), LostAck(7))
    assert ",".join(map(describe, faults)) == spec


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ("crush@5", "did you mean 'crash'"),
        ("crash@soon", "not 'soon'"),
        ("crash@0", "not '0'"),
        ("crash@5,crash-after@5", "two faults"),
    ],
)
def test_a_wrong_specification_is_named(spec: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        parse_faults(spec)


# --- defects ----------------------------------------------------------------------------------------------------------

HISTORY = [{"role": "user", "content": "before"}, {"role": "assistant", "content": "yes?"}]


@pytest.mark.parametrize(
    ("defect", "inputs", "rules", "told"),
    [
        (DropsProgress, [], {"R4"}, r"mcp_progress\(1/2\) of helper is only in the left trace"),
        (
            ReordersResults,
            [],
            {"R12"},
            "step 2 of helper sent the model a different request: .*a stored digest does not match the stored",
        ),
        (HoldsProgressBack, [], {"R4"}, "mcp_progress"),
        (
            ShowsProgressLate,
            [],
            {"R15"},
            r"own: R15: call \S+ of \S+ emitted 3 events, of which [01] were shown while it was running",
        ),
        (EmitsAfterCancel, [Cancel(after=4)], {"R8"}, "own: R8: "),
        (SwallowsUsage, [], {"R3"}, "step 1 of helper has no usage in the right trace"),
        (RepeatsATool, [], {"R16"}, "look of step 1 was started 2 times, its trace accounts for 1"),
        (ForgetsMessages, [], {"R12"}, "step 1 of helper sent the model a different request: message "),
        (NeverEnds, [], {"R6"}, "own: R6: the run did not end in time"),
    ],
)
async def test_a_defect_of_an_executor_is_found_and_named(
    defect: type[OwnExecutor], inputs: list[Input], rules: set[str], told: str
) -> None:
    executors = ("local", defect)
    timeout_s = 3.0 if defect is NeverEnds else 30.0
    report = await check_parity(
        AGENT,
        "question",
        script=TWO_CALLS,
        executors=executors,
        inputs=inputs,
        messages=HISTORY,
        timeout_s=timeout_s,
    )
    assert not report.equal
    assert rules <= report.rules
    assert re.search(told, report.render()), report.render()


async def test_a_tool_of_a_workflow_that_is_called_twice_is_found_and_one_that_is_not_succeeds() -> None:
    """Its calls have a place instead of a step."""

    @workflow(name="looks", tools=[look])
    async def looks(run: WorkflowRun, at: str) -> str:
        (seen,) = await run.gather(lambda r: r.call(look, at=at))
        return str(seen)

    script: Any = {"turns": []}
    report = await check_parity(looks, "there", script=script, executors=("local", "durable", OwnExecutor))
    assert report.equal, report.render()
    made = [e.output for e in report.traces["durable"].events if isinstance(e, OutputMade)]
    assert made == ["saw there"]
    report = await check_parity(looks, "there", script=script, executors=("local", RepeatsATool))
    assert "own: R16: look of place gather#0.0/look#0 was started 2 times" in report.render()


async def test_the_same_executor_without_a_defect_is_equal() -> None:
    for inputs in ([], [Cancel(after=4)]):
        await assert_parity(
            AGENT,
            "question",
            script=TWO_CALLS,
            executors=("local", "durable", OwnExecutor),
            inputs=inputs,
            messages=HISTORY,
        )


async def test_a_violation_raises_with_the_report() -> None:
    with pytest.raises(ParityViolation, match="mcp_progress") as violation:
        await assert_parity(AGENT, "question", script=TWO_CALLS, executors=("local", DropsProgress))
    assert violation.value.report.first_difference is not None
    assert str(violation.value) == violation.value.report.render()


async def test_a_tool_that_is_not_deterministic_differs_in_content_and_not_in_shape() -> None:
    answers = iter(range(100))

    @tool(effect="pure")
    async def roll() -> int:
        """Roll a die."""
        return next(answers)

    agent = Agent("gambler", model="openai:gpt-4o", tools=[roll])
    script = [calls(call("roll")), says("done")]
    report = await check_parity(agent, "question", script=script)
    assert not report.equal
    assert report.first_difference is not None
    assert report.first_difference.rule == "R4"
    assert (await check_parity(agent, "question", script=script, shape=True)).equal


# --- what is shown live -----------------------------------------------------------------------------------------------


async def test_a_live_stream_that_is_not_what_is_stored_is_found_and_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = Joiner.stored

    def without_progress(self: Joiner, event: Event) -> list[Event]:
        return [] if isinstance(event, McpProgress) else shown(self, event)

    monkeypatch.setattr(Joiner, "stored", without_progress)
    report = await check_parity(AGENT, "question", script=TWO_CALLS, timeout_s=120)
    assert not report.equal
    assert report.boundaries == (16, 16)
    assert {finding.executor for finding in report.findings} == {"local", "durable"}
    assert "R14: the live stream differs from the log: stored mcp_progress(1/2)" in report.render()


def test_a_live_stream_is_told_with_its_drafts_joined_and_corrected() -> None:
    def piece(text: str, offset: int, step: int = 1) -> Text:
        return Text(run_id="r", agent_path="a", step=step, text=text, offset=offset)

    starting = Status(run_id="r", agent_path="a", status="starting")
    usage = Usage(run_id="r", agent_path="a", step=1, usage=TokenUsage(), model="m", source="provider")
    reset = TextReset(run_id="r", agent_path="a", step=1, offset=2, channel="text", cause="retry")
    inner = Text(run_id="r", agent_path="a/tool", step=1, text="forwarded", offset=0)
    shown = [
        starting,
        piece("one ", 0),
        piece("two", 4),
        reset,
        inner,
        piece("ce", 2),
        usage,
        piece("lost", 0, 2),
    ]
    assert list(as_stored(shown)) == [starting, inner, piece("once", 0), usage, piece("lost", 0, 2)]


# --- capabilities -----------------------------------------------------------------------------------------------------

BIG = "x" * 100_000
DEEP = {"turns": [calls(call("delegate", question="?")), says("done")], "agents": {"inner": [says("inner")]}}


@tool(effect="pure")
async def big() -> str:
    """Return much."""
    return BIG


NEEDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "detailed_events": ({}, {"script": [says("x")]}),
    "drafts": ({}, {"script": [says("in ", "pieces")]}),
    "messages": ({}, {"script": [says("x")], "messages": HISTORY}),
    "memory": ({"memory": {"scope": "session"}}, {"script": [says("x")]}),
    "context": ({"budget_awareness": "limit:70"}, {"script": [says("x")]}),
    "planning": ({"planning_enabled": True}, {"script": [says("x")]}),
    "approvals": ({"hitl_tools": ["big"]}, {"script": [says("x")]}),
    "progress": ({"tools": list(AGENT.tools.values())}, {"script": [calls(call("look", at="a")), says("x")]}),
    "inject": ({}, {"script": [says("x"), says("y")], "inputs": [Message(step=2, content="more")]}),
    "pause": ({}, {"script": [calls(call("big")), says("y")], "inputs": [Pause(step=2)]}),
    "children": ({"tools": list(AGENT.tools.values())}, {"script": DEEP}),
    "artifacts": ({}, {"script": [calls(call("big")), says("x")]}),
    "fallback": ({"fallback_models": ["openai:gpt-4o-mini"]}, {"script": [says("x")]}),
    "concurrency": ({"concurrency": {"runs_max": 1}}, {"script": [says("x")]}),
}


def test_there_is_a_case_for_each_capability() -> None:
    assert set(NEEDS) == CAPABILITIES


@pytest.mark.parametrize("feature", sorted(NEEDS))
async def test_an_executor_that_lacks_what_the_run_needs_is_refused_by_name_and_not_driven(
    feature: str,
) -> None:
    class Lacking(OwnExecutor):
        name = "lacking"
        capabilities = CAPABILITIES - {feature}

        async def drive(self, subject: Any, agent: Any = None) -> None:
            raise AssertionError("nothing may be driven")

    class Complete(OwnExecutor):
        name = "complete"

    fields, options = NEEDS[feature]
    agent = Agent("helper", model="openai:gpt-4o", **{"tools": [big], **fields})
    with pytest.raises(UnsupportedByExecutor) as refusal:
        await check_parity(agent, "question", executors=(Complete, Lacking), **options)
    assert (refusal.value.feature, refusal.value.executor) == (feature, "lacking")
    assert refusal.value.remedy


# --- what cannot be checked -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"executors": ("local",)}, "two or more executors"),
        ({"executors": ("local", "local")}, "different names"),
        ({"executors": ("local", "cloud")}, "no executor 'cloud'"),
        ({"executors": ("local", OwnExecutor), "faults": "crash@1"}, "durable"),
        ({"script": [{"txt": "a"}]}, r"script: turn 1: .*txt"),
        ({"script": {"turns": [], "input": 3}}, "input must be text"),
        ({"script": {"turns": [], "extra": 3}}, "unknown key 'extra'"),
        ({"script": "nowhere.json"}, r"nowhere\.json cannot be read"),
        ({"inputs": [{"type": "message", "content": "x"}]}, "step"),
        ({"inputs": [Cancel(after=1)], "shape": True}, "by content"),
    ],
)
async def test_what_cannot_be_checked_is_a_clear_error(options: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        await check_parity(AGENT, "question", **{"script": TWO_CALLS, **options})


async def test_the_question_may_stand_in_the_script_file(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"turns": [says("x")], "input": "what?"}))
    report = await check_parity(AGENT, script=path)
    assert report.equal
    with pytest.raises(ConfigError, match="has no `input`"):
        await check_parity(AGENT, script=[says("x")])


async def test_tools_and_agents_known_by_name_are_found_in_the_registry() -> None:
    agent = Agent("helper", model="openai:gpt-4o", tools=["look", "delegate"])
    registry = Registry(agents=[agent], tools=[AGENT.tools["look"], AGENT.tools["delegate"]])
    report = await check_parity(agent, "question", script=DEEP, registry=registry)
    assert report.equal, report.render()


async def test_an_executor_of_a_plugin_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {**installed("foldlog.executors"), "own": EntryPoint("own", f"{__name__}:OwnExecutor", "")}
    monkeypatch.setattr("foldlog.runtime.executors.installed.installed", lambda _group: found)
    report = await check_parity(AGENT, "question", script=TWO_CALLS, executors=("local", "own"))
    assert report.equal, report.render()


async def test_an_answer_that_is_refused_is_told_by_its_place() -> None:
    inputs = [Answer(call="1.0", arguments={"where": 3})]
    with pytest.raises(ConfigError, match=r"of call 1\.0: the answer of the inputs is refused"):
        await check_parity(
            AGENT, "question", script=[calls(call("deploy", to="x")), says("ok")], inputs=inputs, timeout_s=30
        )
