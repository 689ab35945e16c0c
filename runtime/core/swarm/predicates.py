"""The predicates of a flow on an output: plain data, or the name of a function that the process knows.

    "bug"               the output is this text, apart from white space around it
    contains "TODO"     the text occurs in the output
    /bug|crash/i        the regular expression (RE2's) is found in the output; i ignores case
    .review.ok          the output is JSON, and the value at this path is true
    .score >= 0.8       the same, compared with a string, a number, true, false or null: == != < <= > >=
    is_urgent           the function of this name returns true
    not contains "TODO" the opposite

All but functions are total: if the output is not JSON, or lacks the path, the value is null; `<` and the like are
false for values that cannot be ordered.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Literal, assert_never

import msgspec

from ...ports.patterns import is_found
from ..paths import Nowhere, Path, format_path, value_at

Test = Callable[[str], bool | Awaitable[bool]]
"""A named predicate: a function of the output's text. Its value is stored, so a takeover does not call it again."""

Operator = Literal["==", "!=", "<", "<=", ">", ">="]
Scalar = str | int | float | bool | None


class Is(msgspec.Struct, frozen=True, tag="is"):
    """The output is `text`, apart from white space around it."""

    text: str


class Contains(msgspec.Struct, frozen=True, tag="contains"):
    """`text` occurs in the output."""

    text: str


class Matches(msgspec.Struct, frozen=True, tag="matches"):
    """The regular expression is found in the output."""

    pattern: str
    ignore_case: bool = False


class At(msgspec.Struct, frozen=True, tag="at"):
    """The value at `path` (keys and indexes) of the output's JSON, compared with `value`."""

    path: Path
    operator: Operator = "=="
    value: Scalar = True


class Named(msgspec.Struct, frozen=True, tag="named"):
    """The function of this name returns true."""

    name: str


Data = Is | Contains | Matches | At
Simple = Data | Named


class Not(msgspec.Struct, frozen=True, tag="not"):
    """The opposite of `predicate`."""

    predicate: Simple


Predicate = Simple | Not


def holds(predicate: Data, output: str) -> bool:
    """Return whether the output meets a predicate that is data."""
    match predicate:
        case Is(text=text):
            return output.strip() == text.strip()
        case Contains(text=text):
            return text in output
        case Matches(pattern=pattern, ignore_case=ignore_case):
            return is_found(pattern, output, ignore_case=ignore_case)
        case At():
            return _compare(_found_at(predicate.path, output), predicate.operator, predicate.value)
        case _:
            assert_never(predicate)


def named_in(predicate: Predicate) -> frozenset[str]:
    """Return the names of the functions that the predicate calls."""
    match predicate:
        case Named(name=name):
            return frozenset({name})
        case Not(predicate=inner):
            return named_in(inner)
        case _:
            return frozenset()


def format_predicate(predicate: Predicate) -> str:
    """Return the predicate as it is written in a flow."""
    match predicate:
        case Is(text=text):
            return _quoted(text)
        case Contains(text=text):
            return f"contains {_quoted(text)}"
        case Matches(pattern=pattern, ignore_case=ignore_case):
            # The slash ends the pattern, so it is escaped; a pair that begins with a backslash is left as it is.
            escaped = re.sub(r"\\.|/", lambda found: r"\/" if found[0] == "/" else found[0], pattern)
            return f"/{escaped}/{'i' if ignore_case else ''}"
        case At(path=path, operator="==", value=True):
            return format_path(path)
        case At(path=path, operator=operator, value=value):
            return f"{format_path(path)} {operator} {msgspec.json.encode(value).decode()}"
        case Named(name=name):
            return name
        case Not(predicate=inner):
            return f"not {format_predicate(inner)}"
        case _:
            assert_never(predicate)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _found_at(path: Path, output: str) -> Any:
    try:
        return value_at(msgspec.json.decode(output), path)
    except (msgspec.DecodeError, RecursionError, Nowhere):
        return None


def _compare(found: Any, operator: Operator, value: Scalar) -> bool:
    match operator:
        case "==":
            return _same(found, value)
        case "!=":
            return not _same(found, value)
        case "<":
            return _ordered(found, value) and found < value
        case "<=":
            return _ordered(found, value) and found <= value
        case ">":
            return _ordered(found, value) and found > value
        case ">=":
            return _ordered(found, value) and found >= value
        case _:
            assert_never(operator)


def _same(found: Any, value: Scalar) -> bool:
    """Return whether both are equal as JSON: true is not 1."""
    return isinstance(found, bool) is isinstance(value, bool) and bool(found == value)


def _ordered(found: Any, value: Scalar) -> bool:
    return any(_is_all(kind, found, value) for kind in ((int, float), (str,)))


def _is_all(kinds: tuple[type, ...], *values: Any) -> bool:
    return all(isinstance(value, kinds) and not isinstance(value, bool) for value in values)
