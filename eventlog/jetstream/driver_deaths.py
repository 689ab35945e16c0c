"""News of dead drivers for readers in this process that wait for the end of a run: the driver may not announce it.

Other workers report a death. Without other workers, the server does: it deletes the consumer of a worker whose
connection ended, and the worker's leases show what it drove. They are read once for all waiting readers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from ..errors import ConfigError, LogUnavailable
from ..ports import Lease
from .layout import UNHEARD, Layout
from .streams import read_all
from .wire import Wire

_DECODER = msgspec.json.Decoder(Lease)


class DriverDeaths:
    """Subscribes while a reader in this process waits; one for each connection."""

    def __init__(self, wire: Wire, layout: Layout) -> None:
        self._wire, self._layout = wire, layout
        self._waiting: dict[str, set[Callable[[], None]]] = {}
        self._sids: list[int] = []
        self._looks: set[asyncio.Task[None]] = set()

    def add(self, root: str, listener: Callable[[], None]) -> None:
        """Call `listener` when the driver of this family has died."""
        self._waiting.setdefault(root, set()).add(listener)
        if not self._sids:
            gone = self._layout.gone
            self._sids = [
                self._wire.listen_if_allowed(self._layout.died, self._lease_ended, UNHEARD),
                self._wire.listen_if_allowed(gone, self._consumer_deleted, UNHEARD),
            ]

    def discard(self, root: str, listener: Callable[[], None]) -> None:
        """Remove a listener that no longer waits."""
        listeners = self._waiting.get(root, set())
        listeners.discard(listener)
        if not listeners:
            self._waiting.pop(root, None)
        if not self._waiting:
            for sid in self._sids:
                self._wire.unsubscribe(sid)
            self._sids = []

    def _lease_ended(self, _subject: bytes, _reply: bytes, _header: bytes, data: bytes) -> None:
        """Handle the report that a process ended the lease of a dead worker."""
        self._notify(_DECODER.decode(data).run)

    def _consumer_deleted(self, subject: bytes, _reply: bytes, _header: bytes, _data: bytes) -> None:
        """Handle the advisory that the server deleted the consumer of a worker."""
        look = asyncio.ensure_future(self._look(subject.rpartition(b".")[2].decode()))
        self._looks.add(look)
        look.add_done_callback(self._looks.discard)

    async def _look(self, worker: str) -> None:
        """Notify the readers of all runs that a worker held; one that left in an orderly way has no leases."""
        held = f"{self._layout.leases_prefix(worker)}.run.>".encode()
        with contextlib.suppress(LogUnavailable, ConfigError):
            async for message in read_all(self._wire, self._layout.leases, held):
                self._notify(message.subject.split(b".")[-2].decode())

    def _notify(self, root: str) -> None:
        for listener in tuple(self._waiting.get(root, ())):
            listener()
