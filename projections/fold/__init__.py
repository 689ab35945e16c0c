"""The fold of a run: one function for each type of event, and the folding of whole commits.

`evolve(state, event)` is the reference: it does not change its argument. The executor that owns a run folds in place
with `apply`, which is the same code without the copy. The fold is total: it never raises for a known event, and never
decides anything. `fold_commit` adds the checks of whole commits: revisions, and the fencing of executors (W4).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...eventlog import events
from ...eventlog.commits import Commit, Head, Recorded
from ...eventlog.errors import LogCorrupted
from ...eventlog.events import Claimed, Offloaded, StoredEvent, Unknown
from ...eventlog.offload import outline_of
from ..run_state import RunState
from . import calls, children, conversation, lifecycle, operations, planning, steps, waits
from .counting import count_broken

__all__ = ["FOLDS", "apply", "check_epoch", "evolve", "fold_commit"]


def _no_change(_state: RunState, _event: Any) -> None:
    """Change nothing: the event is only for readers of the log, or is of another subject."""


def _fold_outline(state: RunState, event: Offloaded) -> None:
    outline = outline_of(event)
    FOLDS[type(outline)](state, outline)


FOLDS: Mapping[type, Callable[[RunState, Any], None]] = {
    events.Submitted: lifecycle.submit,
    events.Claimed: lifecycle.claim,
    events.Status: lifecycle.set_status,
    events.Prepared: lifecycle.prepare,
    events.ToolsRefreshRequested: lifecycle.request_refresh,
    events.ToolsRefreshFailed: lifecycle.fail_refresh,
    events.ToolsRemoved: conversation.remove_tools,
    events.Released: lifecycle.release,
    events.LeftToOthers: lifecycle.leave,
    events.Restored: lifecycle.restore,
    events.Parked: lifecycle.park,
    events.TimerFired: lifecycle.fire_timer,
    events.PauseRequested: lifecycle.request_pause,
    events.CancelRequested: lifecycle.request_cancel,
    events.Error: lifecycle.fail,
    events.Unknown: lifecycle.meet_unknown,
    events.Step: steps.change_step,
    events.ModelRequested: steps.request_model,
    events.ModelFailed: steps.fail_model,
    events.Usage: steps.use_tokens,
    events.Text: steps.say,
    events.FileMade: steps.make_file,
    events.ReplyState: steps.keep_reply_state,
    events.MessageQueued: conversation.queue_message,
    events.MessageInjected: conversation.inject_message,
    events.OutputRejected: conversation.reject_output,
    events.MemoryHydrated: conversation.hydrate,
    events.KnowledgeFound: conversation.find_knowledge,
    events.CutBegun: conversation.begin_cut,
    events.SummaryMade: conversation.make_summary,
    events.Context: conversation.cut,
    events.PlannerReplied: planning.planner_replied,
    events.PlannerToolReturned: planning.planner_tool_returned,
    events.PlanMade: planning.make_plan,
    events.ToolCall: calls.call_tool,
    events.ToolStarted: calls.start_call,
    events.ToolAttemptFailed: calls.fail_attempt,
    events.ToolResult: calls.return_result,
    events.Memoized: calls.keep_part,
    events.McpProgress: calls.count_event,
    events.Custom: calls.count_event,
    events.ToolPartial: calls.keep_partial,
    events.ResultRecorded: calls.keep_recorded,
    events.WaitStarted: waits.start_wait,
    events.WaitEnded: waits.end_wait,
    events.SignalReceived: waits.receive_signal,
    events.SignalDropped: waits.drop_signal,
    events.ApprovalRequested: calls.request_approval,
    events.ApprovalResolved: calls.resolve_approval,
    events.ApprovalRevoked: calls.revoke_approval,
    events.TokenIssued: calls.issue_token,
    events.TokenRevoked: calls.revoke_token,
    events.ChildStarted: children.start_child,
    events.ChildFinished: children.finish_child,
    events.ChildReturned: children.return_child,
    events.ChildReady: children.wake_for_child,
    events.Evaluated: children.evaluate,
    events.RalphIteration: children.iterate,
    events.OutputMade: children.make_output,
    events.Chosen: operations.choose,
    events.Marked: operations.mark,
    events.OperationSkipped: operations.skip,
    events.Diverged: operations.diverge,
    events.Reasoning: _no_change,
    events.Budget: _no_change,
    events.LateOutcome: count_broken,
    events.Offloaded: _fold_outline,
    events.RalphStop: _no_change,
    events.LaneUpdated: _no_change,
    events.KeyRecorded: _no_change,
    events.BreakerUpdated: _no_change,
    events.BudgetUpdated: _no_change,
    events.PolicyUpdated: _no_change,
    events.OnceUpdated: _no_change,
    events.SlotsUpdated: _no_change,
    events.ScheduleUpdated: _no_change,
    events.HookAdvanced: _no_change,
    events.AccessGranted: _no_change,
    events.AccessWithdrawn: _no_change,
    events.AgentSaved: _no_change,
    events.AgentRemoved: _no_change,
    events.PlanUpdated: _no_change,
    events.AnswerKept: _no_change,
    events.Buried: _no_change,
}
"""The fold of each event type. The time of the event's commit is the state's `updated_at`."""


def evolve(state: RunState, event: StoredEvent | Unknown, at: float = 0.0) -> RunState:
    """Fold one fact into a copy of the state."""
    after = copy.deepcopy(state)
    apply(after, event, at)
    return after


def fold_commit(state: RunState, recorded: Recorded) -> None:
    """Fold one verified commit in place. Raises `LogCorrupted` for a commit that the protocol forbids."""
    commit = recorded.commit
    claim = claim_in(commit)
    if commit.epoch:
        _check_epoch(state, commit, claims=claim is not None)
    if state.submitted is None:
        state.run, state.root, state.path, state.submitted_at = (
            commit.run,
            commit.root,
            commit.path,
            commit.at,
        )
    state.updated_at = commit.at
    _fold(state, commit.events)
    if claim is not None:
        state.owner_revision = commit.rev + claim
    state.head = Head(recorded.position, commit.rev + len(commit.events) - 1, recorded.digest)


def check_epoch(state: RunState, commit: Commit) -> None:
    """Check W4: an executor commits under the current epoch, and a claim raises it by one."""
    if commit.epoch:
        _check_epoch(state, commit, claims=claim_in(commit) is not None)


def _check_epoch(state: RunState, commit: Commit, *, claims: bool) -> None:
    in_force = state.epoch + 1 if claims else state.epoch
    if commit.epoch != in_force or (state.owner is None and not claims and not state.over):
        raise LogCorrupted(
            commit.run,
            commit.rev,
            f"an executor of epoch {commit.epoch} wrote while epoch {state.epoch} was in force",
        )


def claim_in(commit: Commit) -> int | None:
    """Return the index of the claim among the commit's events, if there is one."""
    for index, event in enumerate(commit.events):
        if type(event) is Claimed:
            return index
    return None


def apply(state: RunState, event: StoredEvent | Unknown, at: float) -> None:
    """Fold one event in place; `at` is the time of its commit. Of an offloaded event, only its outline is folded."""
    state.updated_at = at
    _fold(state, (event,))


def _fold(state: RunState, facts: Iterable[StoredEvent | Unknown]) -> None:
    for event in facts:
        if event.agent_path:  # forwarded from an inner agent: it only counts as an event of its call
            calls.count_emitted(state, event.tool_call_id)
        else:
            FOLDS[type(event)](state, event)
