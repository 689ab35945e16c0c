"""Wrapped keys in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ..errors import Conflict
from ..ports import At
from .waiting import checkpoint


class MemoryKeys:
    """`Keys` in memory."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[int, bytes]] = {}
        self._last = 0

    @property
    def stored(self) -> dict[str, bytes]:
        """The values by their names."""
        return {name: data for name, (_position, data) in self._values.items()}

    async def in_use(self) -> bool:
        """Return whether there is, or was, any."""
        return bool(self._values)

    async def get(self, name: str) -> tuple[int, bytes] | None:
        """Return the position and the value of a name; null for none."""
        await checkpoint()
        return self._values.get(name)

    async def put(self, name: str, data: bytes, expected: At) -> int:
        """Store a value in place of the one at the expected position. Raises `Conflict`."""
        await checkpoint()
        found = self._values.get(name, (0, b""))[0]
        if found != expected.position:
            raise Conflict(f"the key {name} is at position {found}, not at {expected.position}")
        self._last += 1
        self._values[name] = self._last, bytes(data)
        return self._last

    async def tidy(self, name: str) -> None:
        """Do nothing: earlier values are gone."""

    async def all(self) -> AsyncIterator[tuple[str, int, bytes]]:
        """Yield the names with their positions and values."""
        await checkpoint()
        for name, (position, data) in list(self._values.items()):
            yield name, position, data
