"""Artifacts in memory."""

from __future__ import annotations

from ..commits import digest_of_bytes
from .waiting import checkpoint


class MemoryArtifacts:
    """`Artifacts` in memory."""

    def __init__(self) -> None:
        self._families: dict[str, dict[str, bytes]] = {}

    def of(self, root: str) -> MemoryFamilyArtifacts:
        """Return the artifacts of the family of `root`."""
        return MemoryFamilyArtifacts(self._families, root)

    async def find(self, digest: str) -> bytes:
        """Return the bytes, whatever family has them. Raises `KeyError` if none has."""
        await checkpoint()
        for family in self._families.values():
            if digest in family:
                return family[digest]
        raise KeyError(digest)

    async def purge(self, root: str) -> None:
        """Remove all artifacts of a family."""
        await checkpoint()
        self._families.pop(root, None)


class MemoryFamilyArtifacts:
    """`FamilyArtifacts` in memory."""

    def __init__(self, families: dict[str, dict[str, bytes]], root: str) -> None:
        self._families, self._root = families, root

    async def put(self, data: bytes, digest: str = "") -> str:
        """Store the bytes and return their digest."""
        await checkpoint()
        digest = digest or digest_of_bytes(data)
        self._families.setdefault(self._root, {})[digest] = bytes(data)
        return digest

    async def get(self, digest: str) -> bytes:
        """Return the bytes. Raises `KeyError` if there are none."""
        await checkpoint()
        return self._families.get(self._root, {})[digest]
