"""Time and ids as a port: the only module that reads a clock or a source of randomness."""

from __future__ import annotations

import secrets
import time
from typing import Protocol

_DIGITS = "0123456789abcdefghijklmnopqrstuv"
_DIGIT_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]
_SHIFTS = range(120, -1, -10)


class Clock(Protocol):
    """Wall time, monotonic time, waiting, and ids. A simulation has its own."""

    def now(self) -> float:
        """Return the wall time in Unix seconds UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary origin; it never goes back. For leases and timeouts."""
        ...

    async def sleep(self, delay_s: float) -> None:
        """Return after `delay_s` seconds (at once if it is not positive)."""
        ...

    def new_id(self) -> str:
        """Return a new unique id of 26 characters `[0-9a-z]`, sortable by the millisecond of its creation."""
        ...


class SystemClock:
    """The machine's clock and its source of randomness."""

    def now(self) -> float:
        """Return the wall time in Unix seconds UTC."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds since an arbitrary origin."""
        return time.monotonic()

    async def sleep(self, delay_s: float) -> None:
        """Return after `delay_s` seconds."""
        import asyncio  # imported here because the pure core must not load it

        await asyncio.sleep(max(0.0, delay_s))

    def new_id(self) -> str:
        """Return 48 bits of milliseconds and 80 random bits, in base32hex, whose digits sort like their values."""
        random = int.from_bytes(secrets.token_bytes(10), "big")
        number = int(time.time() * 1000) << 82 | random << 2
        return "".join([_DIGIT_PAIRS[number >> shift & 0x3FF] for shift in _SHIFTS])
