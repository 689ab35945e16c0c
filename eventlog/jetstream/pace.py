"""How many messages a batch is worth, measured while the appends of a stream go on.

A server that syncs needs an fsync for a message and some four for a batch, however long. One that does not sync needs
next to nothing for a message, and for a batch still three. So the break-even lies anywhere between five messages and a
few hundred, and moves with the disk.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median

WORTH = 8.0
"""Until both are measured."""
WORTH_MIN, WORTH_MAX = 4.0, 256.0
HALF_LIFE_S = 5.0
"""A batch that was measured as dear counts as cheaper the longer ago that is, until one is tried again."""

_SINGLES = 64
"""How many measurements of a message are kept. Answers arrive in clusters, so that only the mean of many is right."""
_BATCHES = 5
"""How many measurements of a batch are kept; the median counts."""


class Pace:
    """Seconds that the server takes for a message and for a batch. Times are monotonic.

    Only what waited at the server behind something else tells how long the server takes: from the end of the one to the
    end of the other. The time of a lone message is mostly the way there and back.
    """

    def __init__(self) -> None:
        self._singles = deque([0.0] * _SINGLES)
        self._singles_s = self._batch_s = 0.0
        self._batches = deque[float](maxlen=_BATCHES)
        self._stored_at = self._batched_at = 0.0

    def worth(self, now: float) -> float:
        """From how many messages on a batch is quicker than one message after the other."""
        if not self._singles[0] or not self._batch_s:
            return WORTH
        faded_s = self._batch_s * math.pow(0.5, (now - self._batched_at) / HALF_LIFE_S)
        return min(max(faded_s * _SINGLES / self._singles_s, WORTH_MIN), WORTH_MAX)

    def stored(self, sent_at: float, now: float, *, batch: bool) -> None:
        """Something that was sent was stored."""
        took_s = now - max(sent_at, self._stored_at)
        if batch:
            self._batches.append(took_s)
            self._batch_s = median(self._batches)
            self._batched_at = now
        elif sent_at < self._stored_at:
            self._singles.append(took_s)
            self._singles_s += took_s - self._singles.popleft()
        self._stored_at = now
