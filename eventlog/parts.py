"""Content parts: the pieces of a message or a tool result that is more than one text.

The bytes of a file are never in an event. They are an artifact, named by its SHA-256, which is stored before the commit
that refers to it. A file at a URL has no artifact: the provider fetches it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class TextPart(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="type", tag="text"):
    """A text."""

    text: str


class FilePart(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    gc=False,
    tag_field="type",
    tag="file",
):
    """A file: its artifact (SHA-256, hex) and size, or its URL.

    `detail` is the level of detail of an image (low, high, auto), in the provider's words; empty for the provider's
    default. `tokens` is the size of the file in a prompt by the rule of the provider that was called first; None if it
    does not publish one.
    """

    media_type: str
    name: str = ""
    artifact: str | None = None
    url: str | None = None
    bytes: int = 0
    detail: str = ""
    tokens: int | None = None

    def __str__(self) -> str:
        """Return name, type and size, as text that can replace the file."""
        named = self.name or self.url or "file"
        size = f", {self.bytes:,} bytes" if self.bytes else ""
        return f"{named} ({self.media_type}{size})"


Part = TextPart | FilePart
"""A part of the content of a message."""


def text_of(parts: Iterable[Part]) -> str:
    """Return the text of all text parts, joined by newlines."""
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


def files_of(parts: Iterable[Part]) -> list[FilePart]:
    """Return the files among the parts, in order."""
    return [part for part in parts if isinstance(part, FilePart)]
