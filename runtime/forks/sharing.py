"""The table of events that a fork shares with its original: every type of event is listed once.

A type that is not listed is a type error, so that a new one is not copied, or left out, by accident.
"""

from __future__ import annotations

from typing import Literal

from ...eventlog.events import (
    AccessGranted,
    AccessWithdrawn,
    AgentRemoved,
    AgentSaved,
    AnswerKept,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalRevoked,
    BreakerUpdated,
    Budget,
    BudgetUpdated,
    Buried,
    CancelRequested,
    ChildFinished,
    ChildReady,
    ChildReturned,
    ChildStarted,
    Chosen,
    Claimed,
    Context,
    Custom,
    CutBegun,
    Diverged,
    Error,
    Evaluated,
    FileMade,
    HookAdvanced,
    KeyRecorded,
    KnowledgeFound,
    LaneUpdated,
    LateOutcome,
    LeftToOthers,
    Marked,
    McpProgress,
    Memoized,
    MemoryHydrated,
    MessageInjected,
    MessageQueued,
    ModelFailed,
    ModelRequested,
    Offloaded,
    OnceUpdated,
    OperationSkipped,
    OutputMade,
    OutputRejected,
    Parked,
    PauseRequested,
    PlanMade,
    PlannerReplied,
    PlannerToolReturned,
    PlanUpdated,
    PolicyUpdated,
    Prepared,
    RalphIteration,
    RalphStop,
    Reasoning,
    Released,
    ReplyState,
    Restored,
    ResultRecorded,
    ScheduleUpdated,
    SignalDropped,
    SignalReceived,
    SlotsUpdated,
    Status,
    Step,
    StoredEvent,
    Submitted,
    SummaryMade,
    Text,
    TimerFired,
    TokenIssued,
    TokenRevoked,
    ToolAttemptFailed,
    ToolCall,
    ToolPartial,
    ToolResult,
    ToolsRefreshFailed,
    ToolsRefreshRequested,
    ToolsRemoved,
    ToolStarted,
    Unknown,
    Usage,
    WaitEnded,
    WaitStarted,
)

Sharing = Literal["history", "reply", "start", "answer", "child", "life", "driving"]
"""The ways in which a fork shares events.

- `history`: with the call that they belong to, if any.
- `reply`: as `history`, but not those of a reply that is incomplete.
- `start`, `answer`, `child`: with the call, if the fork shows how the attempt, the approval or the child run ended.
- `life`: only with a run that is over, which is shared unchanged: how it was paused, failed, cancelled and ended.
- `driving`: never.
"""


def sharing_of(event: StoredEvent | Unknown) -> Sharing:  # noqa: C901, PLR0912 - a table
    """Return how a fork shares the event."""
    match event:
        case ModelRequested() | ModelFailed() | Reasoning() | Text() | FileMade() | ReplyState():
            return "reply"
        case Usage() | ToolCall() | ToolResult(executed_by="provider"):
            return "reply"
        case ToolStarted():
            return "start"
        case ApprovalResolved():
            return "answer"
        case ChildStarted() | ChildFinished() | ChildReturned():
            return "child"
        case (
            Submitted()
            | Step()
            | ToolResult()
            | ToolAttemptFailed()
            | McpProgress()
            | Custom()
            | ToolPartial()
            | Memoized()
        ):
            return "history"
        case (
            Prepared()
            | ToolsRefreshRequested()
            | ToolsRefreshFailed()
            | ToolsRemoved()
            | MemoryHydrated()
            | KnowledgeFound()
        ):
            return "history"
        case PlannerReplied() | PlannerToolReturned() | PlanMade() | OutputRejected() | OutputMade():
            return "history"
        case Context() | CutBegun() | SummaryMade() | Budget() | MessageQueued() | MessageInjected():
            return "history"
        case WaitStarted() | WaitEnded() | SignalReceived() | SignalDropped():
            return "history"
        case Chosen() | Marked() | OperationSkipped():
            return "history"
        case Evaluated() | RalphIteration() | RalphStop() | Offloaded() | Unknown():
            return "history"
        case Status() | Error() | Diverged() | PauseRequested() | CancelRequested():
            return "life"
        case ApprovalRequested() | ApprovalRevoked() | ResultRecorded():
            return "life"
        case Claimed() | Released() | Parked() | LeftToOthers() | TimerFired() | ChildReady() | LateOutcome():
            return "driving"
        case Restored() | TokenIssued() | TokenRevoked():
            return "driving"
        # Those of registers are of no run.
        case LaneUpdated() | KeyRecorded() | BreakerUpdated() | SlotsUpdated() | BudgetUpdated():
            return "driving"
        case AccessGranted() | AccessWithdrawn() | AnswerKept() | AgentSaved() | AgentRemoved():
            return "driving"
        case PlanUpdated() | PolicyUpdated() | OnceUpdated() | ScheduleUpdated() | HookAdvanced() | Buried():
            return "driving"
