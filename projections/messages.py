"""The messages of a conversation, neutral of any provider, and the hash chain over them."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec


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
