"""Suggestions for an unknown key or name: the known one that it may mean."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(word: str, known: Iterable[str], likeness: float = 0.5) -> str | None:
    """Return the most similar known word, ignoring case; null if none is as similar as `likeness` (0 to 1)."""
    folded = {each.casefold(): each for each in known}
    found = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=likeness)
    return folded[found[0]] if found else None


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown word: the known one it may mean, or all known ones."""
    known = list(known)
    if (found := near(word, known)) is not None:
        return f"; did you mean {found!r}?"
    return f"; known are {', '.join(map(repr, known))}" if known else ""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the message for an unknown name: the one it may mean, and all known names of its kind."""
    known = sorted(set(known))
    meant = near(name, known)
    hint = "" if meant is None else f"did you mean {meant!r}? "
    return f"there is no {kind} {name!r}; {hint}known: {', '.join(known) or 'none'}"
