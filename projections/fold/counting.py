"""What the run has used, and how often it has tried again."""

from __future__ import annotations

from ...eventlog.events import LateOutcome, ModelFailed, PlannerReplied, SummaryMade, Usage
from ..money import plus_cost
from ..run_state import RunState


def count_usage(state: RunState, event: Usage | PlannerReplied | SummaryMade) -> None:
    """The tokens and the price of one model call."""
    state.usage = state.usage + event.usage
    state.cost_usd = plus_cost(state.cost_usd, event.cost_usd)


def count_broken(state: RunState, event: ModelFailed | LateOutcome) -> None:
    """The same of an answer that broke off. Of one that nothing had arrived of, nobody knows that it took anything."""
    if event.usage is not None:
        state.usage = state.usage + event.usage
        state.cost_usd = plus_cost(state.cost_usd, event.cost_usd)


def count_retry(state: RunState, error_type: str) -> None:
    """One retry because of this type of error."""
    state.retries[error_type] = state.retries.get(error_type, 0) + 1
