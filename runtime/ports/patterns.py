"""Regular expressions of flows and schemas, which RE2 searches in time linear in the text.

The worker searches an agent's output itself, blocking its event loop, and the result decides what is next, so it must
not depend on how busy the worker is. Python's own engine takes exponential time for expressions like `(a+)+$`. RE2 does
not, but supports neither look-around nor back-references.
"""

from __future__ import annotations

import functools
from collections.abc import Callable


def problem_of(pattern: str) -> str | None:
    """Return why this is not a regular expression; null if it is one."""
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
    """Return the search function. Raises `ValueError`."""
    import re2  # most flows have no regular expression

    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    try:  # given bytes, it does not have to count characters
        found = re2.compile(pattern.encode(), options)
    except re2.error as error:
        raise ValueError(_message(error)) from None
    return lambda text: found.search(text.encode(errors="replace")) is not None


def _message(error: Exception) -> str:
    """Return RE2's error message, which comes as bytes."""
    why = error.args[0] if error.args else b""
    text = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
    return f"{text} (the syntax is that of RE2: without look-around and back-references)"
