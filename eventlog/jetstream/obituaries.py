"""Who waits for the end of a run in this process hears of the death of its driver, maybe before that told of the end.

Other workers tell of it. Where there are none, the server does: the consumer of a worker whose connection ended is
deleted, and its leases say what it drove. They are read once for all who wait.
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
    """Listens while somebody in this process waits; one for each connection."""

    def __init__(self, wire: Wire, layout: Layout) -> None:
        self._wire, self._layout = wire, layout
        self._waiting: dict[str, set[Callable[[], None]]] = {}
        self._sids: list[int] = []
        self._looks: set[asyncio.Task[None]] = set()

    def add(self, root: str, listener: Callable[[], None]) -> None:
        """Call it when the driver of this family has died."""
        self._waiting.setdefault(root, set()).add(listener)
        if not self._sids:
            gone = self._layout.gone
            self._sids = [
                self._wire.listen_if_allowed(self._layout.died, self._told, UNHEARD),
                self._wire.listen_if_allowed(gone, self._gone, UNHEARD),
            ]

    def discard(self, root: str, listener: Callable[[], None]) -> None:
        """Nobody waits there any more."""
        listeners = self._waiting.get(root, set())
        listeners.discard(listener)
        if not listeners:
            self._waiting.pop(root, None)
        if not self._waiting:
            for sid in self._sids:
                self._wire.unsubscribe(sid)
            self._sids = []

    def _told(self, _subject: bytes, _reply: bytes, _header: bytes, data: bytes) -> None:
        """Somebody ended the lease of a dead worker."""
        self._tell(_DECODER.decode(data).run)

    def _gone(self, subject: bytes, _reply: bytes, _header: bytes, _data: bytes) -> None:
        """The server deleted the consumer of a worker."""
        look = asyncio.ensure_future(self._look(subject.rpartition(b".")[2].decode()))
        self._looks.add(look)
        look.add_done_callback(self._looks.discard)

    async def _look(self, worker: str) -> None:
        """What a worker held when it went; also what others have ended since. One that said goodbye held nothing."""
        held = f"{self._layout.leases_prefix(worker)}.run.>".encode()
        with contextlib.suppress(LogUnavailable, ConfigError):
            async for message in read_all(self._wire, self._layout.leases, held):
                self._tell(message.subject.split(b".")[-2].decode())

    def _tell(self, root: str) -> None:
        for listener in tuple(self._waiting.get(root, ())):
            listener()
