"""Native tools in a reply: what the provider did is recorded, each call with its result, and never done by the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...eventlog.events import ToolCall, ToolResult
from ...projections.run_state import RunState
from ..ports.models import ProviderCall
from .tool_calls import ID_LENGTH_MAX, free_id


def events(state: RunState, made: Sequence[ProviderCall]) -> Iterator[ToolCall | ToolResult]:
    """Yield the call and the result of each native tool, in the order in which the provider ran them."""
    taken = set[str]()
    for number, call in enumerate(made):
        call_id = free_id(
            call.id if len(call.id) <= ID_LENGTH_MAX else "",
            f"provider-{state.step}-{number}",
            lambda given: given in taken or state.knows_call(given),
        )
        taken.add(call_id)
        name, succeeded = call.name[:ID_LENGTH_MAX], call.error is None
        yield ToolCall(
            step=state.step,
            tool_call_id=call_id,
            tool_name=name,
            arguments=call.arguments,
            executed_by="provider",
        )
        yield ToolResult(
            step=state.step,
            tool_call_id=call_id,
            tool_name=name,
            success=succeeded,
            result=call.result,
            error=call.error,
            metadata={"status": "success" if succeeded else "error", "executed_by": "provider"},
            executed_by="provider",
        )
