"""Split a text into pieces of as many whole paragraphs as fit; a paragraph that is too long is split itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

PIECE_CHARACTERS_MAX = 2000
_BLANK_LINES = re.compile(r"\n[ \t\r]*\n\s*")
_SENTENCE_END = re.compile(r".*[.!?]\s", re.DOTALL)
_WORD_END = re.compile(r".*\s", re.DOTALL)


def pieces_of(text: str, characters_max: int = PIECE_CHARACTERS_MAX) -> Iterator[str]:
    """Yield the text in order, in pieces of at most `characters_max`; white space around a piece is stripped."""
    piece = ""
    for paragraph in _paragraphs(text, characters_max):
        joined = f"{piece}\n\n{paragraph}" if piece else paragraph
        if len(joined) > characters_max:
            yield piece
            joined = paragraph
        piece = joined
    if piece:
        yield piece


def _paragraphs(text: str, characters_max: int) -> Iterator[str]:
    for paragraph in _BLANK_LINES.split(text.strip()):
        rest = paragraph.strip()
        while len(rest) > characters_max:
            cut = _cut(rest[: characters_max + 1])
            yield rest[:cut].strip()
            rest = rest[cut:].strip()
        if rest:
            yield rest


def _cut(start: str) -> int:
    """Return where to cut: after the last sentence that fits, else after the last word, else anywhere."""
    found = _SENTENCE_END.match(start) or _WORD_END.match(start)
    return found.end() if found and start[: found.end()].strip() else len(start) - 1
