"""A check that no shard has lost its end: a damaged store can end early and assign positions again silently.

A server that finds an altered byte in the last block of a stream after a crash drops the rest of the block, and assigns
the freed positions to new messages. A process that was connected before can detect it: the stream ends before a
position that it has seen. Every break of the connection raises the doubt, and the next use of a shard checks it.
"""

from __future__ import annotations

import msgspec

from ..errors import LogCorrupted
from .layout import Layout
from .wire import Wire


class _State(msgspec.Struct, frozen=True):
    last_seq: int


class _Info(msgspec.Struct, frozen=True):
    state: _State


class Witness:
    """The highest position that this process has seen in each shard."""

    def __init__(self, wire: Wire, layout: Layout, shards: int) -> None:
        self._wire, self._layout = wire, layout
        self._seen = [0] * shards
        self._doubted: set[int] = set()
        wire.on_down.add(self._doubt)

    def saw(self, shard: int, position: int) -> None:
        """Note that there is a message at this position."""
        self._seen[shard] = max(self._seen[shard], position)

    def _doubt(self) -> None:
        self._doubted.update(range(len(self._seen)))

    async def settle(self, shard: int) -> None:
        """Check a shard that is in doubt. Raises `LogUnavailable`, and always `LogCorrupted` if it has lost data."""
        if shard in self._doubted:
            await self.examine(shard)
            self._doubted.discard(shard)

    async def examine(self, shard: int) -> None:
        """Compare the last position with that of the server. Raises `LogCorrupted`, `LogUnavailable`."""
        seen = self._seen[shard]
        info = await self._wire.api(f"STREAM.INFO.{self._layout.shard(shard)}", None, _Info)
        if info.state.last_seq < seen:
            self._doubted.add(shard)
            raise LogCorrupted(
                f"(any of shard {shard})",
                0,
                f"the stream ends at position {info.state.last_seq}, but {seen} was stored before",
            )
