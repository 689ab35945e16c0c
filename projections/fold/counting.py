"""The counts of a run: tokens, costs and retries."""

from __future__ import annotations

from ...eventlog.events import LateOutcome, ModelFailed, PlannerReplied, SummaryMade, Usage
from ..money import plus_cost
from ..run_state import RunState


def count_usage(state: RunState, event: Usage | PlannerReplied | SummaryMade) -> None:
    """Add the tokens and the price of one model call."""
    state.usage = state.usage + event.usage
    state.cost_usd = plus_cost(state.cost_usd, event.cost_usd)


def count_broken(state: RunState, event: ModelFailed | LateOutcome) -> None:
    """Add those of a reply that broke off, if any part of it arrived; otherwise they are unknown."""
    if event.usage is not None:
        state.usage = state.usage + event.usage
        state.cost_usd = plus_cost(state.cost_usd, event.cost_usd)


def count_retry(state: RunState, error_type: str) -> None:
    """Count one retry after an error of this type."""
    state.retries[error_type] = state.retries.get(error_type, 0) + 1
