"""Rate limits: a token bucket per hook and process."""

from __future__ import annotations

import math
import re

from ...eventlog.errors import ConfigError

_RATE = re.compile(r"([1-9]\d{0,5})/(s|m|h)")
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0}


class Rate:
    """A token bucket from a text such as `"10/s"` (or `m`, `h`), whose burst is the same number of requests.

    Raises `ConfigError` for another text; `where` names its place.
    """

    def __init__(self, text: str, where: str) -> None:
        found = _RATE.fullmatch(text)
        if found is None:
            raise ConfigError(f'{where}: a rate is a number per s, m or h, such as "10/s", not {text!r:.40}')
        self._most = float(found[1])
        self._per_s = self._most / _UNIT_S[found[2]]
        self._left, self._at = self._most, 0.0

    def wait_s(self, now: float) -> int:
        """Take a token at `now` (seconds) and return 0; if there is none, return the whole seconds until there is."""
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._per_s)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0
        return math.ceil((1 - self._left) / self._per_s)
