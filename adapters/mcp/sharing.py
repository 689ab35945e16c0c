"""Share servers between runs with the same configuration, and keep them for a while after their last use.

Starting a server takes up to a second, which consecutive runs should not pay each time. Servers are shared within one
event loop if name, entry and the values of its variables are equal; the selection of tools and the postconditions of an
entry do not count.
"""

from __future__ import annotations

import asyncio
import hashlib

import msgspec

from ...runtime.agents.mcp_servers import ServerConfig
from .server import Server

_Key = tuple[asyncio.AbstractEventLoop, str]


class Lease:
    """One use of a server."""

    def __init__(self, pool: ServerPool, key: _Key, server: Server) -> None:
        self.server = server
        self._pool = pool
        self._key = key
        self._released = False

    async def release(self, *, at_once: bool = False) -> None:
        """End this use; `at_once` closes a server that has no other use now. Safe to repeat."""
        if not self._released:
            self._released = True
            await self._pool.release(self._key, at_once=at_once)


class _Shared:
    """A server, the number of its uses, and the timer that closes it when it has none."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.uses = 0
        self.timer: asyncio.TimerHandle | None = None

    def keep(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class ServerPool:
    """All servers in use, and those unused for less than `idle_s` seconds."""

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._shared: dict[_Key, _Shared] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def lease(self, name: str, config: ServerConfig, address: str) -> Lease:
        """Return a lease of the server of this resolved entry; it connects on first use."""
        loop = asyncio.get_running_loop()
        self._shared = {key: shared for key, shared in self._shared.items() if not key[0].is_closed()}
        config = msgspec.structs.replace(config, tools=None, exclude=[], postconditions={})
        entry = msgspec.json.encode([name, type(config).__name__, config], order="sorted")
        key = (loop, hashlib.sha256(entry).hexdigest())
        if key not in self._shared:
            self._shared[key] = _Shared(Server(name, config, address))
        shared = self._shared[key]
        shared.keep()
        shared.uses += 1
        return Lease(self, key, shared.server)

    async def release(self, key: _Key, *, at_once: bool) -> None:
        """Count one use less."""
        shared = self._shared.get(key)
        if shared is None:
            return
        shared.uses -= 1
        if shared.uses == 0 and at_once:
            await self._shared.pop(key).server.aclose()
        elif shared.uses == 0:
            shared.timer = key[0].call_later(self._idle_s, self._expire, key)

    async def aclose(self) -> None:
        """Close all servers of the running loop, used or not. Safe to repeat."""
        loop = asyncio.get_running_loop()
        mine = [key for key in self._shared if key[0] is loop]
        for key in mine:
            self._expire(key)
        await asyncio.gather(*(task for task in self._closing if task.get_loop() is loop))

    def _expire(self, key: _Key) -> None:
        shared = self._shared.pop(key)
        shared.keep()
        task = asyncio.create_task(shared.server.aclose(), name=f"close MCP server {shared.server.name}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
