"""Conditions in CEL, the Common Expression Language: of policies, of workflow tables and of webhooks.

CEL has no loops without an end and no effects, and its regular expressions take time linear in the text, so a process
evaluates conditions in its event loop. They may differ between implementations in rare cases, and the extra may be
missing where a run is replayed. So a decision that depends on one is stored, and never made again by a reader.

The library (extra `cel`) is imported with the first condition.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ...eventlog.errors import ConfigError
from .suggestions import nearest

if TYPE_CHECKING:
    from cel import Program

EXPRESSION_CHARS_MAX = 2_000
"""Longer ones, deeply nested, would not fit on the library's stack."""
_FUNCTIONS = frozenset(
    {
        *("contains", "endsWith", "matches", "size", "startsWith"),
        *("bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"),
        *("getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours"),
        *("getMilliseconds", "getMinutes", "getMonth", "getSeconds"),
    }
)
_OPERATOR = re.compile(r"[^A-Za-z]")
_BOUND = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(\s*([A-Za-z_]\w*)\s*,")
"""The name that a macro such as `list.all(x, x > 0)` binds."""


class ConditionFailed(Exception):
    """A condition cannot be evaluated over these values, such as a missing field or a number compared with a text."""


def installed() -> bool:
    """Return whether the extra that evaluates conditions is installed."""
    return importlib.util.find_spec("cel") is not None


class Condition:
    """An expression that is true or false for some values.

    Raises `ConfigError`, which begins with `where`, for an expression that cannot be parsed, for unknown names and
    functions, and without the extra `cel`.
    """

    __slots__ = ("_program", "text")

    def __init__(self, text: str, where: str, names: Collection[str]) -> None:
        self.text = text
        try:
            self._program = _compiled(text)
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from None
        for name in self.names:
            if name not in names:
                raise ConfigError(f"{where}: {text!r:.100} uses {name!r}{nearest(name, sorted(names))}")
        for name in self._program.functions():
            if not _OPERATOR.match(name) and name not in _FUNCTIONS:
                raise ConfigError(
                    f"{where}: {text!r:.100} calls {name}(), which CEL lacks{nearest(name, _FUNCTIONS)}"
                )

    @property
    def names(self) -> list[str]:
        """The names of the values that it uses."""
        bound = set(_BOUND.findall(self.text))
        return sorted(name for name in self._program.variables() if name not in bound)

    def is_met(self, values: Mapping[str, Any]) -> bool:
        """Return whether the condition is met. `values` are JSON, by name. Raises `ConditionFailed`."""
        try:
            found = self._program.execute(dict(values))
        except Exception as error:  # noqa: BLE001 - the library raises many builtin errors, one for each kind
            raise ConditionFailed(f"{self.text!r:.100}: {_reason(error)}") from None
        if not isinstance(found, bool):
            raise ConditionFailed(
                f"{self.text!r:.100} is neither true nor false but a {type(found).__name__}"
            )
        return found


@functools.lru_cache(maxsize=1_024)
def _compiled(text: str) -> Program:
    """Return the compiled expression. Raises `ValueError`."""
    try:
        import cel  # takes longer than all of foldlog, and most runs have no condition
    except ImportError:
        raise ValueError("a condition needs the extra cel: pip install 'foldlog[cel]'") from None
    if len(text) > EXPRESSION_CHARS_MAX:
        raise ValueError(f"a condition has at most {EXPRESSION_CHARS_MAX:,} characters, not {len(text):,}")
    try:
        return cel.compile(text)
    except ValueError as error:
        problem = str(error).partition("ERROR: <input>:")[2].splitlines()
        at, _, what = (problem[0] if problem else str(error)).partition(": ")
        line, _, column = at.partition(":")
        raise ValueError(f"{text!r:.100} is not CEL: line {line}, column {column}: {what}") from None


def _reason(error: Exception) -> str:
    """Return why an evaluation fails, in one line."""
    if isinstance(error, KeyError):
        return f"there is no {error.args[0]!r}"
    return str(error).splitlines()[0].partition(". ")[0]
