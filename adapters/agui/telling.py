"""Translate a run's events into AG-UI events.

A client rejects the end of a run while messages, steps or subagents are open, so the translator tracks all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ...eventlog.events import (
    QUESTION,
    ApprovalRequested,
    Budget,
    ChildFinished,
    ChildStarted,
    Context,
    Custom,
    DetailedEvent,
    McpProgress,
    MessageInjected,
    RalphIteration,
    RalphStop,
    Reasoning,
    Step,
    Text,
    TextReset,
    ToolCall,
    ToolResult,
    to_json,
)
from ..protocols.asked import Asked
from ..protocols.questions import form_of, text_of

Sent = dict[str, Any]
Message = dict[str, Any]
_WAIT = "wait-"


class Wait(NamedTuple):
    """The content of an interrupt id that is not an approval: the run that waits, and the cursor of its last event."""

    run: str
    cursor: str


def wait_of(interrupt: str) -> Wait | None:
    """Parse the id of an interrupt; None if it is the id of an approval."""
    run, _, cursor = interrupt.removeprefix(_WAIT).rpartition("-")
    return Wait(run, cursor) if interrupt.startswith(_WAIT) and run else None


class Telling:
    """Translates the events of a run and the runs below it. `given` are the messages that the client already has."""

    def __init__(self, run_id: str, given: list[Message]) -> None:
        self.asked = Asked()
        self._run, self._cursor = run_id, ""
        self._messages: dict[str, Message] = {str(each.get("id")): each for each in given}
        self._texts: dict[str, str] = {}
        self._reasoning: dict[str, str] = {}
        self._steps: dict[str, str] = {}
        self._subagents: dict[str, Sent] = {}
        """By run id: the id of its open text message, the id of its open reasoning message, the name of its open step,
        and the event that began it as a subagent."""

    def feed(self, event: DetailedEvent) -> Iterator[Sent]:
        """Yield the AG-UI events for one event."""
        self.asked.feed(event)
        self._cursor = event.cursor or self._cursor
        if not isinstance(event, Text):
            yield from self._end(self._texts, event.run_id, "TEXT_MESSAGE_END")
        if not isinstance(event, Reasoning):
            yield from self._end_reasoning(event.run_id)
        for sent in self._said(event):
            at = {"timestamp": int(event.at * 1000)} if event.at else {}
            yield {**sent, **at, **({} if sent["type"].startswith("SUBAGENT") else self._who(event.run_id))}

    def _said(self, event: DetailedEvent) -> Iterator[Sent]:  # noqa: C901 - one case each
        match event:
            case Step():
                yield from self._step(event)
            case Text():
                yield from self._text(event)
            case TextReset(channel="text"):
                yield from self._reset(event)
            case Reasoning():
                yield from self._reason(event)
            case ToolCall():
                yield from self._call(event)
            case ToolResult():
                yield self._result(event)
            case McpProgress():
                content = {"progress": event.progress, "total": event.total, "message": event.message}
                yield {
                    "type": "ACTIVITY_SNAPSHOT",
                    "messageId": f"{event.tool_call_id}-progress",
                    "activityType": "PROGRESS",
                    "content": content,
                    "replace": True,
                }
            case ChildStarted():
                yield self._begin_subagent(event)
            case ChildFinished() if event.child_run in self._subagents:
                yield from self._end_subagent(event)
            case Custom():
                yield {"type": "CUSTOM", "name": event.name, "value": event.data}
            case Context() | Budget() | MessageInjected() | RalphIteration() | RalphStop():
                value = to_json(event)
                yield {"type": "CUSTOM", "name": f"foldlog.{event.type}", "value": value}
            case _:
                pass

    def suspended(self) -> Iterator[Sent]:
        """Yield events that close everything that is open; `resumed` opens steps and subagents again."""
        for run in [*self._texts]:
            yield from self._end(self._texts, run, "TEXT_MESSAGE_END")
        for run in [*self._reasoning]:
            yield from self._end_reasoning(run)
        for run, name in self._steps.items():
            yield {"type": "STEP_FINISHED", "stepName": name, **self._who(run)}
        for run in reversed(self._subagents):
            ids = [each.approval_id for each in self.asked.open.values() if each.run_id == run]
            outcome = {"type": "suspended", "interruptIds": ids}
            yield {"type": "SUBAGENT_FINISHED", "subagentRunId": run, "outcome": outcome}

    def resumed(self) -> Iterator[Sent]:
        """Yield events that reopen the steps and subagents that were open when the client's last stream ended."""
        yield from self._subagents.values()
        for run, name in self._steps.items():
            yield {"type": "STEP_STARTED", "stepName": name, **self._who(run)}
        self._texts.clear()
        self._reasoning.clear()

    def interrupts(self, waits_for: str) -> list[dict[str, Any]]:
        """Return the interrupts: the open approvals, or else one that names what the run waits for (`waits_for`)."""
        found = [self._interrupt(each) for each in self.asked.open.values()]
        message = f"The run waits for {waits_for}."
        wait = f"{_WAIT}{self._run}-{self._cursor}"
        return found or [{"id": wait, "reason": "waiting", "message": message}]

    def _interrupt(self, asked: ApprovalRequested) -> dict[str, Any]:
        expires = asked.expires_at
        return {
            "id": asked.approval_id,
            "reason": "input_required" if asked.kind == QUESTION else "confirmation",
            "message": text_of(asked),
            "responseSchema": form_of(asked),
            "metadata": {"kind": asked.kind, "tool": asked.tool_name, "arguments": asked.arguments},
            **({"toolCallId": asked.tool_call_id} if asked.tool_call_id else {}),
            **({"expiresAt": datetime.fromtimestamp(expires, UTC).isoformat()} if expires else {}),
            **self._who(asked.run_id),
        }

    def _who(self, run: str) -> dict[str, str]:
        return {"subagentRunId": run} if run != self._run and run in self._subagents else {}

    def _step(self, event: Step) -> Iterator[Sent]:
        name = f"{event.agent_path} step {event.step}"
        if event.status == "started" and event.run_id not in self._steps:
            self._steps[event.run_id] = name
            yield {"type": "STEP_STARTED", "stepName": name}
        elif event.status == "completed" and self._steps.pop(event.run_id, None) is not None:
            yield {"type": "STEP_FINISHED", "stepName": name}

    def _text(self, event: Text) -> Iterator[Sent]:
        # With a counter, messages of two requests could share an id, and the client would merge them.
        identity = f"{event.run_id}-s{event.step}"
        message = self._message(identity, event.run_id)
        message["content"] = (message.get("content") or "")[: event.offset] + event.text
        if event.run_id not in self._texts:
            self._texts[event.run_id] = identity
            yield {"type": "TEXT_MESSAGE_START", "messageId": identity, "role": "assistant"}
        if event.text:
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": identity, "delta": event.text}

    def _reset(self, event: TextReset) -> Iterator[Sent]:
        message = self._messages.get(f"{event.run_id}-s{event.step}")
        if message is not None:
            message["content"] = (message.get("content") or "")[: event.offset]
            yield {"type": "MESSAGES_SNAPSHOT", "messages": [dict(each) for each in self._messages.values()]}

    def _reason(self, event: Reasoning) -> Iterator[Sent]:
        identity = f"{event.run_id}-r{event.step}"
        if event.run_id not in self._reasoning:
            self._reasoning[event.run_id] = identity
            yield {"type": "REASONING_START", "messageId": identity}
            yield {"type": "REASONING_MESSAGE_START", "messageId": identity, "role": "reasoning"}
        if event.text:
            yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": identity, "delta": event.text}

    def _end_reasoning(self, run: str) -> Iterator[Sent]:
        identity = self._reasoning.pop(run, None)
        if identity is not None:
            yield {"type": "REASONING_MESSAGE_END", "messageId": identity, **self._who(run)}
            yield {"type": "REASONING_END", "messageId": identity, **self._who(run)}

    def _end(self, opened: dict[str, str], run: str, kind: str) -> Iterator[Sent]:
        identity = opened.pop(run, None)
        if identity is not None:
            yield {"type": kind, "messageId": identity, **self._who(run)}

    def _call(self, event: ToolCall) -> Iterator[Sent]:
        raw = event.raw_arguments
        arguments = json.dumps(event.arguments) if raw is None else raw
        parent = f"{event.run_id}-s{event.step}"
        function = {"name": event.tool_name, "arguments": arguments}
        call = {"id": event.tool_call_id, "type": "function", "function": function}
        self._message(parent, event.run_id).setdefault("toolCalls", []).append(call)
        place = {"toolCallId": event.tool_call_id}
        yield {
            "type": "TOOL_CALL_START",
            **place,
            "toolCallName": event.tool_name,
            "parentMessageId": parent,
        }
        yield {"type": "TOOL_CALL_ARGS", **place, "delta": arguments}
        yield {"type": "TOOL_CALL_END", **place}

    def _result(self, event: ToolResult) -> Sent:
        told = event.result if isinstance(event.result, str) else json.dumps(event.result)
        content = told if event.success else f"error: {event.error}"
        identity = f"{event.tool_call_id}-result"
        message = {"id": identity, "role": "tool", "toolCallId": event.tool_call_id, "content": content}
        self._messages[identity] = message | self._who(event.run_id)
        return {
            "type": "TOOL_CALL_RESULT",
            "messageId": identity,
            "toolCallId": event.tool_call_id,
            "content": content,
            "role": "tool",
        }

    def _message(self, identity: str, run: str) -> Message:
        begun = {"id": identity, "role": "assistant", **self._who(run)}
        return self._messages.setdefault(identity, begun)

    def _begin_subagent(self, event: ChildStarted) -> Sent:
        parent = {"parentSubagentRunId": event.run_id} if event.run_id in self._subagents else {}
        sent = {
            "type": "SUBAGENT_STARTED",
            "subagentRunId": event.child_run,
            "name": event.name,
            **({"parentToolCallId": event.tool_call_id} if event.tool_call_id else {}),
            **parent,
        }
        self._subagents[event.child_run] = sent
        return sent

    def _end_subagent(self, event: ChildFinished) -> Iterator[Sent]:
        yield from self._end(self._texts, event.child_run, "TEXT_MESSAGE_END")
        yield from self._end_reasoning(event.child_run)
        name = self._steps.pop(event.child_run, None)
        if name is not None:
            yield {"type": "STEP_FINISHED", "stepName": name, **self._who(event.child_run)}
        del self._subagents[event.child_run]
        if event.status == "completed":
            outcome = {"type": "success"}
            yield {"type": "SUBAGENT_FINISHED", "subagentRunId": event.child_run, "outcome": outcome}
        else:
            yield {
                "type": "SUBAGENT_ERROR",
                "subagentRunId": event.child_run,
                "message": f"it ended with: {event.status}",
            }
