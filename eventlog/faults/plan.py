"""Which faults there are, and at which operation each happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

ANY = "*"
"""Stands for every operation."""


class Crash(BaseException):
    """The process of this wrapper is dead. No `except Exception` survives it."""


class LostAck(msgspec.Struct, frozen=True):
    """It takes effect, but the caller hears nothing."""

    call: int
    operation: str = "events.append"


class LateAppend(msgspec.Struct, frozen=True):
    """The caller hears nothing; it takes effect, or is refused, only when the test calls `release`."""

    call: int
    operation: str = "events.append"


class Refused(msgspec.Struct, frozen=True):
    """The caller hears nothing, and nothing happens."""

    call: int
    operation: str = "events.append"


class SpuriousConflict(msgspec.Struct, frozen=True):
    """The log says `Conflict` although the condition holds, as replicas do while another append is in flight."""

    call: int
    operation: str = "events.append"


class Delay(msgspec.Struct, frozen=True):
    """It takes `delay_s` longer to take effect, or, with `after`, to be answered."""

    call: int
    operation: str = "events.append"
    delay_s: float = 1.0
    after: bool = False


class Outage(msgspec.Struct, frozen=True):
    """From here on nothing gets through, for `duration_s` or (None) until `release`; streams wait, calls raise."""

    call: int
    operation: str = ANY
    duration_s: float | None = None


class StaleRead(msgspec.Struct, frozen=True):
    """From here until `release`, `read`, `head` and `find` know only commits up to `position`."""

    call: int
    operation: str = "events.read"
    position: int = 0


class DuplicateDelivery(msgspec.Struct, frozen=True):
    """A stream hands out the same item twice."""

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
"""What happens to (operation, its count, count of all): the faults of a list, or whatever a simulation draws."""


def plan_of(faults: Iterable[Fault]) -> Plan:
    """The plan in which each fault happens where it says. Raises `ValueError` for two at one place."""
    places: dict[tuple[str, int], Fault] = {}
    for fault in faults:
        if places.setdefault((fault.operation, fault.call), fault) is not fault:
            raise ValueError(f"two faults are planned for call {fault.call} of {fault.operation}")
    return lambda operation, call, number: places.get((operation, call)) or places.get((ANY, number))
