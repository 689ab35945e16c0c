"""The positions of everything that a shard stores."""

from __future__ import annotations


class Positions:
    """One counter for each shard."""

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self._last = [0] * shards

    def reach(self, shard: int, position: int) -> None:
        """Go on after this position. Raises `ValueError` for one that was reached already."""
        if position <= self._last[shard]:
            raise ValueError(f"position {position} of shard {shard} was reached already")
        self._last[shard] = position

    def next(self, shard: int) -> int:
        """Return the next position of the shard, from 1. Raises `ValueError` for a shard that does not exist."""
        if not 0 <= shard < self.shards:
            raise ValueError(f"there is no shard {shard}: the namespace has {self.shards}")
        self._last[shard] += 1
        return self._last[shard]
