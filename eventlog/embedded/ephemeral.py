"""A server without a keeper, as a child of this process: for tests, benchmarks and demonstrations."""

from __future__ import annotations

import shutil
import socket
import tempfile
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from .binary import find_binary
from .config import Sync, server_config
from .errors import StoreLocked
from .layout import Layout
from .lock import StoreLock
from .process import AddressInUse, ServerProcess, choose_port, hold_port

_find_binary = cache(find_binary)
_PORT_ATTEMPTS = 5


class EphemeralServer:
    """A nats-server with JetStream on loopback, ready in some 20 ms; it ends with the context or with this process.

        async with EphemeralServer() as server:
            connection = await nats.connect(server.url)
            server.kill()              # SIGKILL
            await server.restart()     # the same port, the same store

    `directory` is that of the store (and its lock); by default a temporary directory, which is removed at the end.
    `extra_config` is added to the configuration (a cluster, accounts); a server of a cluster is ready when it accepts
    connections, the cluster perhaps later. `port` selects a port; otherwise a free one is chosen and kept.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        sync: Sync = "always",
        extra_config: str = "",
        name: str = "ephemeral",
        port: int | None = None,
        ready_s: float = 30.0,
    ) -> None:
        self._given = directory
        self._sync, self._extra, self._name, self._ready_s = sync, extra_config, name, ready_s
        self._wanted_port, self.port = port, port or 0
        self._server: ServerProcess | None = None
        self._held: socket.socket | None = None
        self._lock: StoreLock | None = None

    async def __aenter__(self) -> Self:
        """Start the server.

        Raises `NatsServerMissing`, `StoreLocked`, `ServerDied`, `ServerNotReady`, `DirectoryUnusable`.
        """
        directory = self._given or Path(tempfile.mkdtemp(prefix="foldlog-"))
        self._layout = Layout(directory.absolute())
        try:
            self._layout.create()
            self._lock = StoreLock.take(self._layout.lock, "ephemeral")
            if self._lock is None:
                raise StoreLocked(
                    f"{directory} is the store of another server. End that one, or use another directory."
                )
            await self._start_somewhere()
        except BaseException:
            await self._clear()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the server."""
        await self._clear()

    @property
    def url(self) -> str:
        """The URL, `nats://127.0.0.1:PORT`, also while the server is down."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def monitor_url(self) -> str:
        """The monitoring endpoint; it changes with each restart."""
        return f"http://127.0.0.1:{self._process.monitor_port}"

    @property
    def pid(self) -> int:
        """The process id of the server; it changes with each restart."""
        return self._process.pid

    @property
    def directory(self) -> Path:
        """The directory of the store, the configuration and the log."""
        return self._layout.directory

    @property
    def store(self) -> Path:
        """The store; do not touch it while the server runs."""
        return self._layout.store

    def running(self) -> bool:
        """Return whether the server runs."""
        return self._server is not None and self._server.running()

    def log_text(self) -> str:
        """Return the server's log since its last start."""
        return self._process.log_text()

    def kill(self) -> None:
        """Send SIGKILL, and wait until the server has ended."""
        self._process.kill()
        self._hold_port()

    async def terminate(self) -> None:
        """Stop the server cleanly, and wait until it has ended."""
        await self._process.terminate()
        self._hold_port()

    async def restart(self) -> None:
        """Kill the server if it runs, and start it on the same port and store. Raises the errors of entering."""
        self.kill()
        self._free_port()
        await self._start(self.port)

    def _hold_port(self) -> None:
        """Keep others from choosing the port while the server is down."""
        if self._held is None:
            self._held = hold_port(self.port)

    def _free_port(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    @property
    def _process(self) -> ServerProcess:
        if self._server is None:
            raise RuntimeError("an EphemeralServer is used inside `async with`")
        return self._server

    async def _start_somewhere(self) -> None:
        if self._wanted_port is not None:
            return await self._start(self._wanted_port)
        for _ in range(_PORT_ATTEMPTS - 1):
            try:
                return await self._start(choose_port())
            except AddressInUse:  # another process was faster
                continue
        return await self._start(choose_port())

    async def _start(self, port: int) -> None:
        if self._lock is None:
            raise RuntimeError("an EphemeralServer is used inside `async with`")
        config = server_config(
            store=self._layout.store,
            ports=self._layout.directory,
            name=self._name,
            port=port,
            token=None,
            sync=self._sync,
            extra=self._extra,
        )
        self._server = ServerProcess.spawn(_find_binary(), self._layout, config, self._lock)
        await self._server.ready(self._ready_s)
        self.port = self._server.port

    async def _clear(self) -> None:
        if self._server is not None:
            await self._server.terminate()
        self._free_port()
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        if self._given is None:
            shutil.rmtree(self._layout.directory)
