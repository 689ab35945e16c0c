"""Time and identity as ports: the only module that touches a clock or dice."""

from __future__ import annotations

import secrets
import time
from typing import Protocol

_DIGITS = "0123456789abcdefghijklmnopqrstuv"
_DIGIT_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]
_SHIFTS = range(120, -1, -10)


class Clock(Protocol):
    """Wall and monotonic time apart, and waiting. A simulation puts its own here."""

    def now(self) -> float:
        """Wall time in Unix seconds UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin; never goes back. For leases and time-outs."""
        ...

    async def sleep(self, delay_s: float) -> None:
        """Return after `delay_s` seconds (at once when it is not positive)."""
        ...

    def new_id(self) -> str:
        """A fresh id of 26 characters `[0-9a-z]`, unique, and sortable by the millisecond of its making."""
        ...


class SystemClock:
    """The machine's clock and its source of randomness."""

    def now(self) -> float:
        """Wall time in Unix seconds UTC."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin."""
        return time.monotonic()

    async def sleep(self, delay_s: float) -> None:
        """Return after `delay_s` seconds."""
        import asyncio  # what only decides about events does without

        await asyncio.sleep(max(0.0, delay_s))

    def new_id(self) -> str:
        """48 bits of milliseconds and 80 random bits, in base32hex, whose digits sort as their values do."""
        random = int.from_bytes(secrets.token_bytes(10), "big")
        number = int(time.time() * 1000) << 82 | random << 2
        return "".join([_DIGIT_PAIRS[number >> shift & 0x3FF] for shift in _SHIFTS])
