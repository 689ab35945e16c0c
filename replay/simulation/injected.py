"""The faults of a simulation: those of a process's log, and those of the process as a whole.

Each is plain data with a place (process, operation, call), so that a schedule can be stored, played again and shrunk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

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
    StaleRead,
)

Kind = Literal[
    "conflict",
    "crash",
    "crash-after",
    "delay",
    "delay-after",
    "duplicate",
    "freeze",
    "freeze-after",
    "late-append",
    "lost-ack",
    "outage",
    "refused",
    "stale-read",
    "stall",
]
KINDS: tuple[Kind, ...] = Kind.__args__  # type: ignore[attr-defined] # a Literal has them


class Injected(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fault: at the `call`-th (1, 2, ...) call of `operation` on the process's log.

    `amount` is in seconds: the length of the fault, or the timeout of a lost reply; for a stale read it is a position
    of the log. A `freeze` stops the whole process, and with `cut_off` its connection is considered dead meanwhile; a
    `stall` delays only its log operations.
    """

    process: str
    operation: str
    call: int
    kind: Kind
    amount: float = 0.0
    cut_off: bool = False

    def __str__(self) -> str:
        lasts = f" {self.amount:.2f} s" if self.amount and self.kind != "stale-read" else ""
        knows = f" up to position {self.amount:.0f}" if self.kind == "stale-read" else ""
        cut = ", cut off" if self.cut_off else ""
        return f"{self.process}: {self.kind}{lasts}{knows}{cut} at {self.operation} {self.call}"

    def fault(self) -> Fault | None:
        """Return the fault of the log; None if the process itself carries it out."""
        make = _MADE.get(self.kind)
        return make(self) if make is not None else None


_MADE: dict[str, Callable[[Injected], Fault]] = {
    "conflict": lambda it: SpuriousConflict(it.call, it.operation),
    "crash": lambda it: CrashAt(it.call, it.operation),
    "crash-after": lambda it: CrashAt(it.call, it.operation, after=True),
    "delay": lambda it: Delay(it.call, it.operation, it.amount),
    "delay-after": lambda it: Delay(it.call, it.operation, it.amount, after=True),
    "duplicate": lambda it: DuplicateDelivery(it.call, it.operation),
    "late-append": lambda it: LateAppend(it.call, it.operation),
    "lost-ack": lambda it: LostAck(it.call, it.operation),
    "outage": lambda it: Outage(it.call, it.operation, it.amount),
    "refused": lambda it: Refused(it.call, it.operation),
    "stale-read": lambda it: StaleRead(it.call, it.operation, int(it.amount)),
}
