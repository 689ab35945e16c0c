"""The monitor: checks the ordering rules, and P20 on unsafe calls, event by event, live or stored.

The events are live or stored. Each rule is a function of the facts before an event and the event itself, and yields the
problems it finds. A rule never changes the facts: the event is folded into them afterwards, whether it broke a rule or
not, so that one defect is reported once instead of at every later event. Feed events as read and in log order,
including engine events; families may be interleaved. R12 needs two traces and is checked by the comparison. Forwarded
events are checked by R7 only, and their revisions by R11. `rule_texts.py` has a sentence for each rule and a link to
its text in `docs/maintainers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from ...eventlog.events import (
    OBSERVABLE,
    REPLY_APPROVALS,
    ApprovalRequested,
    ApprovalResolved,
    Budget,
    Buried,
    ChildFinished,
    ChildStarted,
    Claimed,
    Event,
    FileMade,
    MessageInjected,
    MessageQueued,
    ModelRequested,
    OperationSkipped,
    PlanMade,
    PlannerReplied,
    PlannerToolReturned,
    RalphIteration,
    RalphStop,
    Reasoning,
    ReplyState,
    SignalDropped,
    SignalReceived,
    Status,
    Step,
    Text,
    ToolAttemptFailed,
    ToolCall,
    ToolResult,
    ToolStarted,
    Usage,
    WaitEnded,
    is_by_provider,
    is_terminal,
)
from ...projections.call_texts import PARTIAL
from ...projections.fold.waits import channel
from ..canonical.canonical import label_of
from ..canonical.structure import CALL_FAMILIES, asks_for
from ..traces.trace import Trace
from .run_facts import (
    APPROVALS,
    CLOSED,
    FILES,
    TEXT,
    WORKFLOW,
    CallFacts,
    ChildFacts,
    RunFacts,
    is_message,
)

_OF_CALLS = (*CALL_FAMILIES, ChildStarted, ToolAttemptFailed, ToolStarted)
"""Events of calls that the run itself makes."""

RESULT_ORDER_SLACK_S = 1.0
"""Tolerance for results stored out of the order in which their calls ended (R5); the reported times have jitter."""


class Violation(msgspec.Struct, frozen=True):
    """A rule that an event breaks. `revisions`: that of the earlier event it contradicts (0: none), and its own."""

    rule: str
    message: str
    run: str
    revisions: tuple[int, int]

    def __str__(self) -> str:
        earlier, own = self.revisions
        at = f"revisions {earlier} and {own}" if earlier else f"revision {own}"
        return f"{self.rule} {self.run} {at}: {self.message}"


Finding = tuple[str, int]
"""A problem in words, and the revision of the earlier event that the new one contradicts (0 for none)."""


class Monitor:
    """Checks the events of any number of families.

    With `finished_max`, only that many finished families (those whose runs have all ended) are kept, the newest, so
    that memory stays bounded. Later events of a forgotten family (late outcomes) are not checked.
    """

    def __init__(
        self, finished_max: int | None = None, on_forget: Callable[[str], object] | None = None
    ) -> None:
        self._runs: dict[str, RunFacts] = {}
        self._children: dict[str, ChildFacts] = {}
        self._finished_max, self._on_forget = finished_max, on_forget
        self._families: dict[str, set[str]] = {}
        self._open: dict[str, int] = {}
        self._finished: dict[str, None] = {}
        self._buried: dict[str, int] = {}

    def feed(self, event: Event) -> list[Violation]:
        """Return the rules that the next event breaks. Drafts break none."""
        if event.revision is None:
            return []
        if event.root_id in self._buried or isinstance(event, Buried):
            return self._bury(event, event.revision)
        facts = self._runs.get(event.run_id)
        if facts is None and self._finished_max is not None and event.revision > 1:
            return []
        found = list(self._check_new_run(event)) if facts is None else []
        if facts is None:
            facts = self._runs[event.run_id] = RunFacts(event)
            self._families.setdefault(event.root_id, set()).add(event.run_id)
            self._open[event.root_id] = self._open.get(event.root_id, 0) + 1
            self._finished.pop(event.root_id, None)
        was_over = facts.terminal is not None
        found += [
            Violation(rule, message, event.run_id, (earlier, event.revision))
            for rule, check in _RULES
            for message, earlier in check(facts, event)
        ]
        found += self._check_family(facts, event)
        facts.fold(event)
        self._adopt(facts, event)
        if facts.terminal is not None and not was_over:
            self._end(facts.root)
        return found

    def _bury(self, event: Event, revision: int) -> list[Violation]:
        """Check R35: a tombstone ends a family whose runs are all over, and its root's log for ever."""
        root, open_runs = event.root_id, self._open.get(event.root_id, 0)
        if root in self._buried:
            told = f"`{event.type}` comes after the tombstone of the family"
            return [Violation("R35", told, event.run_id, (self._buried[root], revision))]
        self._buried[root] = revision
        if self._finished_max is not None and len(self._buried) > self._finished_max:
            del self._buried[next(iter(self._buried))]
        self.forget(root)
        problem = f"`buried` is in run {event.run_id}, which is not a root" if event.run_id != root else ""
        if open_runs:
            problem = f"`buried` comes while {open_runs} runs of the family are open"
        return [Violation("R35", problem, event.run_id, (0, revision))] if problem else []

    def forget(self, root: str) -> None:
        """Forget the family of this root, and call `on_forget` with it."""
        for run in self._families.pop(root, ()):
            for child in self._runs.pop(run).children:
                self._children.pop(child, None)
        self._open.pop(root, None)
        self._finished.pop(root, None)
        if self._on_forget is not None:
            self._on_forget(root)

    def _end(self, root: str) -> None:
        """Count one more ended run of the family; forget the oldest finished family if there are too many."""
        self._open[root] -= 1
        if self._open[root]:
            return
        self._finished[root] = None
        if self._finished_max is not None and len(self._finished) > self._finished_max:
            self.forget(next(iter(self._finished)))

    def finish(self) -> list[Violation]:
        """Return the violations there are if no event follows: runs without a terminal status."""
        return [
            Violation("R6", "the run has no terminal status", run, (facts.revision, facts.revision))
            for run, facts in self._runs.items()
            if facts.terminal is None
        ]

    def _adopt(self, facts: RunFacts, event: Event) -> None:
        if isinstance(event, ChildStarted) and not facts.forwarded(event):
            self._children.setdefault(event.child_run, facts.children[event.child_run])

    def _check_new_run(self, event: Event) -> Iterator[Violation]:
        if event.run_id != event.root_id and event.run_id not in self._children:
            message = "the run begins before a child_started announces it"
            yield Violation("R7", message, event.run_id, (0, event.revision or 0))

    def _check_family(self, facts: RunFacts, event: Event) -> Iterator[Violation]:
        """Check R7 between the runs of a family."""
        if not isinstance(event, OBSERVABLE) or facts.forwarded(event):
            return
        for message, earlier in self._r7_runs(facts, event):
            yield Violation("R7", message, facts.run, (earlier, event.revision or 0))

    def _r7_runs(self, facts: RunFacts, event: Event) -> Iterator[Finding]:
        own = self._children.get(facts.run)
        if own is not None and own.finished is not None:
            yield f"{label_of(event)} of a child that its parent has finished at revision {own.finished}", 0
        match event:
            case ChildStarted():
                if event.child_run in self._runs or event.child_run in self._children:
                    yield f"child_started of {event.child_run}, which exists already", 0
            case ChildFinished():
                yield from self._r7_finished(facts, event)
            case Status() if is_terminal(event):
                yield from self._r7_outlived(facts, event)
            case _:
                pass

    def _r7_finished(self, facts: RunFacts, event: ChildFinished) -> Iterator[Finding]:
        child = facts.children.get(event.child_run)
        if child is None:
            yield f"child_finished of {event.child_run}, which this run has not started", 0
            return
        if child.finished is not None:
            yield f"child_finished of {event.child_run} for the second time", child.finished
        status = self._terminal_of(event.child_run)
        if status is None:
            yield f"child_finished of {event.child_run}, which is not over", child.revision
        elif status != event.status:
            yield f"child_finished({event.status}) of {event.child_run}, which ended {status}", child.revision

    def _r7_outlived(self, facts: RunFacts, event: Status) -> Iterator[Finding]:
        for run, child in facts.children.items():
            if self._terminal_of(run) is None:
                yield f"the run ends while its child {run} goes on", child.revision
            elif child.finished is None and event.status == "completed":
                yield f"the run completes without child_finished of {run}", child.revision

    def _terminal_of(self, run: str) -> str | None:
        facts = self._runs.get(run)
        return facts.terminal.status if facts is not None and facts.terminal is not None else None


def check_trace(trace: Trace, *, ended: bool = True) -> list[Violation]:
    """Return all violations in a trace, in its order. With `ended`, every run must have a terminal status."""
    monitor = Monitor()
    found = [violation for event in trace.events for violation in monitor.feed(event)]
    return found + monitor.finish() if ended else found


# --- the rules: each a function of the facts before the event ---------------------------------------------------------


def _r1(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """`status(starting)` first and once; budgets between steps."""
    starting = isinstance(event, Status) and event.status == "starting"
    tombstone = _is_cancelled(event) and facts.cancelled is not None and facts.run != facts.root
    if facts.last is None and not starting and not tombstone:
        yield f"the first observable event is {label_of(event)}, not status(starting)", 0
    if facts.last is not None and starting:
        yield "a second status(starting)", facts.last.revision or 0
    if isinstance(event, Budget) and facts.step is not None:
        yield f"{label_of(event)} is within step {facts.step}", facts.step_revision


def _r1_budget(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """After an exceeded limit: for the context window a stop message and the end; otherwise an approval and a pause."""
    limit = facts.last if isinstance(facts.last, Budget) and facts.last.kind == "limit" else None
    revision = facts.revision
    match event:
        case Text(step=None):
            if limit is None or limit.scope != "context":
                yield "a text outside of every step without an exceeded context limit before it", revision
        case Status(status="completed", reason="budget_limit"):
            if not isinstance(facts.last, Text) or facts.last.step is not None:
                yield "status(completed, budget_limit) without the message that says so", revision
        case ApprovalRequested(kind="budget"):
            if limit is None or limit.scope == "context":
                yield "an approval of kind budget without an exceeded limit", revision
        case Status(status="paused", reason="budget"):
            asked = facts.last
            is_asked = isinstance(asked, ApprovalRequested) and asked.kind == "budget"
            if not is_asked and not facts.spent_budget:
                yield "status(paused, budget) without an approval of kind budget before it", revision
        case _ if limit is not None:
            yield f"{label_of(event)} comes after an exceeded limit", revision
        case _:
            pass


def _r1_planner(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """A plan is made once, before the first step."""
    if not isinstance(event, PlannerReplied | PlannerToolReturned | PlanMade):
        return
    if facts.planned is not None:
        yield f"{event.type} comes after the plan", facts.planned
    elif facts.step_revision:
        yield f"{event.type} comes after the first step", facts.step_revision


def _r2(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """Steps: 1, 2, ..., each started and completed, one at a time; their events within them."""
    match event:
        case Step(status="started"):
            if facts.step is not None:
                yield f"step {event.step} starts while step {facts.step} is open", facts.step_revision
            elif event.step != facts.steps + 1:
                yield f"step {event.step} starts after step {facts.steps}", facts.step_revision
        case Step():
            if event.step != facts.step:
                yield f"step {event.step} completes, but is not open", facts.step_revision
        case Status(status="completed") if facts.step is not None:
            yield f"the run completes and leaves step {facts.step} open", facts.step_revision
        case _:
            if event.step is not None and event.step != facts.step:
                yield f"{label_of(event)} of step {event.step} is outside of it", facts.step_revision


def _r3(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """In a step: reasoning and text, then one usage, then the calls."""
    if facts.step is None or event.step != facts.step:
        return
    match event:
        case Text() | Reasoning() | FileMade() | ReplyState() | Usage() if facts.usage is not None:
            yield f"{label_of(event)} comes after the usage of step {facts.step}", facts.usage
        case ToolCall() | Step(status="completed") if facts.usage is None:
            yield f"{label_of(event)} comes before the usage of step {facts.step}", facts.step_revision
        case _:
            pass


def _r4(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """Each call: its approval, what it emits, its result, of which a completed step has exactly one."""
    match event:
        case ToolCall() if event.tool_call_id in facts.step_calls:
            yield (
                f"a second tool call with the id {event.tool_call_id}",
                facts.step_calls[event.tool_call_id].revision,
            )
        case Step(status="completed"):
            for call_id, call in facts.step_calls.items():
                if call.result is None:
                    yield f"step {event.step} completes without a result of call {call_id}", call.revision
        case ApprovalResolved() if event.approval_id not in facts.approvals:
            yield f"approval_resolved of {event.approval_id}, which is not pending", 0
        case _:
            if isinstance(event, CALL_FAMILIES) and event.tool_call_id is not None:
                yield from _r4_call(facts, event, facts.calls.get(event.tool_call_id))


def _r4_call(facts: RunFacts, event: Event, call: CallFacts | None) -> Iterator[Finding]:
    what = f"{label_of(event)} of call {event.tool_call_id}"
    if call is None:
        yield f"{what}, which the run has not made", 0
    elif call.result is not None:
        yield f"{what} comes after its result", call.result
    elif isinstance(event, ApprovalRequested) and event.kind in REPLY_APPROVALS and call.begun is not None:
        yield f"{what}, which has begun already", call.begun
    elif not isinstance(event, ApprovalResolved):
        for approval_id, approval in facts.approvals.items():
            if approval.call == event.tool_call_id:
                yield f"{what} while its approval {approval_id} is pending", approval.revision


def _r5(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """Results are stored as each call ends: a slow call does not delay the result of a fast one."""
    if not isinstance(event, ToolResult) or facts.result_at is None:
        return
    completed_at = event.metadata.get("completed_at")
    latest, revision = facts.result_at
    if isinstance(completed_at, int | float) and completed_at < latest - RESULT_ORDER_SLACK_S:
        held_s = latest - completed_at
        yield f"the result of call {event.tool_call_id} was held back for {held_s:.1f} s", revision


def _r6(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """One terminal status, and nothing after it."""
    if facts.terminal is None or facts.ended is None:
        return
    if is_terminal(event):
        yield f"a second terminal status, {label_of(event)}", facts.ended
    elif facts.terminal.status != "cancelled":
        yield f"{label_of(event)} comes after {label_of(facts.terminal)}", facts.ended


def _r7_call(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """Events of inner agents and children are between the call and its result."""
    call = facts.calls.get(event.tool_call_id or "")
    if facts.forwarded(event):
        what = f"{label_of(event)} forwarded from {event.agent_path}"
        if call is None:
            yield f"{what} names no call of the run", 0
        elif call.result is not None or facts.ended is not None:
            yield f"{what} comes after the end of its call", call.result or facts.ended or 0
    elif isinstance(event, ChildStarted) and event.tool_call_id is not None:
        if call is None:
            yield f"{label_of(event)} names no call of the run", 0
        elif call.result is not None:
            yield f"{label_of(event)} comes after the result of its call", call.result
    elif isinstance(event, ToolResult):
        for run, child in facts.children.items():
            if child.call == event.tool_call_id and child.finished is None:
                yield (
                    f"the result of call {event.tool_call_id} comes before child_finished of {run}",
                    child.revision,
                )


def _r8(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """After a cancel, nothing but its one `status(cancelled)`."""
    if facts.cancelled is not None and not (facts.terminal is None and _is_cancelled(event)):
        yield f"{label_of(event)} comes after the cancel", facts.cancelled


def _r9(facts: RunFacts, event: Event) -> Iterator[Finding]:  # noqa: C901 - one case each
    """Iterations, one at a time; then the stop."""
    earlier = facts.iteration_revision
    match event:
        case RalphIteration() if facts.stopped is not None:
            yield f"iteration {event.iteration} comes after ralph_stop", facts.stopped
        case RalphIteration(status="started"):
            if facts.iteration is not None:
                yield f"iteration {event.iteration} starts while iteration {facts.iteration} is open", earlier
            elif facts.iterations is not None and event.iteration != facts.iterations + 1:
                yield f"iteration {event.iteration} starts after iteration {facts.iterations}", earlier
        case RalphIteration():
            if event.iteration != facts.iteration:
                yield f"iteration {event.iteration} ends, but is not open", earlier
        case RalphStop():
            if facts.stopped is not None or facts.iteration is not None:
                yield "ralph_stop is within an iteration or after another", facts.stopped or earlier
        case ChildStarted() | ChildFinished() if facts.kind == "ralph" and facts.iteration is None:
            yield f"{label_of(event)} is outside of every iteration", earlier
        case Status(status="completed") if earlier and facts.stopped is None:
            yield "the loop completes without ralph_stop", earlier
        case _:
            pass


def _r10(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """The order of a model reply's commit; pauses for approvals, and their end."""
    if facts.owes is not None and isinstance(event, OBSERVABLE) and not _pays(facts.owes[0], event):
        what = "every approval of a reply" if facts.owes[0] == "paused" else "the last resolution"
        yield f"{label_of(event)} is where status({facts.owes[0]}) must follow {what}", facts.owes[1]
    yield from _r10_reply(facts, event)
    match event:
        case Status(status="paused", reason="approval"):
            asked = isinstance(facts.last, ApprovalRequested)
            if not asked or facts.pause("approval") is not None:
                yield (
                    "status(paused, approval) without an approval requested before it",
                    facts.pause("approval") or 0,
                )
        case Status(status="resumed"):
            yield from _r10_resumed(facts, event)
        case Step() | ModelRequested() if facts.pauses:
            yield f"{label_of(event)} is between paused and resumed", facts.pauses[-1][1]
        case _:
            pass


def _pays(owed: str, event: Event) -> bool:
    if owed == "resumed":
        return isinstance(event, Status) and event.status == "resumed"
    return isinstance(event, ApprovalRequested) or (
        isinstance(event, Status) and event.status in {"paused", "cancelled"}
    )


def _r10_reply(facts: RunFacts, event: Event) -> Iterator[Finding]:
    if facts.step is None or event.step != facts.step:
        return
    match event:
        case Reasoning() if facts.stage in {TEXT, FILES}:
            before = "text" if facts.stage == TEXT else "files"
            yield f"reasoning comes after the {before} of its reply", facts.stage_revision
        case Text() if facts.stage == FILES:
            yield "text comes after the files of its reply", facts.stage_revision
        case ToolCall() if facts.stage >= APPROVALS:
            yield f"{label_of(event)} comes after the end of its reply", facts.stage_revision
        case ApprovalRequested() if event.kind in REPLY_APPROVALS and event.tool_call_id is not None:
            call = facts.calls.get(event.tool_call_id)
            if facts.stage == CLOSED:
                yield f"{label_of(event)} comes after the end of its reply", facts.stage_revision
            elif call is not None and call.index <= facts.approval_index:
                yield f"{label_of(event)} is out of the order of the calls", facts.stage_revision
        case _:
            pass


def _r10_resumed(facts: RunFacts, event: Status) -> Iterator[Finding]:
    if not facts.pauses and not facts.lapsed_pauses:
        yield "status(resumed) of a run that is not paused", 0
    if event.reason == "budget":
        waiting = {"budget"}
    elif (
        event.reason in {"", "approval", "unverifiable", "wait"}
        and facts.pause("approval", "unverifiable", "wait") is not None
    ):
        kinds = {approval.kind for approval in facts.approvals.values()}
        own = {"unverifiable"}
        waiting = {"": kinds, "approval": kinds - own, "unverifiable": own, "wait": kinds}[event.reason]
    else:
        return
    for approval_id, approval in facts.approvals.items():
        if approval.kind in waiting:
            yield f"status(resumed) while approval {approval_id} is pending", approval.revision


def _r11(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """Dense revisions, and an epoch for each claim."""
    if event.revision != facts.revision + 1:
        yield f"revision {event.revision} follows revision {facts.revision}", facts.revision
    if isinstance(event, Claimed) and event.epoch <= facts.epoch:
        yield f"{event.worker} claims epoch {event.epoch}, which is taken", facts.claimed


def _p20(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """An unsafe call with an unknown outcome is started again only after a decision."""
    if isinstance(event, ToolStarted):
        call = facts.calls.get(event.tool_call_id or "")
        if call is not None and call.started is not None:
            yield (
                f"{event.tool_call_id} starts again while the outcome of its last attempt is unknown",
                call.started,
            )


def _r26(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """Waits of a call: each starts and ends before the next, and before the result; a signal ends one at most."""
    where = event.tool_call_id or str(getattr(event, "place", ""))
    wait, revision = facts.waits.get(where, (None, 0))
    match event:
        case WaitEnded():
            if wait is None or wait.wait_id != event.wait_id:
                yield (
                    f"wait_ended of {event.wait_id} of call {where}, which is not open",
                    revision,
                )
            elif event.outcome == "received" and not facts.unread[channel(wait)]:
                yield f"the wait {event.wait_id} receives a signal {wait.name!r} that was not sent", revision
        case SignalReceived() if facts.ended is not None:
            yield "a signal is stored for a run that is over", facts.ended
        case SignalDropped() if not facts.unread[event.name, None]:
            yield f"a signal {event.name!r} is dropped that was not sent", 0
        case Status(status="resumed", reason="wait") if facts.waits:
            yield "status(resumed) while a call waits", next(iter(facts.waits.values()))[1]
        case _:
            if wait is not None and isinstance(event, (*CALL_FAMILIES, ToolStarted)):
                yield (
                    f"{label_of(event)} of call {event.tool_call_id} within its wait {wait.wait_id}",
                    revision,
                )


def _r39(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """A partial result that replaces a whole one is the last that its call reported."""
    call = facts.calls.get(event.tool_call_id or "")
    if call is None or not isinstance(event, ToolResult) or PARTIAL not in event.metadata:
        return
    if not call.partials or event.metadata[PARTIAL] != call.partials:
        number = event.metadata[PARTIAL]
        yield (
            f"the result of call {event.tool_call_id} is its partial result {number}, of {call.partials}",
            call.revision,
        )


def _r33(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """A call that its ruling denies never runs, and no approval is requested for it."""
    call = facts.calls.get(event.tool_call_id or "")
    if call is None or not call.denied:
        return
    match event:
        case ToolStarted() | ToolResult(success=True):
            yield f"{label_of(event)} of call {event.tool_call_id}, which the policy denies", call.revision
        case ApprovalRequested(kind=kind) if kind in REPLY_APPROVALS:
            yield f"{label_of(event)} of call {event.tool_call_id}, which the policy denies", call.revision
        case _:
            pass


def _r27(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """Native tools: each call directly before its result, ahead of the run's own calls, and nothing else about it."""
    last = facts.last
    running = last if isinstance(last, ToolCall) and is_by_provider(last) else None
    call = facts.calls.get(event.tool_call_id or "")
    is_result = isinstance(event, ToolResult) and is_by_provider(event)
    if running is not None:
        if not is_result or event.tool_call_id != running.tool_call_id:
            what = f"the provider's call {running.tool_call_id} and its result"
            yield f"{label_of(event)} is between {what}", running.revision or 0
    elif is_result:
        yield f"the result of the provider's call {event.tool_call_id} does not follow it directly", 0
    elif isinstance(event, ToolCall) and is_by_provider(event):
        own = next((each.revision for each in facts.step_calls.values() if not each.executed_by), None)
        if own is not None:
            yield f"the provider's call {event.tool_call_id} comes after a call of the run", own
    elif call is not None and call.executed_by and isinstance(event, _OF_CALLS):
        yield f"{label_of(event)} is about call {event.tool_call_id}, which the provider ran", call.revision


def _r28(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """In a workflow, a race is decided before its winner goes on, and a losing branch starts no more operations."""
    place = asks_for(event) if facts.kind == WORKFLOW else None
    if place is None:
        return
    branch, own = place.rpartition("/")[0], facts.operations
    for race, revision in own.branches.get(branch, {}).items():
        if race.rpartition("/")[2].startswith("first#") and race not in own.chosen:
            yield f"{place} is asked for before the race {race} is decided", revision
    parts = branch.split("/") if branch else []
    for count, part in enumerate(parts):
        at, _, index = part.rpartition(".")
        chosen = own.chosen.get("/".join([*parts[:count], at]))
        if chosen is not None and str(chosen[0]) != index:
            yield f"{place} is asked for by a branch that lost its race", chosen[1]
    if place in own.open:
        yield f"{place} is asked for twice", own.open[place]


def _r29(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """A workflow continues after a gather or a race, or ends, only when no operation in its branches is open."""
    if facts.kind != WORKFLOW:
        return
    own = facts.operations
    if isinstance(event, Status) and event.status == "completed":
        for place, revision in own.open.items():
            yield f"the workflow completes while {place} is open", revision
        return
    asked = asks_for(event)
    branch = asked.rpartition("/")[0] if asked is not None else ""
    if asked is None or branch not in own.branches:
        return
    found = own.open_below(branch)
    if found is not None:
        yield f"{asked} is asked for while {found[0]}, in a branch before it, is open", found[1]


def _r30(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """A skipped step of a table starts no operation, and is skipped only once."""
    skips = isinstance(event, OperationSkipped)
    place = event.place if isinstance(event, OperationSkipped) else asks_for(event)
    if facts.kind != WORKFLOW or place is None:
        return
    step = place.rpartition("/")[0]
    revision, skipped = facts.operations.steps.get(step, (0, False))
    if skipped:
        yield f"step {step} is {'skipped twice' if skips else 'asked for after it was skipped'}", revision
    elif skips and revision:
        yield f"step {step} is skipped after it was asked for", revision


def _r31(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """A call whose step needs an approval starts only after the approval is given."""
    call = event.tool_call_id or ""
    starts = isinstance(event, ToolStarted) or (isinstance(event, ToolResult) and event.success)
    if starts and call in facts.operations.unapproved:
        yield f"{label_of(event)} of call {call} before it was approved", facts.operations.unapproved[call]


def _r13(facts: RunFacts, event: Event) -> Iterator[Finding]:
    """Messages are injected in queue order, directly before the step that carries them, and none is lost."""
    match event:
        case MessageQueued() if facts.ended is not None:
            yield "a message is queued for a run that is over", facts.ended
        case MessageInjected() if facts.step is not None:
            yield f"message_injected is within step {facts.step}", facts.step_revision
        case MessageInjected() if not facts.queue:
            yield "message_injected without a queued message", 0
        case MessageInjected() if not is_message(event, facts.queue[0][0]):
            yield "message_injected is not the message that was queued first", facts.queue[0][1]
        case Status(status="completed") if event.reason != "budget_limit":
            if facts.queue and facts.steps < facts.max_steps:
                yield "the run completes with a queued message", facts.queue[0][1]
            if facts.injected is not None:
                yield "the run completes without a step for an injected message", facts.injected
        case _:
            pass


def _is_cancelled(event: Event) -> bool:
    return isinstance(event, Status) and event.status == "cancelled"


Check = Callable[[RunFacts, Event], Iterator[Finding]]


def _own(check: Check) -> Check:
    """Apply the rule only to observable events that the run itself caused."""

    def checked(facts: RunFacts, event: Event) -> Iterator[Finding]:
        own = isinstance(event, OBSERVABLE) and not facts.forwarded(event)
        return check(facts, event) if own else iter(())

    return checked


def _not_forwarded(check: Check) -> Check:
    """Apply the rule to all events except forwarded ones."""

    def checked(facts: RunFacts, event: Event) -> Iterator[Finding]:
        return iter(()) if facts.forwarded(event) else check(facts, event)

    return checked


_RULES: tuple[tuple[str, Check], ...] = (
    ("R1", _own(_r1)),
    ("R1", _own(_r1_budget)),
    ("R1", _not_forwarded(_r1_planner)),
    ("R2", _own(_r2)),
    ("R3", _own(_r3)),
    ("R4", _own(_r4)),
    ("R5", _own(_r5)),
    ("R6", _own(_r6)),
    ("R7", _r7_call),
    ("R8", _own(_r8)),
    ("R9", _own(_r9)),
    ("R10", _not_forwarded(_r10)),
    ("R11", _r11),
    ("P20", _p20),
    ("R13", _not_forwarded(_r13)),
    ("R26", _not_forwarded(_r26)),
    ("R33", _not_forwarded(_r33)),
    ("R39", _not_forwarded(_r39)),
    ("R27", _not_forwarded(_r27)),
    ("R28", _own(_r28)),
    ("R29", _own(_r29)),
    ("R30", _not_forwarded(_r30)),
    ("R31", _not_forwarded(_r31)),
)
