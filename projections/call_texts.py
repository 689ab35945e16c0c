"""Tool calls and their results as messages of the conversation with the model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ..eventlog.events import FileMade, ToolCall, ToolResult
from ..eventlog.parts import FilePart, Part, TextPart, files_of, text_of
from .messages import CallRequest, Message, ReplyItems, canonical_json, content_of
from .prompt import shortened
from .retrieval import OFFLOADED
from .run_state import CallState, ModelCallState, RunState


def conversation(state: RunState) -> list[Message]:
    """Return the messages of a run's complete steps.

    Once the run is over, also those of a step that was left open, or the output of a swarm or a loop.
    """
    if state.terminal is None or state.submitted is None:
        return list(state.messages)
    if state.step_open and state.model.replied:
        calls = list(state.calls.values())
        return [*state.messages, asking(state.model, calls), *answers(calls)]
    if state.submitted.kind != "agent" and state.terminal.status == "completed":
        return [*state.messages, Message(role="assistant", content=state.output)]
    return list(state.messages)


def asking(reply: ModelCallState, calls: Iterable[CallState]) -> Message:
    """Return the model's reply as a message, with its files and tool calls."""
    requests = [CallRequest(id=c.id, name=c.name, arguments=written_arguments(c)) for c in calls]
    return said(reply.text, reply.files, tuple(requests), reply.reply_state)


def said(
    text: str,
    files: Iterable[FilePart] = (),
    calls: tuple[CallRequest, ...] = (),
    reply_state: ReplyItems | None = None,
) -> Message:
    """Return a reply as a message."""
    made = tuple(files)
    parts = ((TextPart(text=text),) if text else ()) + made if made else ()
    return Message(role="assistant", content=text, parts=parts, tool_calls=calls, reply_state=reply_state)


def made_file(event: FileMade) -> FilePart:
    """Return a file that a model made as part of a message."""
    return FilePart(
        media_type=event.media_type,
        name=event.name,
        artifact=event.artifact,
        bytes=event.bytes,
        tokens=event.tokens,
    )


def answers(calls: Iterable[CallState]) -> list[Message]:
    """Return the results of calls as messages."""
    return [answer(c.id, c.result) for c in calls]


def answer(call_id: str, result: ToolResult | None) -> Message:
    """Return the result of a call as a message."""
    text, parts = answer_text(result), result_parts(result)
    if (
        parts and result is not None and OFFLOADED in result.metadata
    ):  # the text is shortened, the files are complete
        parts = (TextPart(text=text), *files_of(parts))
    return Message(role="tool", tool_call_id=call_id, content=text, parts=parts)


def written_arguments(call: CallState | ToolCall) -> str:
    """Return the arguments as the model wrote them, including injected ones; this is the form in the conversation."""
    if call.raw_arguments is not None:
        return call.raw_arguments
    arguments = {**call.arguments, **call.injected_args} if call.injected_args else call.arguments
    return canonical_json(arguments).decode()


def executable_arguments(call: CallState) -> str:
    """Return the arguments that the tool receives; loop detection compares calls by them."""
    return canonical_json(call.arguments).decode()


def answer_text(result: ToolResult | None) -> str:
    """Return the text of a call's result for the model; `aborted` if there is none (R4)."""
    if result is None:
        return "aborted"
    if not result.success:
        return f"error: {result.error}"
    text = result_text(result.result, in_parts=result.in_parts)
    offloaded = result.metadata.get(OFFLOADED)
    shown = shortened(text, offloaded) if isinstance(offloaded, str) else text
    return f"{shown}\n{PARTIAL_NOTE}" if PARTIAL in result.metadata else shown


PARTIAL = "partial"
"""The key in a result's metadata under which the number of the partial result is that replaces a whole one."""
PARTIAL_NOTE = "[partial: the call timed out before it was done]"


def result_text(result: object, *, in_parts: bool = False) -> str:
    """Return a result as text: text as it is, the text of a list of parts, anything else as JSON."""
    parts = parts_in(result) if in_parts else ()
    if parts:
        return text_of(parts)
    return result if isinstance(result, str) else canonical_json(result).decode()


def result_parts(result: ToolResult | None) -> tuple[Part, ...]:
    """Return the parts of a successful result; none if it is only text or JSON."""
    if result is None or not (result.success and result.in_parts):
        return ()
    return content_of(parts_in(result.result))[1]


def parts_in(value: object) -> tuple[Part, ...]:
    """Parse content parts from JSON; return none if the value is not a list of parts."""
    try:
        return msgspec.convert(value, tuple[Part, ...])
    except msgspec.ValidationError:  # not written by this code
        return ()


def memo_mark(name: str) -> str:
    """Return the key of a memoized part in a call's `marks`."""
    return f"memo {name}"


def question_mark(name: str) -> str:
    """Return the key of a question in a call's `marks`."""
    return f"question {name}"


def wait_mark(wait_id: str) -> str:
    """Return the key of a wait in a call's `marks`."""
    return f"wait {wait_id}"


def recording_key(tool_name: str, arguments: dict[str, Any]) -> str:
    """Return the key under which a fork looks up a recorded result for a call."""
    return f"{tool_name} {canonical_json(arguments).decode()}"
