"""Snapshots in memory."""

from __future__ import annotations

from anyio.lowlevel import checkpoint


class MemorySnapshots:
    """`Snapshots` in memory. `kept` may be changed, as whatever befalls a cache."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def put(self, run: str, data: bytes) -> None:
        """Keep this for the run, in place of what was kept before."""
        await checkpoint()
        self.kept[run] = bytes(data)

    async def get(self, run: str) -> bytes | None:
        """What was put last."""
        await checkpoint()
        return self.kept.get(run)
