"""The messages of a conversation, neutral of any provider, and the hash chain over them (contract.md R12).

The chain is h(0) = "" and h(n) = SHA-256(h(n-1) + canonical JSON of message n), in hex, so that its cost does
not grow with
the history. In the canonical JSON a call id is replaced by its place: `[step, index]`, because ids are the
model's whim.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

Place = tuple[int, int]
"""Where a call was made: step (0 for messages from before the run) and index within its round."""


class CallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call within an assistant message. `arguments` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of the conversation. `tool_call_id` names the call that a message of role tool answers."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    tool_calls: tuple[CallRequest, ...] = ()
    tool_call_id: str | None = None


_ENCODER = msgspec.json.Encoder(order="sorted")


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys and no white space; the same bytes for the same value."""
    return _ENCODER.encode(value)


def sha256_hex(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def chain(previous: str, message: Message, places: Mapping[str, Place]) -> str:
    """The chain's next link. Raises `KeyError` for a call id without a place."""
    record: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        record["tool_calls"] = [
            {"call": places[call.id], "name": call.name, "arguments": call.arguments}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        record["call"] = places[message.tool_call_id]
    return sha256_hex(previous.encode() + canonical_json(record))


def parse_messages(items: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Messages as a caller gives them: `{role, content}`, with `tool_calls` and `tool_call_id` where they belong.

    Raises `ValueError` that names the first message with an unknown role or field, or a call without its result.
    """
    messages: list[Message] = []
    open_calls: list[str] = []
    for number, item in enumerate(items, start=1):
        try:
            message = msgspec.convert(dict(item), Message, strict=True)
        except msgspec.ValidationError as error:
            raise ValueError(f"message {number}: {error}") from error
        unknown = set(item) - {"role", "content", "tool_calls", "tool_call_id"}
        if unknown or message.role == "system":
            raise ValueError(
                f"message {number}: {'unknown field ' + min(unknown) if unknown else 'role system'}"
            )
        open_calls = _pair(number, message, open_calls)
        messages.append(message)
    if open_calls:
        raise ValueError(f"message {len(messages)}: no result for the tool call {open_calls[0]!r}")
    return tuple(messages)


def _pair(number: int, message: Message, open_calls: list[str]) -> list[str]:
    if message.role == "tool":
        if message.tool_call_id not in open_calls:
            raise ValueError(
                f"message {number}: a result for {message.tool_call_id!r}, which no message before it calls"
            )
        return [call for call in open_calls if call != message.tool_call_id]
    if open_calls:
        raise ValueError(f"message {number}: no result for the tool call {open_calls[0]!r} before it")
    return [call.id for call in message.tool_calls]
