"""Build the response object of a run from the log."""

from __future__ import annotations

from typing import Any

from ...projections.run_state import RunState
from ...runtime.handle import RunHandle
from .asked import PREVIOUS
from .output import Item

_STATUS = {
    "queued": "queued",
    "running": "in_progress",
    "paused": "incomplete",
    "completed": "completed",
    "error": "failed",
    "cancelled": "cancelled",
}
_CUT = {"length": "max_output_tokens", "budget_limit": "budget_limit"}
"""Reasons for which a run completes with an incomplete answer, by the API's names."""
APPROVAL, WAITING = "approval_required", "waiting"


async def response_of(run: RunHandle[Any], output: list[Item], *, waits: str = "") -> dict[str, Any]:
    """Return the response object of a run with these output items.

    `waits` is the reason of `incomplete_details` if the run or one below it waits for another party; empty if not.
    """
    state = await run.state()
    used = (await run.usage()).usage
    status, cut = _STATUS[state.status], waits
    if state.status == "completed" and state.terminal is not None:
        cut = _CUT.get(state.terminal.reason, "")
    if not state.over and waits:
        status = "incomplete"
    submitted = state.submitted
    assert submitted is not None  # noqa: S101 - a run that exists was submitted
    metadata = {key: value for key, value in submitted.metadata.items() if isinstance(value, str)}
    previous = metadata.pop(PREVIOUS, None)
    return {
        "id": run.run_id,
        "object": "response",
        "created_at": state.submitted_at,
        "completed_at": state.updated_at if state.status == "completed" else None,
        "model": state.agent,
        "status": "incomplete" if cut else status,
        "incomplete_details": {"reason": cut} if cut else None,
        "error": _error(state),
        "output": output,
        "instructions": submitted.overrides.get("instructions_suffix"),
        "metadata": metadata,
        "conversation": {"id": submitted.session} if submitted.session else None,
        "previous_response_id": previous,
        "user": submitted.user,
        "background": True,
        "store": True,
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "truncation": "disabled",
        "usage": {
            "input_tokens": used.input_tokens,
            "input_tokens_details": {"cached_tokens": used.cached_input_tokens},
            "output_tokens": used.output_tokens,
            "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
            "total_tokens": used.total_tokens,
        },
    }


def _error(state: RunState) -> dict[str, str] | None:
    if state.status != "error":
        return None
    kind, message = (state.error.error_type, state.error.error) if state.error else ("unknown", "")
    code = "rate_limit_exceeded" if kind == "rate_limit" else "server_error"
    return {"code": code, "message": f"{kind}: {message}"}
