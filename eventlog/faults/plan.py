"""The types of faults, and the plan of the operations at which they happen."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

ANY = "*"
"""Matches every operation."""


class Crash(BaseException):
    """The process of this wrapper is dead. It is not caught by `except Exception`."""


class LostAck(msgspec.Struct, frozen=True):
    """The operation takes effect, but the caller gets no reply."""

    call: int
    operation: str = "events.append"


class LateAppend(msgspec.Struct, frozen=True):
    """The caller gets no reply; the operation takes effect, or is refused, only when the test calls `release`."""

    call: int
    operation: str = "events.append"


class Refused(msgspec.Struct, frozen=True):
    """The operation does not take effect, and the caller gets no reply."""

    call: int
    operation: str = "events.append"


class SpuriousConflict(msgspec.Struct, frozen=True):
    """The log raises `Conflict` although the condition holds, as replicas do while another append is in flight."""

    call: int
    operation: str = "events.append"


class Delay(msgspec.Struct, frozen=True):
    """The operation takes effect `delay_s` later, or, with `after`, the reply comes later."""

    call: int
    operation: str = "events.append"
    delay_s: float = 1.0
    after: bool = False


class Outage(msgspec.Struct, frozen=True):
    """From here on the log is unavailable, for `duration_s` or (None) until `release`; streams wait, calls raise."""

    call: int
    operation: str = ANY
    duration_s: float | None = None


class StaleRead(msgspec.Struct, frozen=True):
    """From here until `release`, `read`, `head` and `find` return only commits up to `position`."""

    call: int
    operation: str = "events.read"
    position: int = 0


class DuplicateDelivery(msgspec.Struct, frozen=True):
    """A stream yields the same item twice."""

    call: int
    operation: str = "wakeups.pull"


class CrashAt(msgspec.Struct, frozen=True):
    """The process dies just before the operation takes effect, or just `after`."""

    call: int
    operation: str = ANY
    after: bool = False


Fault = (
    LostAck
    | LateAppend
    | Refused
    | SpuriousConflict
    | Delay
    | Outage
    | StaleRead
    | DuplicateDelivery
    | CrashAt
)
Plan = Callable[[str, int, int], Fault | None]
"""Returns the fault for (operation, its count, count of all): from a list, or drawn by a simulation."""


def plan_of(faults: Iterable[Fault]) -> Plan:
    """Return the plan with these faults. Raises `ValueError` for two at one place."""
    places: dict[tuple[str, int], Fault] = {}
    for fault in faults:
        if places.setdefault((fault.operation, fault.call), fault) is not fault:
            raise ValueError(f"two faults are planned for call {fault.call} of {fault.operation}")
    return lambda operation, call, number: places.get((operation, call)) or places.get((ANY, number))
