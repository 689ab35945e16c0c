"""The break-even of group commit: the number of messages from which a batch is faster, measured during operation.

A server that syncs needs one fsync for a message and about four for a batch of any length. A server that does not sync
needs almost nothing for a message, but still about three for a batch. So the break-even is anywhere between five
messages and a few hundred, and changes with the load of the disk.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median

WORTH = 8.0
"""The break-even until both times are measured."""
WORTH_MIN, WORTH_MAX = 4.0, 256.0
HALF_LIFE_S = 5.0
"""The measured time of a batch is halved after each such period, so that an expensive one is tried again some time."""
_SINGLES = 64
"""The number of measurements of messages that are kept. Replies arrive in groups, so only the mean of many is right."""
_BATCHES = 5
"""The number of measurements of batches that are kept; their median counts."""


class Pace:
    """The seconds that the server takes for a message and for a batch. Times are monotonic.

    A message is measured only if it waited at the server for another one: from the end of that one to its own end. The
    time of a lone message would be mostly the round trip.
    """

    def __init__(self) -> None:
        self._singles = deque([0.0] * _SINGLES)
        self._singles_s = self._batch_s = 0.0
        self._batches = deque[float](maxlen=_BATCHES)
        self._stored_at = self._batched_at = 0.0

    def worth(self, now: float) -> float:
        """Return the number of messages from which a batch is faster than single messages."""
        if not self._singles[0] or not self._batch_s:
            return WORTH
        faded_s = self._batch_s * math.pow(0.5, (now - self._batched_at) / HALF_LIFE_S)
        return min(max(faded_s * _SINGLES / self._singles_s, WORTH_MIN), WORTH_MAX)

    def stored(self, sent_at: float, now: float, *, batch: bool) -> None:
        """Record that a message or batch was stored."""
        took_s = now - max(sent_at, self._stored_at)
        if batch:
            self._batches.append(took_s)
            self._batch_s = median(self._batches)
            self._batched_at = now
        elif sent_at < self._stored_at:
            self._singles.append(took_s)
            self._singles_s += took_s - self._singles.popleft()
        self._stored_at = now
