"""Compensations of tools: a function of a call's arguments and result, which names the call that undoes it.

    @tool(effect="unsafe", compensate=lambda args, result: refund_back(order=args["order"]))

While such a function is evaluated, a tool that it calls is not run: the call is a value, which a rollback makes a step.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import msgspec

from ...eventlog.errors import ConfigError
from ..ports.json_values import NotJson, as_json

Compensate = Callable[[dict[str, Any], Any], object]
"""Returns the call that undoes a call, from its arguments and its result; null if there is nothing that can."""

_PLANNING: ContextVar[bool] = ContextVar("planning", default=False)


class PlannedCall(msgspec.Struct, frozen=True):
    """A call of a tool that was named and not made."""

    tool: str
    arguments: dict[str, Any]


def is_planning() -> bool:
    """Return whether calls of tools are only named now."""
    return _PLANNING.get()


def planned_call(
    tool: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> PlannedCall:
    """Return the call of a function with these arguments, by their names. Raises `ConfigError`."""
    try:
        bound = inspect.signature(function).bind_partial(*args, **kwargs)
        return PlannedCall(tool, as_json(dict(bound.arguments)))
    except (TypeError, NotJson) as error:
        raise ConfigError(f"it calls {tool!r} wrongly: {error}") from None


def planned_by(compensate: Compensate, arguments: Mapping[str, Any], result: Any) -> PlannedCall | None:
    """Return the call that undoes a call; null for none. Raises `ConfigError`, and what the function raises."""
    token = _PLANNING.set(True)
    try:
        planned = compensate(dict(arguments), result)
    finally:
        _PLANNING.reset(token)
    if planned is None or isinstance(planned, PlannedCall):
        return planned
    if inspect.iscoroutine(planned):
        planned.close()
    raise ConfigError(f"it must return a call of a tool, or None, not {planned!r:.60}")
