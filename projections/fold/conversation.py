"""What the model reads: messages join the conversation, and cuts take them out again."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ...eventlog.events import (
    Context,
    CutBegun,
    KnowledgeFound,
    MemoryHydrated,
    MessageInjected,
    MessageQueued,
    ModelFailed,
    OutputRejected,
    Prepared,
    SummaryMade,
    ToolSpec,
)
from ..messages import Message, canonical_json
from ..prompt import (
    budget_line,
    kept_indices,
    knowledge_block,
    plan_block,
    summary_message,
    system_message,
    with_line,
)
from ..run_state import ContextState, CutState, ModelCallState, RunState
from ..tokens import estimate_tokens, message_tokens
from .counting import count_usage


def queue_message(state: RunState, event: MessageQueued) -> None:
    """Somebody has told the run something, which its next request will carry."""
    state.queue.append(event.content)


def inject_message(state: RunState, event: MessageInjected) -> None:
    """The oldest of these is part of the conversation now."""
    state.queue[:1] = []
    state.continued = ""
    add_message(state, Message(role="user", content=event.content))


def reject_output(state: RunState, event: OutputRejected) -> None:
    """The model is told what is wrong with its output, or to go on with it."""
    if event.reason == "length":
        state.continued = state.output
    elif event.reason == "call":
        state.continued = ""
    else:
        state.output_rejections += 1
    add_message(state, Message(role="user", content=event.message))


def find_knowledge(state: RunState, event: KnowledgeFound) -> None:
    """The system message says what is known, if anything is."""
    state.looked_up = True
    state.knowledge = knowledge_block(event.items)
    tell_system(state)


def begin_cut(state: RunState, event: CutBegun) -> None:
    """Messages are about to leave, and what leaves is summarised first."""
    state.context.cut = CutState(phase=event.phase, cause=event.cause, kept=event.kept)


def make_summary(state: RunState, event: SummaryMade) -> None:
    """Keep a summary until the cut that puts it in its place."""
    count_usage(state, event)
    state.context.summaries += 1
    cut = state.context.cut
    if cut is not None:
        cut.summary, cut.until, cut.parts = event.text, event.until, cut.parts + 1
        cut.truncated = cut.truncated or event.finish_reason == "length"
    state.model = ModelCallState(
        phase=event.phase,
        attempt=state.model.attempt,
        replied=True,
        finish_reason=event.finish_reason,
    )


def hydrate(state: RunState, event: MemoryHydrated) -> None:
    """Put what is remembered between the system message and the run's own history."""
    state.hydrated = True
    remembered: list[Message] = []
    for item in event.messages if isinstance(event.messages, list | tuple) else ():
        try:
            message = msgspec.convert(item, Message)
        except msgspec.ValidationError:  # of nobody's writing
            continue
        for call in message.tool_calls:
            state.place_call(call.id, (0, len(state.call_places)))
        if message.tool_call_id is None or message.tool_call_id in state.call_places:
            remembered.append(message)
    had = bool(state.messages) and state.messages[0].role == "system"
    state.history_count += len(remembered)
    set_messages(state, [*state.messages[:had], *remembered, *state.messages[had:]])


def cut(state: RunState, event: Context) -> None:
    """Keep what a cut keeps, with the summary in the place of the rest; the call that it made room for goes on."""
    if "kept" not in event.details:
        return
    had = bool(state.messages) and state.messages[0].role == "system"
    own, body = state.history_count - had, state.messages[had:]
    kept = list(kept_indices(event.details["kept"], len(body)))
    where = event.details.get("summary")
    text = state.context.cut.summary if state.context.cut is not None else ""
    summary = [summary_message(text)] if where in {"first", "last"} else []
    first, last = (summary, []) if where == "first" else ([], summary)
    state.context.has_input = state.context.has_input and own in kept
    set_messages(state, [*state.messages[:had], *first, *(body[index] for index in kept), *last])
    state.forget_calls()
    state.history_count = had + len(first) + sum(index < own for index in kept)
    state.context.cut = None
    if event.action == "compact":
        state.context.compactions += 1
        state.context.compacted_at = state.steps_completed, state.step_open
    before = state.interrupted if state.interrupted is not None else state.model
    goes_on = before.phase == "planner" or (state.step_open and not before.phase)
    fresh = before if goes_on else ModelCallState()
    attempt = max(before.attempt, state.model.attempt)
    state.interrupted = None
    state.model = msgspec.structs.replace(
        fresh, attempt=attempt, requested=False, retry_at=None, error_type="", error=""
    )


def learn_window(state: RunState, event: Prepared) -> None:
    """How large the model's window is, and what of it the tools take."""
    context = state.context
    context.window_tokens = _least(event.window_tokens, context.taught_tokens)
    if context.window_tokens is not None:
        count_tools(context, event.tools)


def learn_from_overflow(state: RunState, event: ModelFailed) -> None:
    """A server that refuses a request as too long proves a bound, and may state the numbers.

    A call besides the steps reads something else than the prompt: it teaches what is stated alone, and a planner, which
    may be another model, nothing.
    """
    context, stated = state.context, event.window_tokens
    if event.phase == "planner" or (event.phase and stated is None):
        return
    if not event.phase:
        proven = context.tokens if stated is None else max(context.tokens, stated + 1)
        context.tokens = event.request_tokens or proven
    taught = stated or _least(context.taught_tokens, context.tokens - 1) or 1
    context.taught_tokens = max(1, taught)
    if context.window_tokens is None:  # the tools were not counted, and are part of what is counted now
        context.tool_tokens = tools_tokens(state.tools.values())
    context.window_tokens = _least(context.window_tokens, context.taught_tokens)


def _least(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def count_tools(context: ContextState, tools: Iterable[ToolSpec]) -> None:
    """What these tools take of the window, in the place of those before."""
    before, context.tool_tokens = context.tool_tokens, tools_tokens(tools)
    context.tokens += context.tool_tokens - before


def tools_tokens(tools: Iterable[ToolSpec]) -> int:
    """What the descriptions of these tools take."""
    return sum(
        estimate_tokens(f"{tool.name}{tool.description}{canonical_json(tool.parameters).decode()}")
        for tool in tools
    )


def tell_system(state: RunState) -> None:
    """Put what the system message says now in its place."""
    config = state.submitted.config if state.submitted is not None else {}
    instructions = str(config.get("instructions") or "")
    message = system_message(instructions, state.knowledge, plan_block(state.planning.plan))
    had = bool(state.messages) and state.messages[0].role == "system"
    told = [message] if message is not None else []
    state.history_count += len(told) - had
    set_messages(state, [*told, *state.messages[had:]])


def add_message(state: RunState, message: Message) -> None:
    """The next message."""
    _append(state, message)
    state.context.tokens += message_tokens(message)


def _append(state: RunState, message: Message) -> None:
    state.messages.append(message)
    state.context.messages += 1


def set_messages(state: RunState, messages: list[Message]) -> None:
    """Another history: the chain begins again."""
    count = state.context.messages + max(0, len(messages) - len(state.messages))
    state.messages, state.linked_messages, state.linked_digest = [], 0, ""
    state.context.tokens = state.context.tool_tokens
    for message in messages:
        add_message(state, message)
    state.context.messages = count


def give_back(state: RunState, message: Message, reported: int = 0) -> None:
    """A message for the model to read again. `reported`: what the provider says that the prompt takes with it."""
    context = state.context
    context.tokens = reported or context.tokens + message_tokens(message)
    if context.told and context.window_tokens is not None:
        told = with_line(message, budget_line(context.tokens, context.window_tokens))
        context.tokens += message_tokens(told) - message_tokens(message)
        message = told
    _append(state, message)
