"""How tool calls and their outcomes read in the conversation with the model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..eventlog.events import ToolCall, ToolResult
from .messages import CallRequest, Message, canonical_json
from .prompt import shortened
from .retrieval import OFFLOADED
from .run_state import CallState, RunState


def conversation(state: RunState) -> list[Message]:
    """What was said in a run: its complete steps.

    Once it is over also the step that was left open, or the output of a swarm or a loop.
    """
    if state.terminal is None or state.submitted is None:
        return list(state.messages)
    if state.step_open and state.model.replied:
        calls = list(state.calls.values())
        return [*state.messages, asking(state.model.text, calls), *answers(calls)]
    if state.submitted.kind != "agent" and state.terminal.status == "completed":
        return [*state.messages, Message(role="assistant", content=state.output)]
    return list(state.messages)


def asking(text: str, calls: Iterable[CallState]) -> Message:
    """What the model said, with the calls it wants."""
    requests = [CallRequest(id=c.id, name=c.name, arguments=written_arguments(c)) for c in calls]
    return Message(role="assistant", content=text, tool_calls=tuple(requests))


def answers(calls: Iterable[CallState]) -> list[Message]:
    """What it is told of them."""
    return [Message(role="tool", tool_call_id=c.id, content=answer_text(c.result)) for c in calls]


def written_arguments(call: CallState | ToolCall) -> str:
    """The arguments as the conversation has them: as the model wrote them, injected ones among them."""
    if call.raw_arguments is not None:
        return call.raw_arguments
    arguments = {**call.arguments, **call.injected_args} if call.injected_args else call.arguments
    return canonical_json(arguments).decode()


def executable_arguments(call: CallState) -> str:
    """The arguments that reach the tool: two calls with the same ones are the same call."""
    return canonical_json(call.arguments).decode()


def answer_text(result: ToolResult | None) -> str:
    """What the model reads of a call's outcome; `aborted` for one that has none (R4)."""
    if result is None:
        return "aborted"
    if not result.success:
        return f"error: {result.error}"
    text, offloaded = result_text(result.result), result.metadata.get(OFFLOADED)
    return shortened(text, offloaded) if isinstance(offloaded, str) else text


def result_text(result: object) -> str:
    """A result as text: JSON, unless it is text already."""
    return result if isinstance(result, str) else canonical_json(result).decode()


def memo_mark(name: str) -> str:
    """The key of a named part in a call's `marks`."""
    return f"memo {name}"


def question_mark(name: str) -> str:
    """The key of a question in a call's `marks`."""
    return f"question {name}"


def recording_key(tool_name: str, arguments: dict[str, Any]) -> str:
    """What a call must have in common with a recorded one to get its result."""
    return f"{tool_name} {canonical_json(arguments).decode()}"
