"""How many tokens messages take: what the provider reported as far as it goes, and a count of what came since.

A count by a tokenizer depends on what is installed where. Whoever decides by one stores it; the estimate is the same
everywhere, and may be computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from ..eventlog.parts import FilePart, files_of
from .messages import Message, canonical_json

BYTES_PER_TOKEN = 4
TokenSource = Literal["provider", "tiktoken", "estimate"]
UsageSource = Literal["provider", "estimate"]
"""Who counted the tokens of a `usage` event."""


class TokenCount(msgspec.Struct, frozen=True):
    """A number of tokens, and how the least certain part of it is known."""

    tokens: int
    source: TokenSource


def estimate_tokens(text: str) -> int:
    """One token for every four bytes of UTF-8, rounded up."""
    size = len(text) if text.isascii() else len(text.encode(errors="replace"))
    return -(-size // BYTES_PER_TOKEN)


def message_tokens(message: Message, count: Callable[[str], int] = estimate_tokens) -> int:
    """The tokens of one message: its text, its calls and files, and what its provider wants back."""
    tokens = count(message.content) + sum(map(file_tokens, files_of(message.parts)))
    if message.reply_state is not None:
        tokens += count(canonical_json(message.reply_state.items).decode())
    for call in message.tool_calls:
        tokens += count(call.name) + count(call.arguments)
    return tokens


def file_tokens(file: FilePart) -> int:
    """The tokens of a file: by the rule of the provider, where there is one, else one for every four bytes."""
    return file.tokens if file.tokens is not None else -(-file.bytes // BYTES_PER_TOKEN)


def messages_tokens(messages: Iterable[Message], count: Callable[[str], int] = estimate_tokens) -> int:
    """The tokens of all messages together."""
    return sum(message_tokens(message, count) for message in messages)


def context_tokens(
    messages: Sequence[Message],
    *,
    reported: int | None = None,
    covered: int = 0,
    count: Callable[[str], int] = estimate_tokens,
    source: TokenSource = "estimate",
) -> TokenCount:
    """The tokens of a prompt. `reported`: what a provider said that the first `covered` messages take, null if never.

    `count` counts the text of the others; `source` says what it is.
    """
    if reported is None:
        return TokenCount(messages_tokens(messages, count), source)
    rest = messages[covered:]
    return TokenCount(reported + messages_tokens(rest, count), source if rest else "provider")
