"""Content parts: what a message or a tool result is made of, where it is more than one text.

The bytes of a file are in no event. They are an artifact, named by its SHA-256, which is stored before the commit that
names it. A file at a URL has no artifact: the provider fetches it.
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

    `detail` is how closely the model is to look at an image (low, high, auto), in the provider's words; empty leaves it
    to the provider. `tokens` is what the file takes of a prompt by the rule of the provider that was asked first; null
    where that publishes none.
    """

    media_type: str
    name: str = ""
    artifact: str | None = None
    url: str | None = None
    bytes: int = 0
    detail: str = ""
    tokens: int | None = None

    def __str__(self) -> str:
        """Name, type and size, for people and in the place of the file itself."""
        named = self.name or self.url or "file"
        size = f", {self.bytes:,} bytes" if self.bytes else ""
        return f"{named} ({self.media_type}{size})"


Part = TextPart | FilePart
"""A part of the content of a message."""


def text_of(parts: Iterable[Part]) -> str:
    """The text of all text parts, each on lines of its own."""
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


def files_of(parts: Iterable[Part]) -> list[FilePart]:
    """The files among the parts, in their order."""
    return [part for part in parts if isinstance(part, FilePart)]
