"""Snapshots in memory."""

from __future__ import annotations

from .waiting import checkpoint


class MemorySnapshots:
    """`Snapshots` in memory. Tests may change `kept`, because a cache may lose or damage its values."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def put(self, run: str, data: bytes) -> None:
        """Store the value for the run, replacing any other."""
        await checkpoint()
        self.kept[run] = bytes(data)

    async def purge(self, run: str) -> None:
        """Remove the value of the run."""
        await checkpoint()
        self.kept.pop(run, None)

    async def get(self, run: str) -> bytes | None:
        """Return the last value, None if there is none."""
        await checkpoint()
        return self.kept.get(run)
