"""The number of tokens of messages: the provider's report as far as it goes, plus a count of the messages after it.

A tokenizer's count depends on what is installed in the process, so a decision that uses one stores it. The estimate is
the same everywhere and may be computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from ..eventlog.parts import FilePart, files_of
from .messages import Message, canonical_json

BYTES_PER_TOKEN = 4
IMAGE_TOKENS_MAX = 2000
"""More than most models take for a picture of any size: the cap where the model's own rule is not known."""
TokenSource = Literal["provider", "tiktoken", "estimate"]
UsageSource = Literal["provider", "estimate"]
"""The source of the token counts in a `usage` event."""


class TokenCount(msgspec.Struct, frozen=True):
    """A number of tokens, with the source of its least certain part."""

    tokens: int
    source: TokenSource


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text: one for every four bytes of UTF-8, rounded up."""
    size = len(text) if text.isascii() else len(text.encode(errors="replace"))
    return -(-size // BYTES_PER_TOKEN)


def message_tokens(message: Message, count: Callable[[str], int] = estimate_tokens) -> int:
    """Count the tokens of one message: its text, its calls and files, and the provider's state."""
    tokens = count(message.content) + sum(map(file_tokens, files_of(message.parts)))
    if message.reply_state is not None:
        tokens += count(canonical_json(message.reply_state.items).decode())
    for call in message.tool_calls:
        tokens += count(call.name) + count(call.arguments)
    return tokens


def file_tokens(file: FilePart) -> int:
    """Count the tokens of a file: by the provider's rule if there is one, otherwise one for every four bytes.

    A picture counts at most `IMAGE_TOKENS_MAX`: providers scale it down, however many bytes it has.
    """
    if file.tokens is not None:
        return file.tokens
    tokens = -(-file.bytes // BYTES_PER_TOKEN)
    return min(tokens, IMAGE_TOKENS_MAX) if file.media_type.startswith("image/") else tokens


def messages_tokens(messages: Iterable[Message], count: Callable[[str], int] = estimate_tokens) -> int:
    """Count the tokens of all messages."""
    return sum(message_tokens(message, count) for message in messages)


def context_tokens(
    messages: Sequence[Message],
    *,
    reported: int | None = None,
    covered: int = 0,
    count: Callable[[str], int] = estimate_tokens,
    source: TokenSource = "estimate",
) -> TokenCount:
    """Count the tokens of a prompt. `reported`: the provider's count of the first `covered` messages, None if unknown.

    `count` counts the text of the others; `source` is its kind.
    """
    if reported is None:
        return TokenCount(messages_tokens(messages, count), source)
    rest = messages[covered:]
    return TokenCount(reported + messages_tokens(rest, count), source if rest else "provider")
