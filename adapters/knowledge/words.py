"""Split a text into words for the index; scripts without spaces are split into characters.

A sequence of Chinese or Japanese characters is indexed character by character and queried by pairs of adjacent ones, so
that a text is found by any part of it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

QUERY_WORDS_MAX = 64
_UNSPACED = (
    "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
)
_CHARACTER = re.compile(f"[{_UNSPACED}]")
_WORD = re.compile(r"\w+")
_PART = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")


def spaced(text: str) -> str:
    """Return the text in the form that is indexed."""
    return _CHARACTER.sub(r" \g<0> ", text)


def match_of(query: str) -> str:
    """Return an FTS5 query that matches any word of the text; empty for a text without words."""
    words = list(dict.fromkeys(_words(query.lower())))[:QUERY_WORDS_MAX]
    return " OR ".join(f'"{word}"' for word in words)


def _words(text: str) -> Iterator[str]:
    for word in _WORD.findall(text):
        for part in _PART.findall(word):
            if _CHARACTER.match(part) and len(part) > 1:
                yield from (f"{first} {second}" for first, second in itertools.pairwise(part))
            else:
                yield part
