"""Faults in one line of text: `crash@5,lost-ack@7,duplicate`.

    NAME            at the first operation that the fault applies to
    NAME@N          at the N-th
    NAME@N:PORT.METHOD   at the N-th of this operation (`events.append`, `wakeups.pull`, ...)

`crash`, `crash-after` and `outage` count all operations of the worker's log, the others those of their own kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.faults import (
    CrashAt,
    Delay,
    DuplicateDelivery,
    Fault,
    LateAppend,
    LostAck,
    Outage,
    Refused,
    SpuriousConflict,
    plan_of,
)
from ...runtime.ports.suggestions import unknown

SHORT_S = 0.05
"""The length of an outage and a delay that are written as text, in seconds."""

_MADE: dict[str, Callable[[int], Fault]] = {
    "crash": CrashAt,
    "crash-after": lambda call: CrashAt(call, after=True),
    "lost-ack": LostAck,
    "late-append": LateAppend,
    "refused": Refused,
    "conflict": SpuriousConflict,
    "delay": lambda call: Delay(call, delay_s=SHORT_S),
    "outage": lambda call: Outage(call, duration_s=SHORT_S),
    "duplicate": DuplicateDelivery,
}
FAULT_NAMES = tuple(_MADE)
"""The names that a specification may use."""

FaultsLike = str | Iterable[Fault | str] | None
"""Text, faults of `foldlog.eventlog.faults`, or a mixture of both."""


def parse_faults(faults: FaultsLike) -> tuple[Fault, ...]:
    """Return the faults of a specification, in its order.

    Raises `ConfigError` for an unknown name, an invalid number, and two faults at one place.
    """
    if faults is None:
        return ()
    given = faults.split(",") if isinstance(faults, str) else list(faults)
    found = tuple(_fault(each) if isinstance(each, str) else each for each in given if each not in {"", " "})
    try:
        plan_of(found)
    except ValueError as error:
        raise ConfigError(f"faults: {error}") from None
    return found


def _fault(text: str) -> Fault:
    name, _, place = text.strip().partition("@")
    number, _, operation = place.partition(":")
    if name not in _MADE:
        raise ConfigError(f"faults: {unknown('fault', name, _MADE)}")
    if place and not (number.isdecimal() and int(number) > 0):
        raise ConfigError(
            f"faults: {text.strip()!r}: the number of the operation must be 1, 2, ..., not {number!r}"
        )
    fault = _MADE[name](int(number) if number else 1)
    return _at(fault, operation) if operation else fault


def _at(fault: Fault, operation: str) -> Fault:
    return msgspec.structs.replace(fault, operation=operation)


def describe(fault: Fault) -> str:
    """Return the fault as text, as `parse_faults` reads it."""
    names: dict[type, str] = {type(make(1)): name for name, make in _MADE.items() if name != "crash-after"}
    after = "-after" if isinstance(fault, CrashAt) and fault.after else ""
    default = type(fault)(1).operation
    where = "" if fault.operation == default else f":{fault.operation}"
    return f"{names.get(type(fault), type(fault).__name__)}{after}@{fault.call}{where}"
