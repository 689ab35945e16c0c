"""The messages of a conversation, neutral of any provider, and the hash chain over them (R12).

The chain is h(0) = "" and h(n) = SHA-256(h(n-1) + canonical JSON of message n), in hex, so that a new message costs the
same however long the history is. In the canonical JSON a call id is replaced by its place, `[step, index]`, because the
model chooses ids arbitrarily.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from ..eventlog.events import ReplyState
from ..eventlog.parts import FilePart, Part, TextPart, text_of

Place = tuple[int, int]
"""The place of a call: its step (0 for messages from before the run) and its index within the round."""


class CallRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A tool call within an assistant message. `arguments` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


class ReplyItems(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The provider's state of a reply, to be sent back with it; from the event `reply_state`.

    `items` have the provider's own form, are opaque to all others and never changed. They refer to calls by their index
    in the message, because a call may get another id when its message becomes history.
    """

    provider: str
    model: str
    items: list[Any]


def reply_items(event: ReplyState) -> ReplyItems | None:
    """Return the content of the event; None if its items are stored as an artifact and were not restored."""
    if not isinstance(event.items, list):
        return None
    return ReplyItems(provider=event.provider, model=event.model, items=event.items)


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One message of the conversation. `tool_call_id` is the call to which a message of role tool belongs.

    `parts` is the whole content if it is more than one text; `content` is then the text of its parts. `reply_state` of
    an assistant message is only for the provider that gave the reply.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    parts: tuple[Part, ...] = ()
    tool_calls: tuple[CallRequest, ...] = ()
    tool_call_id: str | None = None
    reply_state: ReplyItems | None = None


class _Call(msgspec.Struct, frozen=True):
    """A tool call in the chain. Here and below, fields are in the order of canonical JSON."""

    arguments: str
    call: Place
    name: str


class _Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a message in the chain: a file is its digest and the attributes that the model sees."""

    artifact: str | None = None
    detail: str = ""
    media_type: str = ""
    name: str = ""
    text: str | None = None
    url: str | None = None


class _Link(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    call: Place | None = None
    content: str
    parts: tuple[_Part, ...] = ()
    reply_state: str = ""
    role: str
    tool_calls: tuple[_Call, ...] = ()


_ENCODER = msgspec.json.Encoder(order="sorted")
_LINK_ENCODER = msgspec.json.Encoder()


def canonical_json(value: Any) -> bytes:
    """Encode as JSON with sorted keys and no white space; equal values have equal bytes."""
    return _ENCODER.encode(value)


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def chain(previous: str, message: Message, places: Mapping[str, Place]) -> str:
    """Return the next value of the chain. Raises `KeyError` for a call id without a place."""
    calls = message.tool_calls
    link = _Link(
        role=message.role,
        content=message.content,
        parts=tuple(map(_as_link, message.parts)) if message.parts else (),
        tool_calls=tuple([_Call(c.arguments, places[c.id], c.name) for c in calls]) if calls else (),
        call=None if message.tool_call_id is None else places[message.tool_call_id],
        reply_state=sha256_hex(canonical_json(message.reply_state.items)) if message.reply_state else "",
    )
    return hashlib.sha256(previous.encode() + _LINK_ENCODER.encode(link)).hexdigest()


def _as_link(part: Part) -> _Part:
    if isinstance(part, TextPart):
        return _Part(text=part.text)
    return _Part(
        artifact=part.artifact,
        detail=part.detail,
        media_type=part.media_type,
        name=part.name,
        url=part.url,
    )


def content_of(parts: Sequence[Part]) -> tuple[str, tuple[Part, ...]]:
    """Return the content of a message as its text and its parts; a single text, or none, needs no parts."""
    match parts:
        case [] | [TextPart()]:
            return text_of(parts), ()
        case _:
            return text_of(parts), tuple(parts)


def file_part_problem(part: FilePart) -> str | None:
    """Return what is wrong with a caller's file part; None if it is valid."""
    if (part.artifact is None) is (part.url is None):
        return "a file part has an artifact or a url"
    if part.artifact is not None and not _DIGEST.fullmatch(part.artifact):
        return f"{part.artifact!r:.80} is not an artifact's SHA-256 in hex"
    return None if part.media_type else "a file part has a media_type"


_DIGEST = re.compile("[0-9a-f]{64}")


_NO_SYSTEM = "the role is user, assistant or tool; what the system prompt says are the agent's instructions"


def parse_messages(items: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Parse messages from a caller: `{role, content}`, with `parts`, `tool_calls` or `tool_call_id` where they apply.

    Raises `ValueError` that names the first message with an unknown role or field, or a call without its result.
    """
    messages: list[Message] = []
    open_calls: list[str] = []
    for number, item in enumerate(items, start=1):
        try:
            message = msgspec.convert(dict(item), Message, strict=True)
        except msgspec.ValidationError as error:
            raise ValueError(f"message {number}: {error}") from error
        unknown = set(item) - {"role", "content", "parts", "tool_calls", "tool_call_id"}
        if unknown or message.role == "system":
            known = "known are role, content, parts, tool_calls, tool_call_id"
            why = f"unknown field {min(unknown)!r}; {known}" if unknown else _NO_SYSTEM
            raise ValueError(f"message {number}: {why}")
        open_calls = _pair(number, message, open_calls)
        messages.append(_whole(number, message))
    if open_calls:
        raise ValueError(f"message {len(messages)}: no result for the tool call {open_calls[0]!r}")
    return tuple(messages)


def _whole(number: int, message: Message) -> Message:
    """Return the message with the text of its parts as its content."""
    if not message.parts:
        return message
    for part in message.parts:
        problem = file_part_problem(part) if isinstance(part, FilePart) else None
        if problem is not None:
            raise ValueError(f"message {number}: {problem}")
    text, parts = content_of(message.parts)
    if message.content not in ("", text):
        raise ValueError(f"message {number}: content differs from the text of its parts")
    return msgspec.structs.replace(message, content=text, parts=parts)


def _pair(number: int, message: Message, open_calls: list[str]) -> list[str]:
    if message.role == "tool":
        if message.tool_call_id not in open_calls:
            raise ValueError(
                f"message {number}: a result for {message.tool_call_id!r}, which no message before it calls"
            )
        return [call for call in open_calls if call != message.tool_call_id]
    if open_calls:
        raise ValueError(f"message {number}: no result for the tool call {open_calls[0]!r} before it")
    calls = [call.id for call in message.tool_calls]
    if twice := next((each for index, each in enumerate(calls) if each in calls[:index]), None):
        raise ValueError(f"message {number}: two tool calls have the id {twice!r}")
    return calls
