"""The monitor (R1 to R11, R13, R25 to R31, R33, R35, R39, P20) is silent on legal traces, and names the broken rule."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from foldlog.eventlog.events import (
    ApprovalRequested,
    ApprovalResolved,
    Budget,
    Buried,
    CancelRequested,
    ChildFinished,
    ChildStarted,
    Claimed,
    Context,
    Custom,
    Error,
    Event,
    McpProgress,
    MessageInjected,
    MessageQueued,
    ModelRequested,
    PlanMade,
    PlannerReplied,
    PolicyRuling,
    RalphIteration,
    RalphStop,
    Reasoning,
    SignalDropped,
    SignalReceived,
    Status,
    Step,
    Text,
    TokenUsage,
    ToolCall,
    ToolPartial,
    ToolResult,
    ToolStarted,
    Usage,
    WaitEnded,
    WaitStarted,
)
from foldlog.replay import Monitor, Violation, check_trace, trace_of

from .traces import (
    LEGAL,
    Family,
    cancelled_trace,
    canonical_trace,
    child_trace,
    find,
    message_trace,
    native_trace,
    parallel_trace,
    ralph_trace,
    recovery_trace,
    renumbered,
    step_started,
    usage,
    waiting_trace,
)

Events = list[Event]


def watch(events: Events, *, ended: bool = True) -> list[Violation]:
    monitor = Monitor()
    found = [violation for event in events for violation in monitor.feed(event)]
    return found + monitor.finish() if ended else found


def rules(events: Events) -> set[str]:
    return {violation.rule for violation in watch(events)}


@pytest.mark.parametrize("build", LEGAL.values(), ids=LEGAL)
def test_a_legal_trace_breaks_no_rule(build: Callable[[], Family]) -> None:
    assert check_trace(trace_of(build().stored)) == []


@pytest.mark.parametrize("build", LEGAL.values(), ids=LEGAL)
def test_every_beginning_of_a_legal_trace_breaks_no_rule(build: Callable[[], Family]) -> None:
    stored = build().stored
    assert [check_trace(trace_of(stored[:n]), ended=False) for n in range(len(stored))] == [[]] * len(stored)


def test_a_pause_for_a_budget_that_is_raised_breaks_no_rule() -> None:
    assert rules(renumbered(over_budget())) == set()


def test_a_run_that_never_ends_has_no_terminal_status() -> None:
    (violation,) = check_trace(trace_of(canonical_trace().stored[:-1]))
    assert (violation.rule, violation.revisions[1]) == ("R6", 13)


# --- mutations --------------------------------------------------------------------------------------------------------


def move(events: Events, index: int, to: int) -> Events:
    """Take an event out and put it before the event that stood at `to`."""
    event, rest = events[index], events[:index] + events[index + 1 :]
    at = to if to < index else to - 1
    return [*rest[:at], event, *rest[at:]]


def insert(events: Events, at: int, event: Event) -> Events:
    """Put an event of the same run before the one at `at`."""
    near = events[min(at, len(events) - 1)]
    full = msgspec.structs.replace(
        event,
        run_id=near.run_id,
        root_id=near.root_id,
        agent_path=event.agent_path or near.agent_path,
        cursor=near.cursor,
        revision=0,
        at=near.at,
    )
    return [*events[:at], full, *events[at:]]


def without(events: Events, *indices: int) -> Events:
    return [event for index, event in enumerate(events) if index not in indices]


def change(events: Events, index: int, **fields: object) -> Events:
    return [msgspec.structs.replace(e, **fields) if i == index else e for i, e in enumerate(events)]


def canonical() -> Events:
    return canonical_trace().events


def parallel() -> Events:
    return parallel_trace().events


def r1_no_starting() -> Events:
    events = canonical()
    return without(events, find(events, Status, status="starting"))


def r1_second_starting() -> Events:
    events = message_trace().events
    return insert(events, find(events, Status, status="paused"), Status(status="starting"))


def r1_event_before_starting() -> Events:
    events = canonical()
    return insert(events, 1, Context(action="window", before_count=2, after_count=1))


def r1_planner_behind_a_step() -> Events:
    replied = PlannerReplied(round=1, usage=TokenUsage(), model="m")
    return insert(canonical(), 4, replied)


def r1_second_plan() -> Events:
    return insert(insert(canonical(), 1, PlanMade()), 2, PlanMade(plan="another"))


def r1_budget_within_a_step() -> Events:
    events = canonical()
    budget = Budget(kind="advisory", scope="context", used=1, limit=2)
    return insert(events, find(events, McpProgress), budget)


def r2_event_of_a_step_behind_it() -> Events:
    events = parallel()
    return change(events, find(events, Text, step=2), step=1)


def r2_second_step_within_the_first() -> Events:
    events = canonical()
    return without(events, find(events, Step, step=1, status="completed"))


def r2_step_left_out() -> Events:
    events = canonical()
    return [msgspec.structs.replace(e, step=3) if e.step == 2 else e for e in events]


def r2_completes_with_an_open_step() -> Events:
    events = canonical()
    return without(events, find(events, Step, step=2, status="completed"))


def r2_step_completes_twice() -> Events:
    events = canonical()
    at = find(events, Step, step=1, status="completed")
    return insert(events, at + 1, events[at])


def r3_text_behind_usage() -> Events:
    events = canonical()
    return move(events, find(events, Usage, step=2), find(events, Text))


def r3_call_before_usage() -> Events:
    events = canonical()
    return move(events, find(events, Usage, step=1), find(events, ToolCall) + 1)


def r3_no_usage() -> Events:
    events = canonical()
    return without(events, find(events, Usage, step=2))


def r3_two_usages() -> Events:
    events = canonical()
    at = find(events, Usage, step=2)
    return insert(events, at, events[at])


def r4_no_result() -> Events:
    events = canonical()
    return without(events, find(events, ToolResult))


def r4_two_results() -> Events:
    events = canonical()
    at = find(events, ToolResult)
    return insert(events, at, events[at])


def r4_progress_behind_the_result() -> Events:
    events = canonical()
    return move(events, find(events, ToolResult), find(events, McpProgress))


def r4_custom_behind_the_result() -> Events:
    events = canonical()
    at = find(events, ToolResult)
    custom = Custom("note", 1, step=1, tool_call_id=events[at].tool_call_id)
    return insert(events, at + 1, custom)


def r4_result_of_no_call() -> Events:
    events = canonical()
    return change(events, find(events, ToolResult), tool_call_id="another")


def r4_result_before_the_approval_is_resolved() -> Events:
    events = parallel_trace(slow_first=True).events
    result = find(events, ToolResult, result="a")
    return move(events, result, find(events, ApprovalResolved))


def r4_resolved_twice() -> Events:
    events = parallel()
    at = find(events, Status, status="resumed")
    return insert(events, at + 1, events[find(events, ApprovalResolved)])


def r5_held_back() -> Events:
    events = parallel_trace(slow_first=True).events
    return move(events, find(events, ToolResult, result="b"), find(events, ToolResult, result="a") + 1)


def r6_two_terminals() -> Events:
    events = canonical()
    return insert(events, len(events), Status(status="error"))


def r6_event_behind_the_terminal() -> Events:
    events = canonical()
    return insert(events, len(events), Context(action="window", before_count=2, after_count=1))


def r7_child_before_it_is_announced() -> Events:
    events = child_trace().events
    return move(events, find(events, ChildStarted), find(events, Status, 1, status="starting") + 1)


def r7_finished_before_it_ends() -> Events:
    events = child_trace().events
    terminal = find(events, Status, status="completed")
    return move(events, find(events, ChildFinished), terminal)


def r7_finished_with_another_status() -> Events:
    events = child_trace().events
    return change(events, find(events, ChildFinished), status="error")


def r7_result_before_the_child_finished() -> Events:
    events = child_trace().events
    return move(events, find(events, ToolResult, result="answer 1"), find(events, ChildFinished, 1))


def r7_parent_ends_first() -> Events:
    events = ralph_trace().events
    ended = find(events, Status, run_id="child-a-2", status="completed")
    return without(move(events, ended, len(events)), find(events, ChildFinished, 1) - 1)


def r7_forwarded_behind_the_result() -> Events:
    events = canonical()
    at = find(events, ToolResult)
    inner = Text(step=1, text="inner", tool_call_id=events[at].tool_call_id, agent_path="agent/inner")
    return insert(events, at + 1, inner)


def r8_text_behind_the_cancel() -> Events:
    events = cancelled_trace().events
    return insert(events, len(events), Context(action="window", before_count=2, after_count=1))


def r8_something_between_request_and_status() -> Events:
    events = cancelled_trace().events
    return insert(
        events, find(events, CancelRequested) + 1, Context(action="window", before_count=2, after_count=1)
    )


def r8_error_behind_the_cancel() -> Events:
    events = cancelled_trace().events
    return insert(events, len(events), Status(status="error"))


def r9_overlapping_iterations() -> Events:
    events = ralph_trace().events
    return without(events, find(events, RalphIteration, status="completed"))


def r9_iteration_left_out() -> Events:
    events = ralph_trace().events
    return [
        msgspec.structs.replace(e, iteration=5) if isinstance(e, RalphIteration) and e.iteration == 2 else e
        for e in events
    ]


def r9_child_outside() -> Events:
    events = ralph_trace().events
    return move(events, find(events, ChildStarted), find(events, RalphIteration))


def r9_stop_within_an_iteration() -> Events:
    events = ralph_trace().events
    return move(
        events, find(events, RalphStop), find(events, RalphIteration, iteration=2, status="completed")
    )


def r9_no_stop() -> Events:
    events = ralph_trace().events
    return without(events, find(events, RalphStop))


def r10_reasoning_behind_text() -> Events:
    events = canonical()
    return insert(events, find(events, Text) + 1, Reasoning(step=2, text="hm"))


def r10_call_behind_a_result() -> Events:
    events = parallel()
    call = find(events, ToolCall, 2)
    return move(events, call, find(events, ToolResult) + 1)


def r10_approval_behind_the_reply() -> Events:
    events = parallel()
    paused = find(events, Status, status="paused")
    first = move(events, find(events, ApprovalRequested), find(events, McpProgress) + 1)
    return move(first, paused - 1, find(first, ApprovalRequested) + 1)


def r10_no_pause() -> Events:
    events = parallel()
    return without(events, find(events, Status, status="paused"), find(events, Status, status="resumed"))


def r10_no_resume() -> Events:
    events = parallel()
    return without(events, find(events, Status, status="resumed"))


def r10_resumed_before_the_resolution() -> Events:
    events = parallel()
    return move(events, find(events, Status, status="resumed"), find(events, ApprovalResolved))


def over_budget() -> Events:
    """The second step waits for a ceiling to be raised."""
    events = canonical()
    at = find(events, Step, step=2, status="started")
    for event in (
        Status(status="resumed", reason="budget"),
        ApprovalResolved(approval_id="b", decision="approved"),
        Status(status="paused", reason="budget"),
        ApprovalRequested(approval_id="b", kind="budget", tool_name=""),
        Budget(kind="limit", scope="tokens", used=9, limit=8),
    ):
        events = insert(events, at, event)
    return events


def r10_resumed_before_the_budget_is_raised() -> Events:
    events = over_budget()
    return move(events, find(events, Status, status="resumed"), find(events, ApprovalResolved))


def r10_paused_without_an_approval() -> Events:
    events = canonical()
    at = find(events, McpProgress)
    return insert(
        insert(events, at, Status(status="resumed")), at, Status(status="paused", reason="approval")
    )


def r10_resumed_without_a_pause() -> Events:
    events = canonical()
    return insert(events, find(events, McpProgress), Status(status="resumed"))


def r10_step_starts_while_paused() -> Events:
    events = message_trace().events
    resumed = find(events, Status, status="resumed")
    started = find(events, Step, step=2, status="started")
    return move(events, resumed, started + 1)


def r10_model_call_while_paused() -> Events:
    events = message_trace().events
    return insert(events, find(events, Status, status="resumed"), ModelRequested(attempt=2, digest="d"))


def r11_epoch_taken_twice() -> Events:
    events = canonical_trace(takeover=True).events
    return change(events, find(events, Claimed, 1), epoch=1)


def r13_message_left_behind() -> Events:
    events = message_trace().events
    return without(events, find(events, MessageInjected))


def r13_message_that_was_not_queued() -> Events:
    events = message_trace().events
    return without(events, find(events, MessageQueued))


def r13_message_out_of_order() -> Events:
    events = message_trace().events
    at = find(events, MessageQueued)
    earlier = insert(events, at, MessageQueued(content="but first in Latin"))
    injected = find(earlier, MessageInjected)
    return insert(earlier, injected + 1, MessageInjected(content="but first in Latin"))


def r13_message_within_a_step() -> Events:
    events = message_trace().events
    return move(events, find(events, MessageInjected), find(events, Step, step=2, status="started") + 1)


def r13_queued_behind_the_end() -> Events:
    events = canonical()
    return insert(events, len(events), MessageQueued(content="too late"))


def tombstone() -> Buried:
    return Buried(how="deleted", revisions=0, digest="")


def r35_tombstone_of_an_open_run() -> Events:
    events = canonical()
    return insert(events, len(events) - 1, tombstone())[: len(events)]


def r35_event_after_a_tombstone() -> Events:
    events = canonical()
    return [*insert(events, len(events), tombstone()), events[-1]]


def r35_tombstone_below_a_root() -> Events:
    events = [msgspec.structs.replace(event, root_id="root") for event in canonical()]
    return insert(events, len(events), tombstone())


def r26_result_within_a_wait() -> Events:
    events = waiting_trace().events
    result = find(events, ToolResult)
    wait = WaitStarted(
        step=1, tool_call_id=events[result].tool_call_id, wait_id="signal-paid-2", kind="signal"
    )
    return insert(events, result, wait)


def r26_second_wait_within_the_first() -> Events:
    events = waiting_trace().events
    first = find(events, WaitStarted, wait_id="sleep-0")
    return insert(events, first + 1, events[find(events, WaitStarted, wait_id="signal-paid-0")])


def r26_ended_twice() -> Events:
    events = waiting_trace().events
    at = find(events, WaitEnded, wait_id="signal-paid-0")
    return insert(events, at + 1, events[at])


def r26_received_without_a_signal() -> Events:
    events = waiting_trace().events
    return without(events, find(events, SignalReceived, key="1"))


def r26_one_signal_for_two_waits() -> Events:
    events = waiting_trace().events
    return without(events, find(events, SignalReceived, key="2"))


def r26_signal_behind_the_end() -> Events:
    events = waiting_trace().events
    return insert(events, len(events), SignalReceived(name="paid", key="3"))


def r27_something_between_a_call_and_its_result() -> Events:
    events = native_trace().events
    return move(
        events, find(events, ToolCall, executed_by=""), find(events, ToolResult, executed_by="provider")
    )


def r27_behind_a_call_of_the_run() -> Events:
    events = native_trace().events
    own = find(events, ToolCall, executed_by="")
    return move(events, own, find(events, ToolCall, tool_call_id="ws-2"))


def r27_started_by_the_run() -> Events:
    events = native_trace().events
    at = find(events, ToolCall, executed_by="") + 1
    return insert(events, at, ToolStarted(step=1, tool_call_id="ws-1", attempt=1))


def r27_result_of_the_run() -> Events:
    events = native_trace().events
    at = find(events, ToolResult, tool_call_id="ws-2")
    return change(events, at, executed_by="")


def r26_dropped_twice() -> Events:
    events = waiting_trace().events
    at = find(events, SignalReceived, key="2")
    return insert(events, at, SignalDropped(name="paid", problem="too late", key="1"))


ALONE = [
    r1_no_starting,
    r1_second_starting,
    r1_budget_within_a_step,
    r1_planner_behind_a_step,
    r1_second_plan,
    r2_event_of_a_step_behind_it,
    r2_step_left_out,
    r2_completes_with_an_open_step,
    r2_step_completes_twice,
    r3_text_behind_usage,
    r3_call_before_usage,
    r3_no_usage,
    r3_two_usages,
    r4_no_result,
    r4_two_results,
    r4_progress_behind_the_result,
    r4_custom_behind_the_result,
    r4_resolved_twice,
    r5_held_back,
    r6_two_terminals,
    r6_event_behind_the_terminal,
    r7_finished_before_it_ends,
    r7_finished_with_another_status,
    r7_result_before_the_child_finished,
    r7_parent_ends_first,
    r7_forwarded_behind_the_result,
    r8_text_behind_the_cancel,
    r8_something_between_request_and_status,
    r9_overlapping_iterations,
    r9_iteration_left_out,
    r9_child_outside,
    r9_stop_within_an_iteration,
    r9_no_stop,
    r10_reasoning_behind_text,
    r10_call_behind_a_result,
    r10_approval_behind_the_reply,
    r10_no_pause,
    r10_no_resume,
    r10_resumed_before_the_resolution,
    r10_resumed_before_the_budget_is_raised,
    r10_paused_without_an_approval,
    r10_resumed_without_a_pause,
    r10_step_starts_while_paused,
    r10_model_call_while_paused,
    r11_epoch_taken_twice,
    r13_message_left_behind,
    r13_message_that_was_not_queued,
    r13_message_out_of_order,
    r13_message_within_a_step,
    r13_queued_behind_the_end,
    r35_tombstone_of_an_open_run,
    r35_event_after_a_tombstone,
    r26_result_within_a_wait,
    r26_second_wait_within_the_first,
    r26_ended_twice,
    r26_received_without_a_signal,
    r26_one_signal_for_two_waits,
    r26_signal_behind_the_end,
    r26_dropped_twice,
]


@pytest.mark.parametrize("mutate", ALONE, ids=lambda mutate: mutate.__name__)
def test_a_trace_that_breaks_a_rule_is_reported_with_that_rule_alone(mutate: Callable[[], Events]) -> None:
    assert rules(renumbered(mutate())) == {mutate.__name__.split("_")[0].upper()}


OVERLAPS = [
    # What stands before status(starting) makes that one the second observable event.
    (r1_event_before_starting, {"R1"}),
    # The step that was never completed is open when the next one starts.
    (r2_second_step_within_the_first, {"R2"}),
    # A result that names no call leaves its call without one.
    (r4_result_of_no_call, {"R4"}),
    # The result is as much too early for its own approval as for the order in which calls ended.
    (r4_result_before_the_approval_is_resolved, {"R4", "R5"}),
    # The child begins before its announcement, which then announces what exists.
    (r7_child_before_it_is_announced, {"R7"}),
    # A second terminal behind a cancel is both.
    # The run has a root, but no parent.
    (r35_tombstone_below_a_root, {"R7", "R35"}),
    (r8_error_behind_the_cancel, {"R6", "R8"}),
]


@pytest.mark.parametrize(("mutate", "expected"), OVERLAPS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_trace_that_breaks_a_rule_in_several_ways_is_reported_with_each(
    mutate: Callable[[], Events], expected: set[str]
) -> None:
    assert rules(renumbered(mutate())) == expected


def test_a_revision_that_is_missing_or_doubled_is_reported() -> None:
    events = canonical()
    claimed = find(events, Claimed)
    assert rules(without(events, claimed)) == {"R11"}
    assert rules([*events[: claimed + 1], *events[claimed:]]) == {"R11"}


def test_a_violation_names_the_two_revisions_that_clash() -> None:
    events = renumbered(r3_text_behind_usage())
    (violation,) = watch(events)
    text = events[find(events, Text)]
    counted = events[find(events, Usage, step=2)]
    assert violation.revisions == (counted.revision, text.revision)
    assert str(violation).startswith(f"R3 root-a revisions {counted.revision} and {text.revision}: ")


# --- what is legal, though it looks odd -------------------------------------------------------------------------------


def test_a_failed_model_call_leaves_its_step_open() -> None:
    family = Family()
    family.begin()
    family.claim(1, *step_started(1))
    family.commit(Error(step=1, error="no", error_type="auth"), Status(status="error"), epoch=1)
    assert check_trace(trace_of(family.stored)) == []


def test_a_failed_preparation_ends_the_run_without_a_step() -> None:
    family = Family()
    family.begin()
    family.claim(1, Error(error="no key", error_type="auth"), Status(status="error"))
    assert check_trace(trace_of(family.stored)) == []


def test_a_context_budget_that_is_used_up_completes_the_run_with_a_text_outside_of_steps() -> None:
    family = Family()
    family.begin()
    family.claim(1, *step_started(1))
    family.commit(usage(1), Step(step=1, status="completed"), epoch=1)
    family.commit(
        Context(action="compact", before_count=9, after_count=3),
        Budget(kind="limit", scope="context", used=9, limit=8),
        Text(text="Stopped"),
        Status(status="completed", reason="budget_limit"),
        epoch=1,
    )
    assert check_trace(trace_of(family.stored)) == []


def test_a_child_that_was_announced_may_be_cancelled_before_its_first_commit() -> None:
    family = Family()
    family.begin()
    family.claim(1, *step_started(1))
    call = family.call(0)
    family.commit(usage(1), ToolCall(step=1, tool_call_id=call, tool_name="ask"), epoch=1)
    started = ChildStarted(step=1, tool_call_id=call, child_run="child", name="helper", kind="agent")
    family.commit(started, epoch=1)
    for run, path in (("child", "agent/helper"), (family.root, "agent")):
        family.commit(CancelRequested(), Status(status="cancelled"), run=run, path=path)
    assert check_trace(trace_of(family.stored)) == []


def test_a_crash_while_another_call_waits_for_approval_is_settled_under_the_same_pause() -> None:
    family = Family()
    a, b = family.call(0), family.call(1)
    paused = Status(status="paused", reason="approval")
    family.begin()
    family.claim(1, *step_started(1))
    calls = [ToolCall(step=1, tool_call_id=call, tool_name="x") for call in (a, b)]
    family.commit(
        usage(1),
        *calls,
        ApprovalRequested(step=1, tool_call_id=a, approval_id="tool", kind="tool"),
        paused,
        epoch=1,
    )
    family.claim(2, ApprovalRequested(step=1, tool_call_id=b, approval_id="lost", kind="unverifiable"))
    family.commit(ApprovalResolved(step=1, tool_call_id=a, approval_id="tool", decision="approved"))
    family.commit(
        ApprovalResolved(step=1, tool_call_id=b, approval_id="lost", decision="approved", outcome="retry"),
        Status(status="resumed", reason="approval"),
    )
    assert check_trace(trace_of(family.stored), ended=False) == []


def test_forwarded_events_start_and_end_nothing() -> None:
    family = Family()
    call = family.call(0)
    family.begin()
    family.claim(1, *step_started(1))
    family.commit(usage(1), ToolCall(step=1, tool_call_id=call, tool_name="ask"), epoch=1)
    inner = {"step": 1, "tool_call_id": call, "agent": "inner", "agent_path": "agent/inner"}
    family.commit(
        Status(status="starting", **inner),
        Text(text="inner", **inner),
        Status(status="completed", **inner),
        ToolResult(step=1, tool_call_id=call, tool_name="ask", success=True),
        Step(step=1, status="completed"),
        Status(status="completed"),
        epoch=1,
    )
    assert check_trace(trace_of(family.stored)) == []


def test_the_monitor_keeps_families_apart() -> None:
    one, other = canonical_trace("a").events, recovery_trace("b").events
    mixed = [event for pair in zip(one, other, strict=False) for event in pair]
    rest = [*one[len(other) :], *other[len(one) :]]
    assert watch([*mixed, *rest]) == []


def broken(*events: Event) -> list[str]:
    """Return the monitor's messages about unsafe calls in a run of these events."""
    numbered = [
        msgspec.structs.replace(
            event, run_id="r", root_id="r", agent_path=event.agent_path or "a", revision=number
        )
        for number, event in enumerate(events, 1)
    ]
    return [each.message for each in watch(numbered, ended=False) if each.rule == "P20"]


def test_an_unsafe_call_in_doubt_starts_again_by_a_decision_alone() -> None:
    call = {"step": 1, "tool_call_id": "c1"}
    start = ToolStarted(attempt=1, **call)
    asked = ApprovalRequested(approval_id="a1", kind="unverifiable", tool_name="pay", **call)
    decided = ApprovalResolved(approval_id="a1", decision="approved", outcome="retry", **call)
    begun = [ToolCall(tool_name="pay", **call), start, asked]
    told = ["c1 starts again while the outcome of its last attempt is unknown"]
    assert broken(*begun, start) == told
    assert broken(*begun, decided, start) == []
    assert broken(*begun, decided, start, start) == told
    inner = ToolResult(tool_name="pay", success=True, **call)
    assert broken(*begun, msgspec.structs.replace(inner, agent_path="a/inner"), start) == told


def test_a_question_ends_its_attempt_and_no_other() -> None:
    call = {"step": 1, "tool_call_id": "c1"}
    start = ToolStarted(attempt=1, **call)
    asked = ApprovalRequested(approval_id="a1", kind="elicitation", tool_name="pay", **call)
    answered = ApprovalResolved(approval_id="a1", decision="approved", **call)
    begun = [ToolCall(tool_name="pay", **call), start, asked, answered, start]
    assert broken(*begun) == []
    assert broken(*begun, start) == ["c1 starts again while the outcome of its last attempt is unknown"]


def test_a_call_that_its_ruling_denies_may_not_run() -> None:
    events = list(trace_of(recovery_trace().stored).events)
    at = find(events, ToolCall)
    assert rules(events) == set()
    denied = PolicyRuling(action="deny", why="policy rule 1")
    events[at] = msgspec.structs.replace(events[at], policy=denied)
    assert rules(events) == {"R33"}
    allowed = msgspec.structs.replace(denied, action="allow")
    events[at] = msgspec.structs.replace(events[at], policy=allowed)
    assert rules(events) == set()


def test_a_tombstone_after_the_end_or_alone_breaks_no_rule() -> None:
    events = canonical()
    assert rules(renumbered(insert(events, len(events), tombstone()))) == set()
    alone = msgspec.structs.replace(insert(events, len(events), tombstone())[-1], revision=30)
    assert rules([alone]) == set()


def test_a_partial_result_is_the_last_that_its_call_reported() -> None:
    events = canonical()
    at = find(events, ToolResult)
    result = events[at]
    assert isinstance(result, ToolResult)
    report = ToolPartial(tool_name=result.tool_name, value=1, step=1, tool_call_id=result.tool_call_id)
    two = insert(insert(events, at, report), at, report)

    def ended(events: Events, number: int) -> set[str]:
        changed = change(events, find(events, ToolResult), metadata={**result.metadata, "partial": number})
        return rules(renumbered(changed))

    assert (ended(two, 2), ended(two, 1), ended(events, 1)) == (set(), {"R39"}, {"R39"})
