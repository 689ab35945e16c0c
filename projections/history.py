"""The history of a conversation: the messages of its runs, oldest first, and the permitted cuts.

A turn is one run: its input, the model's replies and tool calls, and the results. An assistant message with tool calls
and the results are never separated; a call without a result reads `aborted`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ..eventlog.commits import Recorded
from ..eventlog.events import (
    FileMade,
    MessageInjected,
    OutputMade,
    OutputRejected,
    ReplyState,
    Status,
    Step,
    StoredEvent,
    Submitted,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
    is_terminal,
)
from ..eventlog.names import digest_of
from ..eventlog.parts import FilePart
from .call_texts import answer, made_file, said, written_arguments
from .messages import CallRequest, Message, ReplyItems, reply_items
from .tokens import messages_tokens


class PastTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is over. `messages` begin with its input; `output` is empty unless it completed. Times in Unix s."""

    run: str
    agent: str
    session: str | None
    status: str
    submitted_at: float
    ended_at: float
    steps: int
    messages: tuple[Message, ...]
    output: str = ""

    @property
    def exchange(self) -> tuple[Message, ...]:
        """The turn in short: its input and its output."""
        return self.messages[0], Message(role="assistant", content=self.output)


class History(msgspec.Struct, frozen=True):
    """The turns of a conversation, oldest first.

    `purged`: ids of turns that are no longer in the log. `damaged`: those among the turns asked for whose commits are
    missing or altered, so that they are left out.
    """

    turns: tuple[PastTurn, ...] = ()
    purged: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()

    def raw_items(self) -> tuple[Message, ...]:
        """Return every message unchanged."""
        return tuple(message for turn in self.turns for message in turn.messages)

    def for_prompt(self, messages_max: int | None = None) -> tuple[Message, ...]:
        """Return at most `messages_max` of the last messages for a model; calls keep their results, ids are unique."""
        turns = distinct_calls([(turn.run, turn.messages) for turn in self.turns])
        messages = [message for turn in turns for message in turn]
        return newest(messages, messages_max)

    def turn_count(self) -> int:
        """Return the number of turns."""
        return len(self.turns)

    def estimate_tokens(self) -> int:
        """Estimate the tokens of `for_prompt()`, at four bytes per token."""
        return messages_tokens(self.for_prompt())


# --- cuts -------------------------------------------------------------------------------------------------------------


def newest(messages: Sequence[Message], messages_max: int | None) -> tuple[Message, ...]:
    """Return at most `messages_max` of the last messages (None: all). It never begins with a tool's result."""
    if messages_max is None or len(messages) <= messages_max:
        return tuple(messages)
    first = len(messages) - messages_max
    while first < len(messages) and messages[first].role == "tool":
        first += 1
    return tuple(messages[first:])


def distinct_calls(turns: Iterable[tuple[str, Sequence[Message]]]) -> list[tuple[Message, ...]]:
    """Return the messages of each (run, messages), with a new id for each call whose id an earlier turn has used.

    The new id depends only on the run and the place of the call in it.
    """
    seen: set[str] = set()
    result = []
    for run, messages in turns:
        calls = [call.id for message in messages for call in message.tool_calls]
        names = {
            call: f"past-{digest_of(run)[:12]}-{index}" if call in seen else call
            for index, call in enumerate(calls)
        }
        seen.update(calls)
        result.append(tuple(_renamed(message, names) for message in messages))
    return result


def _renamed(message: Message, names: dict[str, str]) -> Message:
    if all(names[call.id] == call.id for call in message.tool_calls) and (
        message.tool_call_id is None or names[message.tool_call_id] == message.tool_call_id
    ):
        return message
    return msgspec.structs.replace(
        message,
        tool_calls=tuple(msgspec.structs.replace(call, id=names[call.id]) for call in message.tool_calls),
        tool_call_id=names[message.tool_call_id] if message.tool_call_id is not None else None,
    )


# --- the fold of one run ----------------------------------------------------------------------------------------------


class TurnState(msgspec.Struct):
    """A run as a turn of a conversation, folded from the few events that matter; `over` once it has ended."""

    run: str = ""
    agent: str = ""
    submitted: Submitted | None = None
    submitted_at: float = 0.0
    ended_at: float = 0.0
    terminal: Status | None = None
    steps: int = 0
    messages: list[Message] = []
    text: str = ""
    files: list[FilePart] = []
    reply_state: ReplyItems | None = None
    output: str = ""
    """The output, if the log has it separately from the replies: that of a coordinator, or an answer in two parts."""
    calls: dict[str, tuple[CallRequest, ToolResult | None]] = {}

    @property
    def exists(self) -> bool:
        """True if any commit of the run was read."""
        return bool(self.run)

    @property
    def over(self) -> bool:
        """True if the run has its terminal status."""
        return self.terminal is not None

    def turn(self) -> PastTurn | None:
        """Return the turn; None while the run is not over, and if it ended before its first model call."""
        if self.terminal is None or self.submitted is None or not (self.steps or len(self.messages) > 1):
            return None
        completed = self.terminal.status == "completed"
        return PastTurn(
            run=self.run,
            agent=self.agent,
            session=self.submitted.session,
            status=self.terminal.status,
            submitted_at=self.submitted_at,
            ended_at=self.ended_at,
            steps=self.steps,
            messages=tuple(self.messages),
            output=(self.output or self.messages[-1].content) if completed else "",
        )


def fold_turn(state: TurnState, recorded: Recorded) -> None:
    """Fold a run's next commit, with artifacts restored, in place. Events after the end are ignored."""
    commit = recorded.commit
    if not state.run:
        state.run, state.agent, state.submitted_at = commit.run, commit.path.rpartition("/")[2], commit.at
    for event in commit.events:
        if not event.agent_path and not state.over:  # else it was forwarded from an inner agent
            _evolve(state, event, commit.at)


def _evolve(state: TurnState, event: StoredEvent | Unknown, at: float) -> None:  # noqa: C901, PLR0912 - one case each
    match event:
        case Submitted():
            state.submitted = event
            state.messages.append(Message(role="user", content=event.input, parts=tuple(event.parts)))
        case MessageInjected():
            state.messages.append(Message(role="user", content=event.content, parts=tuple(event.parts)))
        case OutputRejected(message=content):
            state.messages.append(Message(role="user", content=content))
        case Step(status="started"):
            state.steps += 1
        case Step():
            _close_round(state)
        case Text(text=text):
            state.text = text
        case FileMade():
            state.files = [*state.files, made_file(event)]
        case ReplyState(step=int()):
            state.reply_state = reply_items(event)
        case OutputMade(output=output):
            state.output = output
            if state.submitted is not None and state.submitted.kind != "agent":  # it has no other text
                state.text = output
        case ToolCall(executed_by="provider"):
            return  # the provider's own, and only for it to read
        case ToolCall():
            call = CallRequest(
                id=event.tool_call_id or "", name=event.tool_name, arguments=written_arguments(event)
            )
            state.calls[call.id] = call, None
        case ToolResult() if event.tool_call_id in state.calls:
            state.calls[event.tool_call_id] = state.calls[event.tool_call_id][0], event
        case Status() if is_terminal(event):
            if state.text or state.files or state.calls:
                _close_round(state)
            state.terminal, state.ended_at = event, at
        case _:
            return  # not part of the conversation


def _close_round(state: TurnState) -> None:
    requests = tuple(call for call, _ in state.calls.values())
    state.messages.append(said(state.text, state.files, requests, state.reply_state))
    state.messages += [answer(call.id, result) for call, result in state.calls.values()]
    state.text, state.files, state.calls, state.reply_state = "", [], {}, None
