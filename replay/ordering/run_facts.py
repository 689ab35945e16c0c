"""The facts that the monitor keeps of a run: a tolerant fold over events as read, so that a defect is reported once.

It folds what happened, right or wrong. The rules in `monitor.py` look at the facts before an event is folded in. Each
fact has the revision it comes from, so that a violation can name the earlier event.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ...eventlog.events import (
    OBSERVABLE,
    REPLY_APPROVALS,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalRevoked,
    CallRules,
    CancelRequested,
    ChildFinished,
    ChildStarted,
    Chosen,
    Claimed,
    Event,
    FileMade,
    MessageInjected,
    MessageQueued,
    ModelFailed,
    ModelRequested,
    OperationSkipped,
    PlanMade,
    RalphIteration,
    RalphStop,
    Reasoning,
    SignalDropped,
    SignalReceived,
    Status,
    Step,
    Submitted,
    Text,
    ToolAttemptFailed,
    ToolCall,
    ToolPartial,
    ToolResult,
    ToolStarted,
    Usage,
    WaitEnded,
    WaitStarted,
    is_by_provider,
    is_terminal,
)
from ...projections.fold.waits import channel
from ...runtime.core.rules import Rules
from ..canonical.structure import CALL_FAMILIES, asks_for

WORKFLOW = "workflow"

# The stages of a model reply's commit, in order (R10). The first event after the reply closes it.
REASONING, TEXT, FILES, USAGE, CALLS, APPROVALS, CLOSED = range(7)


def is_message(injected: MessageInjected, queued: MessageQueued) -> bool:
    """Return whether a message that reaches the model is this queued one."""
    return (injected.content, injected.parts) == (queued.content, queued.parts)


class CallFacts:
    """A tool call: its index within its step, and the revisions of its events."""

    def __init__(self, index: int, step: int | None, revision: int) -> None:
        self.index, self.step, self.revision = index, step, revision
        self.executed_by = ""
        self.begun: int | None = None
        self.started: int | None = None
        """The revision of the start of an unsafe attempt whose outcome is still unknown."""
        self.result: int | None = None
        self.partials = 0
        """The number of partial results reported."""
        self.denied = False
        """True if the policy's ruling denies the call."""


class Operations:
    """The operations of a workflow: the open ones, and its branches, by the place of their gather or race."""

    def __init__(self) -> None:
        self.open: dict[str, int] = {}
        self.branches: dict[str, dict[str, int]] = {}
        """The gathers and races in each branch, with the revision of their first events."""
        self.chosen: dict[str, tuple[int, int]] = {}
        self.children: dict[str, str] = {}
        self.steps: dict[str, tuple[int, bool]] = {}
        """The steps that have started an operation or were skipped: the revision, and whether the step was skipped."""
        self.unapproved: dict[str, int] = {}
        """The calls whose step needs an approval that is not given yet."""

    def ask(self, place: str, revision: int) -> None:
        """Record an operation, and the gathers and races whose branches contain it."""
        self.open[place] = revision
        parts = place.split("/")[:-1]
        for count, part in enumerate(parts):
            branch, at = "/".join(parts[:count]), part.rpartition(".")[0]
            if not at:  # a step, which nothing waits for
                self.steps.setdefault("/".join(parts[: count + 1]), (revision, False))
                continue
            self.branches.setdefault(branch, {}).setdefault("/".join([*parts[:count], at]), revision)

    def open_below(self, branch: str) -> tuple[str, int] | None:
        """Return an open operation of the branches of this branch, with its revision."""
        prefix = f"{branch}/" if branch else ""
        for place, revision in self.open.items():
            if place.startswith(prefix) and "." in place[len(prefix) :].rpartition("/")[0]:
                return place, revision
        return None


class ApprovalFacts(NamedTuple):
    """A pending approval. `place` is that of a question of a workflow."""

    kind: str
    call: str | None
    revision: int
    place: str = ""


class ChildFacts:
    """A child run, as seen in its parent's events."""

    def __init__(self, parent: str, call: str | None, revision: int) -> None:
        self.parent, self.call, self.revision = parent, call, revision
        self.finished: int | None = None


class RunFacts:
    """The facts of one run. A revision of None means that it has not happened."""

    def __init__(self, event: Event) -> None:
        self.run, self.root, self.path = event.run_id, event.root_id, event.agent_path
        self.kind = ""
        self.operations = Operations()
        self.revision = 0
        self.epoch, self.claimed = 0, 0
        self.last: Event | None = None
        self.cancelled: int | None = None
        self.terminal: Status | None = None
        self.ended: int | None = None
        self.step: int | None = None
        self.step_revision = 0
        self.steps = 0
        self.stage = REASONING
        self.stage_revision = 0
        self.usage: int | None = None
        self.calls: dict[str, CallFacts] = {}
        self.step_calls: dict[str, CallFacts] = {}
        self.approval_index = -1
        self.result_at: tuple[float, int] | None = None
        self.approvals: dict[str, ApprovalFacts] = {}
        self.waits: dict[str, tuple[WaitStarted, int]] = {}
        """The open waits, by their calls, each with its revision."""
        self.unread: Counter[tuple[str, str | None]] = Counter()
        """The number of signals of each channel that no wait has taken."""
        self.pauses: list[tuple[str, int]] = []
        self.lapsed_pauses = 0
        self.spent_budget = False
        """True if a budget of the namespace is used up and the run must wait for its next period."""
        self.owes: tuple[str, int] | None = None
        self.queue: list[tuple[MessageQueued, int]] = []
        self.max_steps = Rules().max_steps
        self.injected: int | None = None
        self.iteration: int | None = None
        self.iteration_revision = 0
        self.iterations: int | None = None
        self.stopped: int | None = None
        self.planned: int | None = None
        self.children: dict[str, ChildFacts] = {}

    def forwarded(self, event: Event) -> bool:
        """Return whether the event comes from an inner agent and was only forwarded by this run."""
        return len(event.agent_path) > len(self.path)

    def pause(self, *reasons: str) -> int | None:
        """Return the revision of an open pause with one of these reasons (with any, if none is given)."""
        return next((revision for why, revision in self.pauses if not reasons or why in reasons), None)

    def fold(self, event: Event) -> None:  # noqa: C901, PLR0912 - one case each
        """Fold the event in."""
        revision = self.revision = event.revision or self.revision
        if not self.forwarded(event):
            self._fold_start(event, revision)
        if isinstance(event, OBSERVABLE):
            if not self.forwarded(event):
                self._fold_own(event, revision)
            else:
                self._begin_call(event, revision)
            return
        match event:
            case Submitted():
                self.kind = event.kind
                limit = event.config.get("max_steps")
                self.max_steps = limit if isinstance(limit, int) else Rules().max_steps
            case Claimed():
                self.epoch, self.claimed = event.epoch, revision
                self.result_at = None
            case ModelRequested() | ModelFailed():
                waits = isinstance(event, ModelFailed) and event.budget and event.retry_at is not None
                self.spent_budget = bool(waits)
            case CancelRequested():
                self.cancelled = self.cancelled or revision
            case MessageQueued():
                self.queue.append((event, revision))
            case SignalReceived():
                self.unread[event.name, event.tool_call_id] += 1
            case SignalDropped():
                self.unread[event.name, None] -= 1
            case PlanMade():
                self.planned = revision
            case Chosen():
                self.operations.chosen[event.place] = event.index, revision
            case OperationSkipped():
                self.operations.steps.setdefault(event.place.rpartition("/")[0], (revision, True))
            case ApprovalRevoked() if event.approval_id in self.approvals:
                approval = self.approvals[event.approval_id]
                if self.kind == WORKFLOW:  # its branch lost a race, or the run ends
                    self.operations.open.pop(approval.place, None)
                    del self.approvals[event.approval_id]
            case _:
                pass

    def _fold_own(self, event: Event, revision: int) -> None:  # noqa: C901, PLR0912 - one case each
        self.last, self.owes = event, None
        if self.kind == WORKFLOW:
            self._fold_operation(event, revision)
        if (
            isinstance(event, (*CALL_FAMILIES, ChildStarted, ChildFinished))
            and event.tool_call_id is not None
            and not is_by_provider(event)
        ):
            self._begin_call(event, revision)
        match event:
            case Status():
                self._fold_status(event, revision)
            case Step():
                self._fold_step(event, revision)
            case Reasoning() | Text() | FileMade() | Usage() | ToolCall():
                self._fold_reply(event, revision)
            case ApprovalRequested() | ApprovalResolved():
                self._fold_approval(event, revision)
            case WaitStarted():
                self.waits[event.tool_call_id or event.place] = event, revision
            case WaitEnded():
                self._fold_wait_end(event, revision)
            case ToolPartial():
                if (call := self.calls.get(event.tool_call_id or "")) is not None:
                    call.partials += 1
            case ToolResult():
                self._fold_result(event, revision)
            case MessageInjected():
                self._fold_injected(event, revision)
            case ChildStarted():
                self.children[event.child_run] = ChildFacts(self.run, event.tool_call_id, revision)
            case ChildFinished():
                if event.child_run in self.children:
                    self.children[event.child_run].finished = revision
            case RalphIteration() | RalphStop():
                self._fold_ralph(event, revision)
            case _:
                pass

    def _fold_operation(self, event: Event, revision: int) -> None:
        """Record the operations that a workflow starts, and those that have ended."""
        own = self.operations
        place = asks_for(event)
        if place is not None:
            own.ask(place, revision)
        match event:
            case ToolCall(rules=CallRules(approval=kind)) if kind:
                own.unapproved[event.tool_call_id or ""] = revision
            case ToolResult():
                own.open.pop(event.tool_call_id or "", None)
            case WaitEnded():
                own.open.pop(event.place, None)
            case ApprovalResolved() if event.approval_id in self.approvals:
                own.open.pop(self.approvals[event.approval_id].place, None)
                if event.decision == "approved":
                    own.unapproved.pop(event.tool_call_id or "", None)
            case ChildStarted():
                own.children[event.child_run] = event.place
            case ChildFinished():
                own.open.pop(own.children.get(event.child_run, ""), None)
            case _:
                pass

    def _begin_call(self, event: Event, revision: int) -> None:
        """Close the reply that made the call, unless the event is an approval that belongs to the reply."""
        if isinstance(event, ApprovalRequested) and event.kind in REPLY_APPROVALS:
            return
        if self.stage < CLOSED:
            self.stage, self.stage_revision = CLOSED, revision
        call = self.calls.get(event.tool_call_id or "")
        if call is not None and call.begun is None and not isinstance(event, ApprovalResolved):
            call.begun = revision

    def _fold_start(self, event: Event, revision: int) -> None:
        """Note the start of an unsafe attempt, and clear it once another attempt is permitted."""
        call = self.calls.get(event.tool_call_id or "")
        if call is None:
            return
        match event:
            case ToolStarted():
                call.started = revision
            case ToolAttemptFailed() | ToolResult() | WaitStarted() | ApprovalRequested(kind="elicitation"):
                call.started = None
            case ApprovalResolved(outcome="retry"):
                call.started = None
            case _:
                pass

    def _fold_status(self, event: Status, revision: int) -> None:
        if event.status == "paused":
            self.pauses.append((event.reason, revision))
            if event.reason == "approval" and self.stage < CLOSED:
                self.stage, self.stage_revision = CLOSED, revision
        elif event.status == "resumed":
            self._resume(event.reason)
        elif is_terminal(event):
            if event.status == "cancelled":
                self.cancelled = self.cancelled or revision
            if self.terminal is None:
                self.terminal, self.ended = event, revision

    def _resume(self, reason: str) -> None:
        if not self.pauses:
            self.lapsed_pauses = max(0, self.lapsed_pauses - 1)
            return
        named = [index for index, (why, _) in enumerate(self.pauses) if why == reason]
        self.pauses.pop(named[-1] if named else -1)
        if not self.approvals:  # one resumption ends all pauses that waited for approvals
            waiting = [pause for pause in self.pauses if pause[0] in {"approval", "unverifiable", "wait"}]
            self.lapsed_pauses += len(waiting)
            self.pauses = [pause for pause in self.pauses if pause not in waiting]

    def _fold_step(self, event: Step, revision: int) -> None:
        if event.status == "completed":
            self.step, self.steps = None, event.step or self.steps
            return
        self.step, self.step_revision, self.injected = event.step, revision, None
        self.stage, self.stage_revision, self.usage = REASONING, revision, None
        self.step_calls, self.approval_index, self.result_at = {}, -1, None

    def _fold_reply(self, event: Event, revision: int) -> None:
        stage = {Reasoning: REASONING, Text: TEXT, FileMade: FILES, Usage: USAGE, ToolCall: CALLS}[
            type(event)
        ]
        if stage > self.stage:
            self.stage, self.stage_revision = stage, revision
        if isinstance(event, Usage):
            self.usage = revision
        if isinstance(event, ToolCall) and (event.tool_call_id or "") not in self.step_calls:
            call = CallFacts(len(self.step_calls), event.step, revision)
            call.denied = event.policy is not None and event.policy.action == "deny"
            call.executed_by = event.executed_by
            self.calls[event.tool_call_id or ""] = self.step_calls[event.tool_call_id or ""] = call

    def _fold_approval(self, event: ApprovalRequested | ApprovalResolved, revision: int) -> None:
        if isinstance(event, ApprovalResolved):
            self.approvals.pop(event.approval_id, None)
            self._owe_resumption(revision)
            return
        self.approvals[event.approval_id] = ApprovalFacts(
            event.kind, event.tool_call_id, revision, event.place
        )
        if event.kind in REPLY_APPROVALS and event.tool_call_id is not None and self.kind != WORKFLOW:
            self.owes = "paused", revision
            self.stage, self.stage_revision = max(self.stage, APPROVALS), revision
            call = self.calls.get(event.tool_call_id)
            self.approval_index = max(self.approval_index, call.index if call is not None else -1)

    def _fold_wait_end(self, event: WaitEnded, revision: int) -> None:
        wait, _ = self.waits.pop(event.tool_call_id or event.place, (None, 0))
        if wait is not None and event.outcome == "received":
            self.unread[channel(wait)] -= 1
        self._owe_resumption(revision)

    def _owe_resumption(self, revision: int) -> None:
        """The last answer, or the end of the last wait, ends the pause for it."""
        waiting = self.approvals or self.waits
        if not waiting and self.pause("approval", "unverifiable", "wait") is not None:
            self.owes = "resumed", revision

    def _fold_result(self, event: ToolResult, revision: int) -> None:
        call = self.calls.get(event.tool_call_id or "")
        if call is not None and call.result is None:
            call.result = revision
        completed_at = event.metadata.get("completed_at")
        if isinstance(completed_at, int | float) and (
            self.result_at is None or completed_at > self.result_at[0]
        ):
            self.result_at = float(completed_at), revision

    def _fold_injected(self, event: MessageInjected, revision: int) -> None:
        self.injected = revision
        index = next((i for i, (queued, _) in enumerate(self.queue) if is_message(event, queued)), 0)
        self.queue[index : index + 1] = []

    def _fold_ralph(self, event: RalphIteration | RalphStop, revision: int) -> None:
        if isinstance(event, RalphStop):
            self.stopped = revision
        elif event.status == "started":
            self.iteration, self.iteration_revision = event.iteration, revision
        else:
            self.iteration, self.iterations = None, event.iteration
            self.iteration_revision = revision
