"""The history of a conversation: what was said in each of its runs, oldest first, and the cuts that are allowed.

A turn is a run: its input, what the model said and called, what the tools answered. An assistant message with tool
calls and their results are never separated; a call without a result reads `aborted`.
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
    """A run that is over. `messages` begin with its input; `output` is empty unless it completed. Unix seconds."""

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
        """The turn in short: what was asked, and what was answered."""
        return self.messages[0], Message(role="assistant", content=self.output)


class History(msgspec.Struct, frozen=True):
    """The turns of a conversation, oldest first. `purged`: runs that belong to it and are not in the log any more."""

    turns: tuple[PastTurn, ...] = ()
    purged: tuple[str, ...] = ()

    def raw_items(self) -> tuple[Message, ...]:
        """Every message as it was."""
        return tuple(message for turn in self.turns for message in turn.messages)

    def for_prompt(self, messages_max: int | None = None) -> tuple[Message, ...]:
        """What a model is given of it: at most so many of the last messages, all pairs whole, no id twice."""
        turns = distinct_calls([(turn.run, turn.messages) for turn in self.turns])
        messages = [message for turn in turns for message in turn]
        return newest(messages, messages_max)

    def turn_count(self) -> int:
        """How many turns there are."""
        return len(self.turns)

    def estimate_tokens(self) -> int:
        """About how many tokens `for_prompt()` takes: four bytes are a token."""
        return messages_tokens(self.for_prompt())


# --- cuts -------------------------------------------------------------------------------------------------------------


def newest(messages: Sequence[Message], messages_max: int | None) -> tuple[Message, ...]:
    """At most so many of the last messages (null: all). The cut falls before a message that is not a tool's result."""
    if messages_max is None or len(messages) <= messages_max:
        return tuple(messages)
    first = len(messages) - messages_max
    while first < len(messages) and messages[first].role == "tool":
        first += 1
    return tuple(messages[first:])


def distinct_calls(turns: Iterable[tuple[str, Sequence[Message]]]) -> list[tuple[Message, ...]]:
    """The messages of each (run, messages), with another id for each call whose id a turn before has used.

    The new id depends on the run and the place of the call in it alone.
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
    """A run as a turn of a conversation, folded from the few events that were said; `over` once it has ended."""

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
    """The output, where the log says it apart from what was said: that of a coordinator, or an answer in two parts."""
    calls: dict[str, tuple[CallRequest, ToolResult | None]] = {}

    @property
    def exists(self) -> bool:
        """Return whether anything of the run was read."""
        return bool(self.run)

    @property
    def over(self) -> bool:
        """Return whether the run has its terminal status."""
        return self.terminal is not None

    def turn(self) -> PastTurn | None:
        """The turn; null while the run is not over, and for one that ended before anything was asked or said."""
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
    """Fold a run's next commit, artifacts restored, in place. What follows the end changes nothing."""
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
        case MessageInjected(content=told) | OutputRejected(message=told):
            state.messages.append(Message(role="user", content=told))
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
            if state.submitted is not None and state.submitted.kind != "agent":  # it has said nothing else
                state.text = output
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
            return  # nobody said it


def _close_round(state: TurnState) -> None:
    requests = tuple(call for call, _ in state.calls.values())
    state.messages.append(said(state.text, state.files, requests, state.reply_state))
    state.messages += [answer(call.id, result) for call, result in state.calls.values()]
    state.text, state.files, state.calls, state.reply_state = "", [], {}, None
