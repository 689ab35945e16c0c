"""Rates: a token bucket for each hook, in each process."""

from __future__ import annotations

import math
import re

from ...eventlog.errors import ConfigError

_RATE = re.compile(r"([1-9]\d{0,5})/(s|m|h)")
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0}


class Rate:
    """At most so many requests in a second, minute or hour, as `"10/s"`, that may also come at once."""

    def __init__(self, text: str, where: str) -> None:
        found = _RATE.fullmatch(text)
        if found is None:
            raise ConfigError(f'{where}: a rate is a number per s, m or h, such as "10/s", not {text!r:.40}')
        self._most = float(found[1])
        self._per_s = self._most / _UNIT_S[found[2]]
        self._left, self._at = self._most, 0.0

    def wait_s(self, now: float) -> int:
        """Count a request made now; return 0 if it may be served, else the seconds until one may be."""
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._per_s)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0
        return math.ceil((1 - self._left) / self._per_s)
