"""Runs as tasks: build a task object from a run, and status updates from its events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from a2a.helpers.proto_helpers import new_data_part, new_text_part
from a2a.types import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

from ...eventlog.events import (
    ApprovalRequested,
    DetailedEvent,
    McpProgress,
    Status,
    Text,
    TextReset,
    ToolCall,
    Usage,
)
from ...projections.run_state import RunState
from ..protocols.asked import Asked
from ..protocols.questions import form_of, text_of

Update = TaskStatusUpdateEvent | TaskArtifactUpdateEvent
_STATES = {
    "queued": TaskState.TASK_STATE_SUBMITTED,
    "running": TaskState.TASK_STATE_WORKING,
    "paused": TaskState.TASK_STATE_WORKING,
    "completed": TaskState.TASK_STATE_COMPLETED,
    "error": TaskState.TASK_STATE_FAILED,
    "cancelled": TaskState.TASK_STATE_CANCELED,
}


class Reading:
    """Folds the stream of a run into its open approvals and the updates to send."""

    def __init__(self, run_id: str, context_id: str) -> None:
        self.asked, self.cursor, self.over = Asked(), "", False
        self._run, self._context = run_id, context_id
        self._text, self._said = "", 0

    def feed(self, event: DetailedEvent) -> Iterator[Update]:
        """Fold one event of the detailed stream, and yield the update for it, if any."""
        self.asked.feed(event)
        self.cursor, self.over = event.cursor or self.cursor, self.over or event.is_end
        message = self._message(event)
        if message:
            self._said += 1
            yield self.update(TaskState.TASK_STATE_WORKING, [new_text_part(message)], event.at)

    def _message(self, event: DetailedEvent) -> str:
        match event:
            case McpProgress():
                total = f"/{event.total:g}" if event.total is not None else ""
                return f"{event.tool_name} {event.progress:g}{total} {event.message}".strip()
            case ToolCall():
                return f"{event.agent} calls {event.tool_name}"
            case Text() if event.run_id == self._run:
                self._text = self._text[: event.offset] + event.text
            case TextReset(channel="text") if event.run_id == self._run:
                self._text = self._text[: event.offset]
            case Usage() if event.run_id == self._run:
                text, self._text = self._text, ""
                return text
            case Status(status="paused") if event.run_id == self._run:
                self._text = ""
            case _:
                pass
        return ""

    def update(self, state: TaskState, parts: Iterable[Part], at: float = 0.0) -> TaskStatusUpdateEvent:
        """Return a status update. `at` is Unix seconds; 0 leaves out the time."""
        return TaskStatusUpdateEvent(
            task_id=self._run, context_id=self._context, status=self._status(state, parts, at)
        )

    def _status(self, state: TaskState, parts: Iterable[Part], at: float = 0.0) -> TaskStatus:
        listed = list(parts)
        status = TaskStatus(state=state)
        if listed:
            identity = f"{self._run}-{self.cursor or 'begin'}-{self._said}"
            message = Message(
                message_id=identity,
                context_id=self._context,
                task_id=self._run,
                role=Role.ROLE_AGENT,
                parts=listed,
            )
            status.message.CopyFrom(message)
        if at:
            status.timestamp.FromNanoseconds(int(at * 1e9))
        return status

    def task(self, state: RunState, *, waits: bool, history: Iterable[Message] = ()) -> Task:
        """Return the task object. `waits`: the run or one below it is in a pause that only another party can end."""
        listed = artifact_of(state)
        return Task(
            id=self._run,
            context_id=self._context,
            status=self.status(state, waits=waits),
            artifacts=[listed] if listed is not None else [],
            history=list(history),
        )

    def status(self, state: RunState, *, waits: bool) -> TaskStatus:
        """Return the status of the task, with its open questions or the reason why it failed or was cancelled."""
        if waits and not state.over:
            if self.asked.open:
                parts = _questions(self.asked.open.values())
                return self._status(TaskState.TASK_STATE_INPUT_REQUIRED, parts, state.updated_at)
            text = f"it waits for {state.paused or 'a signal'}"
            return self._status(TaskState.TASK_STATE_WORKING, [new_text_part(text)], state.updated_at)
        parts = []
        if state.status == "error" and state.error is not None:
            parts = [new_text_part(f"{state.error.error_type}: {state.error.error}")]
        elif state.status == "cancelled" and state.cancel_reason:
            parts = [new_text_part(state.cancel_reason)]
        return self._status(_STATES[state.status], parts, state.updated_at)

    def ended(self, state: RunState, *, waits: bool) -> Iterator[Update]:
        """Yield the last updates: the output, if the run completed, then the status that ends the stream."""
        artifact = artifact_of(state)
        if artifact is not None:
            yield TaskArtifactUpdateEvent(
                task_id=self._run, context_id=self._context, artifact=artifact, last_chunk=True
            )
        yield TaskStatusUpdateEvent(
            task_id=self._run, context_id=self._context, status=self.status(state, waits=waits)
        )


def artifact_of(state: RunState) -> Artifact | None:
    """Return the output of a completed run as an artifact; None for any other run."""
    if state.status != "completed":
        return None
    return Artifact(artifact_id="output", name="output", parts=[new_text_part(state.output)])


def said_in(run_id: str, context_id: str, messages: Iterable[Any], most: int | None) -> list[Message]:
    """Return the messages of the user and the agent, in order: the last `most` of them, or all if that is None."""
    told = [each for each in messages if each.role in {"user", "assistant"} and each.content]
    numbered = list(enumerate(told))
    kept = numbered if most is None else numbered[len(numbered) - most :] if most else []
    return [
        Message(
            message_id=f"{run_id}-m{number}",
            context_id=context_id,
            task_id=run_id,
            role=Role.ROLE_USER if each.role == "user" else Role.ROLE_AGENT,
            parts=[new_text_part(each.content)],
        )
        for number, each in kept
    ]


def _questions(asked: Iterable[ApprovalRequested]) -> list[Part]:
    """Return a text part for each question, and a data part: `{"approvals": [{"id", "kind", "message", "schema"}]}`."""
    listed = list(asked)
    data = [
        {"id": each.approval_id, "kind": each.kind, "message": text_of(each), "schema": form_of(each)}
        for each in listed
    ]
    return [*(new_text_part(text_of(each)) for each in listed), new_data_part({"approvals": data})]
