"""Regular expressions of flows and schemas: RE2 searches in time that grows with the text alone.

What an agent says is searched by the worker itself, with its event loop held, and decides what is next, so the answer
must not depend on how busy it is. Python's own engine takes exponential time for expressions like `(a+)+$`. RE2 does
not, and has no look-around and no back-references.
"""

from __future__ import annotations

import functools
from collections.abc import Callable


def problem_of(pattern: str) -> str | None:
    """Why this is not a regular expression; null if it is one."""
    try:
        _searching(pattern, ignore_case=False)
    except (ValueError, OverflowError, RecursionError) as error:
        return str(error)
    return None


def is_found(pattern: str, text: str, *, ignore_case: bool = False) -> bool:
    """Return whether the regular expression is found in the text."""
    return _searching(pattern, ignore_case=ignore_case)(text)


@functools.lru_cache(maxsize=256)
def _searching(pattern: str, *, ignore_case: bool) -> Callable[[str], bool]:
    """Raises `ValueError`."""
    import re2  # most flows have no regular expression

    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    try:  # with bytes it does not count characters to say where
        found = re2.compile(pattern.encode(), options)
    except re2.error as error:
        raise ValueError(_told(error)) from None
    return lambda text: found.search(text.encode(errors="replace")) is not None


def _told(error: Exception) -> str:
    """What RE2 says, in bytes."""
    why = error.args[0] if error.args else b""
    told = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
    return f"{told} (the syntax is that of RE2: without look-around and back-references)"
