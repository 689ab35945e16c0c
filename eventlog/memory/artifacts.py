"""Artifacts in memory."""

from __future__ import annotations

from anyio.lowlevel import checkpoint

from ..commits import digest_of_bytes


class MemoryArtifacts:
    """`Artifacts` in memory."""

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}

    async def put(self, data: bytes) -> str:
        """Store the bytes and return their digest."""
        await checkpoint()
        digest = digest_of_bytes(data)
        self._data[digest] = bytes(data)
        return digest

    async def get(self, digest: str) -> bytes:
        """Return the bytes. Raises `KeyError` if there are none."""
        await checkpoint()
        return self._data[digest]
