"""Serve the application: uvicorn in this process' event loop, with our own socket and signal handling."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
from collections.abc import AsyncGenerator, Generator

import uvicorn
from starlette.applications import Starlette

from ...eventlog.errors import ConfigError

PORT = 7717
"""The default port, if it is free."""


class _Server(uvicorn.Server):
    """A server that sets `up` when it has started, and leaves signals to the command."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@contextlib.asynccontextmanager
async def served(app: Starlette, host: str, port: int | None, grace_s: float) -> AsyncGenerator[str]:
    """Serve the application while open; yield its address.

    On exit, no new requests are taken, and those in progress get `grace_s` seconds to finish. `port` None: 7717, or a
    free port if that is taken. Raises `ConfigError` if the address cannot be used.
    """
    listening = _listening(host, port)
    config = uvicorn.Config(
        app,
        access_log=False,  # the addresses of callbacks contain their tokens
        log_config=None,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=max(1, round(grace_s)),
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve([listening]))
    try:
        up = asyncio.create_task(server.up.wait())
        await asyncio.wait({serving, up}, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if serving.done():
            await serving
        at = listening.getsockname()[1]
        yield f"http://{f'[{host}]' if ':' in host else host}:{at}"
    finally:
        server.should_exit = True
        await serving
        listening.close()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listening(host: str, port: int | None) -> socket.socket:
    try:
        return _bound(host, PORT if port is None else port)
    except OSError as error:
        if port is None:
            with contextlib.suppress(OSError):
                return _bound(host, 0)
        raise ConfigError(
            f"cannot listen on {host} port {port or PORT}: {os.strerror(error.errno or 0)}"
        ) from None


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=2048)
