"""A run that a trigger starts, as a value, and the port that starts it."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from ...eventlog.events import Trigger
from ...eventlog.priorities import Priority


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A run to start once for its `key`, in the `lane`, if it has one."""

    agent: str
    input: str
    key: str
    trigger: Trigger
    lane: str | None = None
    user: str | None = None
    metadata: dict[str, Any] = {}
    priority: Priority | int = "normal"


class Starter(Protocol):
    """Starts runs of this process' agents on workers."""

    async def start(self, wish: Start) -> str:
        """Return the id of the run that has this key, and start it if there is none (W26).

        Raises `RunPurged` for a key whose run is no longer there, `RunConflict`, `NotRegistered`, `ConfigError`,
        `PayloadTooLarge`, `LogUnavailable`.
        """
        ...
