"""Recover the operations that a workflow's code started from the events that they led to; each is a command.

So a run is replayed without its code: the code's decisions come from the log, and those that follow are made again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...eventlog.events import (
    QUESTION,
    ApprovalRequested,
    ApprovalRevoked,
    Chosen,
    Diverged,
    Error,
    Event,
    Marked,
    OperationSkipped,
    OutputMade,
    Parked,
    Prepared,
    ToolCall,
    ToolSpec,
    WaitStarted,
)
from ...projections.run_state import RunState
from ...runtime.core.commands import CodeAdvanced, CodeDiverged
from ...runtime.core.workflow.facts import (
    AskPerson,
    AskTool,
    AskWait,
    Choose,
    Ending,
    Fact,
    Mark,
    Skip,
)

CODE_FAILURES = frozenset({"workflow_failed", "operations_max"})
"""The errors with which the code of a workflow ends its run."""


def workflow_command(state: RunState, events: Sequence[Event]) -> CodeAdvanced | CodeDiverged | None:
    """Return the workflow's command whose outcome begins with `events[0]`; None if its code did not cause the event."""
    event = events[0]
    match event:
        case Diverged():
            return CodeDiverged(place=event.place, recorded=event.recorded, asked=event.asked)
        case OutputMade():
            return CodeAdvanced(end=Ending(output=event.output))
        case Error() | ApprovalRevoked():
            return _failed(events)
        case Parked(reason="approval" | "wait"):
            return CodeAdvanced(idle=True)
        case Parked(reason="unverifiable") if not any(call.orphaned for call in state.calls.values()):
            return CodeAdvanced(idle=True)
        case Prepared() if state.prepared and len(events) > 1 and isinstance(events[1], ToolCall):
            return CodeAdvanced(facts=(_call(events[1], event.tools[-1] if event.tools else None),))
        case _:
            fact = _fact(event)
            return CodeAdvanced(facts=(fact,)) if fact is not None else None


def _failed(events: Sequence[Event]) -> CodeAdvanced | None:
    end = next((event for event in events if not isinstance(event, ApprovalRevoked)), None)
    match end:
        case Error(error_type="workflow_failed" | "operations_max" as error_type):
            return CodeAdvanced(end=Ending(error_type=error_type, message=end.error))
        case _:
            return None


def _fact(event: Event) -> Fact | None:
    match event:
        case ToolCall():
            return _call(event, None)
        case WaitStarted() if event.place:
            return AskWait(
                place=event.place,
                kind=event.kind,
                name=event.name,
                until=event.until,
                form=event.schema,
                asked=event.asked,
            )
        case ApprovalRequested(kind=kind) if kind == QUESTION and event.place:
            arguments = event.arguments
            return AskPerson(
                place=event.place,
                name=str(arguments.get("name", "")),
                message=str(arguments.get("message", "")),
                form=arguments.get("schema"),
            )
        case Chosen():
            return Choose(place=event.place, index=event.index, lost=tuple(event.lost))
        case Marked():
            return Mark(place=event.place, name=event.name, value=event.value)
        case OperationSkipped():
            return Skip(place=event.place, why=event.why, failed=event.failed)
        case _:
            return None


def _call(event: ToolCall, spec: ToolSpec | None) -> AskTool:
    return AskTool(
        place=event.tool_call_id or "",
        name=event.tool_name,
        arguments=event.arguments,
        spec=spec,
        rules=event.rules,
    )
