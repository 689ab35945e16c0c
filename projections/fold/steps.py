"""Steps, and their model calls."""

from __future__ import annotations

from ...eventlog.events import (
    FileMade,
    ModelFailed,
    ModelRequested,
    ReplyState,
    Step,
    Text,
    TokenUsage,
    Usage,
)
from ..call_texts import answers, asking, executable_arguments, made_file
from ..messages import reply_items
from ..money import plus_cost
from ..run_state import ModelCallState, RunState
from .conversation import append_for_model, learn_from_overflow
from .counting import count_broken, count_retry, count_usage


def change_step(state: RunState, event: Step) -> None:
    """Start or complete a step."""
    if event.status == "started":
        _start_step(state, event, state.updated_at)
    else:
        _spend_time(state, event.completed_at or state.updated_at)
        _complete_step(state)


def _start_step(state: RunState, event: Step, at: float) -> None:
    state.shorten_approvals()
    state.step, state.step_open, state.step_started_at = event.step or state.step + 1, True, at
    state.model, state.calls, state.interrupted = ModelCallState(), {}, None
    state.elapsed.step_paused_s = 0.0
    state.spent.began_at, state.spent.step_cost_usd = event.started_at or at, "0"
    state.spent.step_broken = TokenUsage()


def use_tokens(state: RunState, event: Usage) -> None:
    """Store the usage of a reply, which completes the model call."""
    state.model.replied, state.model.requested, state.model.usage = True, False, event.usage
    state.model.finish_reason = event.finish_reason
    count_usage(state, event)
    state.spent.step_cost_usd = plus_cost(state.spent.step_cost_usd, event.cost_usd)


def say(state: RunState, event: Text) -> None:
    """Store the text of a reply; a text outside of steps is not from a model, but explains why the run stops."""
    if event.step is None:
        state.output = event.text
    else:
        state.model.text = event.text


def make_file(state: RunState, event: FileMade) -> None:
    """Add a file of a reply."""
    state.model.files = [*state.model.files, made_file(event)]


def keep_reply_state(state: RunState, event: ReplyState) -> None:
    """Store the provider's state, to be sent back with the reply that follows."""
    state.model.reply_state = reply_items(event)


def request_model(state: RunState, event: ModelRequested) -> None:
    """Begin an attempt of a model call, of the step or of another phase."""
    if event.phase != state.model.phase:
        in_planner = state.model.phase == "planner"
        state.interrupted = state.model if event.phase and (state.step_open or in_planner) else None
        state.model = ModelCallState(phase=event.phase)
    model = state.model
    if model.next_model:
        model.given_up.append(model.model)
        model.given_up_failures += model.failures
        model.failures, model.next_model = 0, ""
    model.attempt, model.model, model.requested, model.retry_at = event.attempt, event.model, True, None
    model.replied, model.reply_state = False, None
    # A takeover must not mistake the last failure for a final one.
    model.error_type = model.error = model.budget = ""


def fail_model(state: RunState, event: ModelFailed) -> None:
    """Note a failed attempt: a retry follows at `retry_at`, another model, or neither."""
    model = state.model
    model.requested, model.retry_at, model.next_model = False, event.retry_at, event.next_model
    model.failures += not event.budget  # a call that was not made says nothing about the model
    model.error_type, model.error, model.budget = event.error_type, event.error, event.budget
    count_broken(state, event)
    if event.usage is not None and not event.phase:
        state.spent.step_broken = state.spent.step_broken + event.usage
        state.spent.step_cost_usd = plus_cost(state.spent.step_cost_usd, event.cost_usd)
    if event.retry_at is not None and not event.budget:
        count_retry(state, event.error_type)
    if event.error_type == "context_overflow":
        learn_from_overflow(state, event)
        cut = state.context.cut
        if cut is not None and event.phase == cut.phase:
            cut.overflows += 1


def _complete_step(state: RunState) -> None:
    state.step_open = False
    state.steps_completed += 1
    calls = list(state.calls.values())
    usage = state.model.usage
    asked = asking(state.model, calls)
    append_for_model(state, asked, usage.input_tokens and usage.input_tokens + usage.output_tokens)
    for message in answers(calls):
        append_for_model(state, message)
    this_round = "\n".join(
        [
            f"{call.name} {executable_arguments(call) if call.injected_args else written.arguments}"
            for call, written in zip(calls, asked.tool_calls, strict=True)
        ]
    )
    state.same_rounds = state.same_rounds + 1 if calls and this_round == state.last_round else 1
    state.last_round = this_round
    if calls:
        state.continued = ""  # the model did not go on with its answer
    else:
        state.output = state.model.text


def _spend_time(state: RunState, completed_at: float) -> None:
    spent = state.spent
    spent.step_seconds = max(0.0, completed_at - spent.began_at - state.elapsed.step_paused_s)
    spent.seconds += spent.step_seconds


def restart_model_call(state: RunState) -> None:
    """Call the models again from the first on, after all were given up."""
    before = state.model
    failures = before.given_up_failures + before.failures
    state.model = ModelCallState(phase=before.phase, attempt=before.attempt, given_up_failures=failures)
