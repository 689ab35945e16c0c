"""A server process as a transport: JSON-RPC lines over its pipes, and an end that leaves nothing behind.

The SDK's own transport kills the process group only if the server itself outlives the closing of its input; a child
that the server started would stay. It also keeps the process to itself, and with it the exit code, what was written to
stderr, and whether it still runs. So the process is held here; the messages are the SDK's.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import cast

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from ...runtime.agents.mcp_servers import StdioServer
from .processes import ProcessFamily, is_alive

logger = logging.getLogger(__name__)

MESSAGE_SIZE_BYTES_MAX = 64 * 1024 * 1024
STDERR_KEPT_BYTES = 2048
GRACE_S = 2.0
"""How long a server has to end by itself after its input is closed, and again after SIGTERM."""
_LAST_WORDS_S = 0.5
_CHUNK_BYTES = 256 * 1024
_POLL_S = 0.01

_STDIN, _STDOUT, _STDERR = 0, 1, 2


class ServerProcess(asyncio.SubprocessProtocol):
    """One server process, in a session and process group of its own."""

    def __init__(self) -> None:
        self.fault = ""
        self._stdout = asyncio.StreamReader(limit=_CHUNK_BYTES)
        self._stderr = b""
        self._exited = asyncio.Event()
        self._silent = False
        self._transport: asyncio.SubprocessTransport | None = None

    @classmethod
    async def start(cls, config: StdioServer) -> ServerProcess:
        """Start the server. Raises `OSError` or `ValueError` if that cannot be done."""
        _, process = await asyncio.get_running_loop().subprocess_exec(
            cls,
            config.command,
            *config.args,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=get_default_environment() | config.env,
            cwd=config.cwd,
            start_new_session=sys.platform != "win32",
        )
        return process

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the pipes; reading pauses while nobody takes the messages."""
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self._stdout.set_transport(cast("asyncio.BaseTransport", self._transport.get_pipe_transport(_STDOUT)))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Pass stdout on, keep the end of stderr."""
        if fd == _STDERR:
            self._stderr = (self._stderr + data)[-STDERR_KEPT_BYTES:]
        elif not self._silent:
            self._stdout.feed_data(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """The end of stdout is the end of the connection."""
        if fd == _STDOUT:
            self._silence()

    def process_exited(self) -> None:
        """The process is reaped. What it wrote last is in the pipe, which a child of it may hold open for ever."""
        self._exited.set()
        asyncio.get_running_loop().call_later(_LAST_WORDS_S, self._silence)

    @property
    def pid(self) -> int:
        """The process id, which is also that of its group."""
        return self._pipes.get_pid()

    @property
    def is_running(self) -> bool:
        """Return whether the process lives, asked from the system: the loop may not have heard yet that it died."""
        return not self._exited.is_set() and is_alive(self.pid)

    def obituary(self, *, ended: bool) -> str:
        """What went wrong with it, how it ended if it did by itself, and the end of its stderr; for messages."""
        code = self._pipes.get_returncode() if ended else None
        stderr = self._stderr.decode(errors="replace").strip()
        told = (
            self.fault,
            "" if code is None else f"the process ended with exit code {code}",
            f"its stderr ends with:\n{stderr}" if stderr else "",
        )
        return "; ".join(filter(None, told))

    async def read(self) -> bytes:
        """The next piece of its stdout, empty at the end."""
        return await self._stdout.read(_CHUNK_BYTES)

    def write(self, line: bytes) -> None:
        """Write to its stdin; what the pipe does not take yet is kept. Raises `anyio.BrokenResourceError`."""
        stdin = cast("asyncio.WriteTransport | None", self._pipes.get_pipe_transport(_STDIN))
        if stdin is None or stdin.is_closing():
            raise anyio.BrokenResourceError
        stdin.write(line)

    async def stop(self) -> None:
        """Close its input, then end what is left of its group, and wait until that is gone. Bounded, repeatable."""
        family = ProcessFamily(self.pid)
        self._drain()
        if (stdin := self._pipes.get_pipe_transport(_STDIN)) is not None:
            stdin.close()
        try:
            with anyio.move_on_after(GRACE_S):
                await self._exited.wait()
            if not family.is_gone():
                family.end(kill=False)
                await self._wait_for_end(family)
        finally:  # Also of a second cancellation: a loop that ends has no more time.
            if not family.is_gone():
                family.end(kill=True)
            self._pipes.close()
        await self._wait_for_end(family)
        if not family.is_gone():
            logger.warning("process group %d of an MCP server outlived SIGKILL", self.pid)

    @property
    def _pipes(self) -> asyncio.SubprocessTransport:
        return cast("asyncio.SubprocessTransport", self._transport)

    def _silence(self) -> None:
        self._silent = True
        self._stdout.feed_eof()

    def _drain(self) -> None:
        """Read on and drop: a server that is stuck in a write cannot see that its input is closed."""
        self._silence()
        stdout = cast("asyncio.ReadTransport | None", self._pipes.get_pipe_transport(_STDOUT))
        if stdout is not None:
            with suppress(RuntimeError):  # Closed already, or not paused: nothing to do.
                stdout.resume_reading()

    async def _wait_for_end(self, family: ProcessFamily) -> None:
        with anyio.move_on_after(GRACE_S):
            while not family.is_gone():  # noqa: ASYNC110 - The end of a process that is no child of ours is no event.
                await asyncio.sleep(_POLL_S)


@asynccontextmanager
async def stdio_transport(process: ServerProcess) -> AsyncIterator[tuple[StdioReader, StdioWriter]]:
    """Give the streams of a running server; stop it at the end, whatever happens."""
    try:
        yield StdioReader(process), StdioWriter(process)
    finally:
        with anyio.CancelScope(shield=True):
            await process.stop()


class StdioReader:
    """The messages that a server writes, one a line; other lines are logged and left out."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process
        self._lines: deque[bytes] = deque()
        self._pieces: list[bytes] = []
        self._size_bytes = 0

    async def receive(self) -> SessionMessage:
        """The next message. Raises `anyio.EndOfStream` at the end of the server's output."""
        while True:
            while self._lines:
                if (message := _parsed(self._lines.popleft())) is not None:
                    return message
            if self._size_bytes > MESSAGE_SIZE_BYTES_MAX:
                self._process.fault = f"it sent a line of more than {MESSAGE_SIZE_BYTES_MAX:,} bytes"
                raise anyio.EndOfStream
            if not (chunk := await self._process.read()):
                raise anyio.EndOfStream
            self._take(chunk)

    async def aclose(self) -> None:
        """Nothing to do: the transport stops the process."""

    def _take(self, chunk: bytes) -> None:
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._pieces, lines[0]))
            self._lines.extend(lines)
            self._pieces, self._size_bytes = [], 0
        self._pieces.append(rest)
        self._size_bytes += len(rest)


class StdioWriter:
    """The messages to a server, one a line. Never waits, so that a cancellation is told at once."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message. Raises `anyio.BrokenResourceError` if the server's input is closed."""
        self._process.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

    async def aclose(self) -> None:
        """Nothing to do: the transport stops the process."""


def _parsed(line: bytes) -> SessionMessage | None:
    if not line.strip():
        return None
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        logger.warning("an MCP server wrote a line to stdout that is no message: %.200r", line)
        return None
