"""The core: decides what happens next, from facts alone. No clock, no randomness, no I/O.

    decide(state, rules, command, now) -> events   an outcome or a request becomes facts; () means "already so"
    pending(state, now) -> effects                 what the executor has to do next

The executor that owns a run calls `take` and `advance` instead: its `Turn` folds each event in place as it is decided,
so that one turn can take many commands and advance over what follows from them. Each concern has a module of its own:
`model_calls`, `planning`, `steps`, `tool_calls`, `approvals`, `coordination` for swarms and loops, and `workflow`.
"""

from __future__ import annotations

import copy

from ...eventlog.events import (
    Claimed,
    LeftToOthers,
    MessageQueued,
    PauseRequested,
    Prepared,
    Released,
    Status,
    StoredEvent,
)
from ...projections.run_state import RunState
from . import (
    approvals,
    budgets,
    compaction,
    coordination,
    knowledge,
    model_calls,
    outputs,
    parking,
    planning,
    steps,
    timeouts,
    timers,
    tool_calls,
    tool_refresh,
    waits,
)
from .commands import (
    AnswerCallback,
    BelowReady,
    CallbackIssued,
    Cancel,
    ChildEnded,
    ChildSpawned,
    Claim,
    CodeAdvanced,
    CodeDiverged,
    Command,
    EvaluationReturned,
    Expired,
    Fence,
    Inject,
    IssueToken,
    KnowledgeRead,
    Leave,
    MemoMade,
    ModelCallFailed,
    ModelReplied,
    ParkForChildren,
    Pause,
    PreparationFailed,
    RefreshTools,
    Release,
    Resolve,
    Restore,
    Resume,
    RevokeTokens,
    SendSignal,
    Tick,
    TimerDue,
    ToolAsked,
    ToolEmitted,
    ToolReturned,
    ToolsResolved,
    ToolWaits,
)
from .effects import Effect, LookUp, Prepare
from .model_request import PLANNER
from .rules import Rules
from .tool_calls import unsafe_starts
from .turn import Turn
from .workflow import decisions as workflow

__all__ = ["Turn", "advance", "decide", "pending", "take", "unsafe_starts"]


def decide(state: RunState, rules: Rules, command: Command, now: float) -> tuple[StoredEvent, ...]:
    """Return the events that a command leads to, with all that follows from them. Leaves `state` unchanged."""
    turn = Turn(copy.deepcopy(state), rules, now)
    take(turn, command)
    advance(turn)
    return tuple(turn.events)


def pending(state: RunState, now: float) -> tuple[Effect, ...]:
    """Return the effects to perform next, derived from facts alone, so they survive any crash."""
    if not state.runnable or state.owner is None:
        return ()
    if not state.prepared:
        return (Prepare(),)
    if state.flow is not None:
        return workflow.pending(state, now)
    if state.kind != "agent":
        return coordination.pending(state)
    if tool_refresh.is_due(state):
        return (tool_refresh.pending(state),)
    if state.model.phase:
        is_planner = state.model.phase == PLANNER
        return planning.pending(state, now) if is_planner else model_calls.pending(state)
    if not state.step_open:
        return (LookUp(),) if knowledge.is_due(state) else ()
    if not state.model.replied:
        return model_calls.pending(state)
    validator = outputs.to_validate(state)
    return (validator,) if validator is not None else tool_calls.pending(state, now)


def take(turn: Turn, command: Command) -> None:  # noqa: C901, PLR0912, PLR0915 - one case each
    """Turn a command into facts; a command that no longer applies adds none."""
    state = turn.state
    if state.over or not state.exists or (state.cancelling and not isinstance(command, Cancel)):
        return
    match command:  # the most frequent first
        case ToolReturned(step=planning.STEP) if state.flow is None:
            planning.returned(turn, command)
        case ToolReturned():
            tool_calls.returned(turn, command)
        case ModelReplied(phase="planner"):
            planning.replied(turn, command)
        case ModelReplied(phase="summary" | "compaction"):
            compaction.replied(turn, command)
        case ModelReplied():
            steps.model_replied(turn, command)
        case Claim():
            turn.add(
                Claimed(
                    worker=command.worker,
                    epoch=state.epoch + 1,
                    lease_s=command.lease_s,
                    build=command.build,
                )
            )
        case Release():
            if state.owner is not None:
                turn.add(Released(reason=command.reason))
        case Leave():
            if command.reason not in state.left:
                turn.add(LeftToOthers(worker=command.worker, reason=command.reason))
        case Restore():
            parking.restored(turn, command.at)
        case ToolsResolved() if command.refresh:
            tool_refresh.resolved(turn, command)
        case ToolsResolved():
            if not state.prepared:
                _remember(turn, command)
                turn.add(
                    Prepared(
                        tools=list(command.tools),
                        model=command.model,
                        window_tokens=command.window_tokens,
                        instructions=command.instructions,
                        standing_plan=command.standing_plan,
                    )
                )
        case KnowledgeRead():
            knowledge.read(turn, command)
        case PreparationFailed() if command.refresh:
            tool_refresh.failed(turn, command)
        case PreparationFailed():
            turn.fail(command.error_type, command.message, recoverable=False, step=None)
        case ModelCallFailed():
            model_calls.failed(turn, command)
        case ToolEmitted():
            tool_calls.emitted(turn, command)
        case MemoMade() if workflow.is_own(state, command):
            workflow.memo_made(turn, command)
        case MemoMade():
            tool_calls.memoized(turn, command)
        case ToolAsked():
            tool_calls.asked(turn, command)
        case ToolWaits():
            tool_calls.waits_for(turn, command)
        case SendSignal():
            waits.receive(turn, command)
        case CallbackIssued():
            tool_calls.callback_issued(turn, command)
        case AnswerCallback():
            waits.answer(turn, command)
        case CodeAdvanced():
            workflow.code_advanced(turn, command)
        case CodeDiverged():
            workflow.diverged(turn, command)
        case ChildSpawned(call_id=None):
            coordination.node_started(turn, command)
        case ChildSpawned():
            tool_calls.child_spawned(turn, command)
        case ChildEnded():
            tool_calls.child_ended(turn, command)
        case ParkForChildren():
            parking.park(turn)
        case BelowReady():
            parking.ready(turn, command.child_run)
        case EvaluationReturned():
            coordination.evaluated(turn, command)
        case TimerDue():
            timers.due(turn, command.timer_id)
        case Tick():
            pass
        case Expired():
            timeouts.expired(turn, command.scope, command.step)
        case Cancel():
            turn.cancel(command.reason, command)
        case Fence():
            turn.fence(command.reason, command)
        case Inject(content=content, parts=parts, request_key=key):
            if not key or key not in state.message_keys:
                turn.add(MessageQueued(content=content, parts=list(parts), request_key=key, **command.fields))
        case RefreshTools():
            tool_refresh.requested(turn, command)
        case Pause():
            if not state.pause_requested and state.paused != "manual":
                turn.add(PauseRequested(**command.fields))
        case Resume():
            if state.paused in {"manual", "policy", "takeover"} or model_calls.waits_for_budget(state):
                turn.add(Status(status="resumed", reason=state.paused or "", **command.fields))
            elif state.pause_requested:
                turn.add(PauseRequested(withdrawn=True, **command.fields))
        case Resolve():
            approvals.resolve(turn, command)
        case IssueToken():
            approvals.issue_token(turn, command)
        case RevokeTokens():
            approvals.revoke_tokens(turn, command)


def _remember(turn: Turn, found: ToolsResolved) -> None:
    """Record the memory of earlier runs, once."""
    if found.hydrated is not None and not turn.state.hydrated:
        turn.add(found.hydrated)


def advance(turn: Turn) -> None:
    """Decide everything that follows from the facts without waiting for the outside world."""
    while _advance_once(turn):
        pass


def _advance_once(turn: Turn) -> bool:  # noqa: C901 - one case each
    state, before = turn.state, len(turn.events)
    if not state.runnable or state.owner is None or not state.prepared or tool_calls.to_verify(state):
        return False
    if tool_calls.park_orphans(turn):
        return True
    if state.flow is not None:
        workflow.advance(turn)
    elif state.kind != "agent":
        coordination.advance(turn)
    elif state.model.phase == PLANNER:
        planning.go_on(turn)
    elif state.model.phase:
        compaction.go_on(turn)
    elif tool_refresh.is_due(state):
        pass  # the next step begins with the tools that are listed now
    elif not state.step_open:
        _at_boundary(turn)
    elif not state.model.replied:
        steps.go_on_with_model(turn)
    elif tool_calls.settle(turn) and outputs.to_validate(state) is None:
        steps.complete(turn)
    return len(turn.events) > before


def _at_boundary(turn: Turn) -> None:
    """Do the first that is due: pause, budgets, room in the window, knowledge, the plan, or the next step."""
    if steps.pause(turn) or budgets.pause(turn) or compaction.begin(turn):
        return
    if knowledge.is_due(turn.state) or budgets.stop(turn):
        return
    if planning.is_due(turn.state, turn.rules):
        planning.go_on(turn)
    else:
        steps.begin(turn)
