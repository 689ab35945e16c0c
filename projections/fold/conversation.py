"""The messages that the model reads: they are added to the conversation, and cuts remove them again."""

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
    ToolsRemoved,
)
from ..messages import Message, canonical_json
from ..prompt import (
    budget_line,
    kept_indices,
    knowledge_block,
    plan_block,
    removal_notice,
    standing_plan_block,
    summary_message,
    system_message,
    with_line,
    without_files,
)
from ..run_state import ContextState, CutState, ModelCallState, RunState
from ..tokens import estimate_tokens, message_tokens
from .counting import count_usage


def queue_message(state: RunState, event: MessageQueued) -> None:
    """Queue a message for the next request."""
    state.queue.append(Message(role="user", content=event.content, parts=tuple(event.parts)))
    if event.request_key:
        state.message_keys[event.request_key] = state.head.rev


def inject_message(state: RunState, event: MessageInjected) -> None:
    """Move the oldest queued message into the conversation."""
    state.queue[:1] = []
    state.continued = ""
    add_message(state, Message(role="user", content=event.content, parts=tuple(event.parts)))


def remove_tools(state: RunState, event: ToolsRemoved) -> None:
    """Tell the model which tools it no longer has."""
    add_message(state, Message(role="user", content=removal_notice(event.tools)))


def reject_output(state: RunState, event: OutputRejected) -> None:
    """Add a message that tells the model what is wrong with its output, or to continue it."""
    if event.reason == "length":
        state.continued = state.output
    elif event.reason == "call":
        state.continued = ""
    else:
        state.output_rejections += 1
    add_message(state, Message(role="user", content=event.message))


def find_knowledge(state: RunState, event: KnowledgeFound) -> None:
    """Put the knowledge that was found into the system message."""
    state.looked_up = True
    state.knowledge = knowledge_block(event.items)
    update_system_message(state)


def begin_cut(state: RunState, event: CutBegun) -> None:
    """Begin a cut whose removed messages are summarised first."""
    state.context.cut = CutState(phase=event.phase, cause=event.cause, kept=event.kept)


def make_summary(state: RunState, event: SummaryMade) -> None:
    """Keep a summary until the cut inserts it."""
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
    """Insert memories between the system message and the run's own history."""
    state.hydrated = True
    remembered: list[Message] = []
    for item in event.messages if isinstance(event.messages, list | tuple) else ():
        try:
            message = msgspec.convert(item, Message)
        except msgspec.ValidationError:  # foldlog does not write such items
            continue
        for call in message.tool_calls:
            state.place_call(call.id, (0, len(state.call_places)))
        if message.tool_call_id is None or message.tool_call_id in state.call_places:
            remembered.append(message)
    had = bool(state.messages) and state.messages[0].role == "system"
    state.history_count += len(remembered)
    set_messages(state, [*state.messages[:had], *remembered, *state.messages[had:]])


def cut(state: RunState, event: Context) -> None:
    """Keep the messages that a cut keeps, replace the rest by the summary, and resume the interrupted call."""
    if event.action == "offload":
        _leave_files_out(state, event.details.get("messages"))
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


def _leave_files_out(state: RunState, indices: object) -> None:
    """Put notes in the place of the files of some messages."""
    if isinstance(indices, list | tuple) and indices:
        messages = enumerate(state.messages)
        set_messages(state, [without_files(each) if n in indices else each for n, each in messages])


def learn_window(state: RunState, event: Prepared) -> None:
    """Store the size of the model's window and the tokens of the tools."""
    context = state.context
    context.window_tokens = _least(event.window_tokens, context.learned_tokens)
    if context.window_tokens is not None:
        count_tools(context, event.tools)


def learn_from_overflow(state: RunState, event: ModelFailed) -> None:
    """Learn the window from a request that was refused as too long, which proves a bound and may state the numbers.

    A call outside of steps has another prompt, so only stated numbers count; a planner may have another model, so
    nothing is learned from it.
    """
    context, stated = state.context, event.window_tokens
    if event.phase == "planner" or (event.phase and stated is None):
        return
    if not event.phase:
        proven = context.tokens if stated is None else max(context.tokens, stated + 1)
        context.tokens = event.request_tokens or proven
    taught = stated or _least(context.learned_tokens, context.tokens - 1) or 1
    context.learned_tokens = max(1, taught)
    if context.window_tokens is None:  # the tools were not counted so far
        context.tool_tokens = tools_tokens(state.tools.values())
    context.window_tokens = _least(context.window_tokens, context.learned_tokens)


def _least(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def count_tools(context: ContextState, tools: Iterable[ToolSpec]) -> None:
    """Replace the tokens of the tools in the size of the prompt."""
    before, context.tool_tokens = context.tool_tokens, tools_tokens(tools)
    context.tokens += context.tool_tokens - before


def tools_tokens(tools: Iterable[ToolSpec]) -> int:
    """Estimate the tokens of the descriptions of these tools."""
    return sum(
        estimate_tokens(f"{tool.name}{tool.description}{canonical_json(tool.parameters).decode()}")
        for tool in tools
    )


def update_system_message(state: RunState) -> None:
    """Replace the system message by the current one."""
    config = state.submitted.config if state.submitted is not None else {}
    instructions = str(config.get("instructions") or "")
    message = system_message(
        state.instructions,
        instructions,
        state.knowledge,
        standing_plan_block(state.standing_plan),
        plan_block(state.planning.plan),
    )
    had = bool(state.messages) and state.messages[0].role == "system"
    first = [message] if message is not None else []
    state.history_count += len(first) - had
    set_messages(state, [*first, *state.messages[had:]])


def add_message(state: RunState, message: Message) -> None:
    """Add a message."""
    _append(state, message)
    state.context.tokens += message_tokens(message)


def _append(state: RunState, message: Message) -> None:
    state.messages.append(message)
    state.context.messages += 1
    state.context.has_files = state.context.has_files or bool(message.parts)


def set_messages(state: RunState, messages: list[Message]) -> None:
    """Replace all messages; the chain starts again."""
    count = state.context.messages + max(0, len(messages) - len(state.messages))
    state.messages, state.linked_messages, state.linked_digest = [], 0, ""
    state.context.tokens = state.context.tool_tokens
    for message in messages:
        add_message(state, message)
    state.context.messages = count


def append_for_model(state: RunState, message: Message, reported: int = 0) -> None:
    """Add a message of the step, perhaps with a budget line. `reported`: the provider's size of the prompt with it."""
    context = state.context
    context.tokens = reported or context.tokens + message_tokens(message)
    if context.shows_budget and context.window_tokens is not None:
        extended = with_line(message, budget_line(context.tokens, context.window_tokens))
        context.tokens += message_tokens(extended) - message_tokens(message)
        message = extended
    _append(state, message)
