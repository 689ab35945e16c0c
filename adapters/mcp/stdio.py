"""A server process as a transport: JSON-RPC lines over its pipes, and a shutdown that leaves no process behind.

The SDK's own transport kills the process group only if the server itself is still running after its input was closed; a
child process of the server would stay. It also hides the process, and with it the exit code, the output on stderr, and
whether it still runs. So this module manages the process; the messages are the SDK's.
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
"""The time a server may take to end after its input is closed, and again after SIGTERM."""
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
        """Start the server. Raises `OSError` or `ValueError` if that fails."""
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
        """Store the pipes; reading pauses while the messages are not consumed."""
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self._stdout.set_transport(cast("asyncio.BaseTransport", self._transport.get_pipe_transport(_STDOUT)))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Forward stdout, and keep the end of stderr."""
        if fd == _STDERR:
            self._stderr = (self._stderr + data)[-STDERR_KEPT_BYTES:]
        elif not self._silent:
            self._stdout.feed_data(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """End the connection when stdout is closed."""
        if fd == _STDOUT:
            self._silence()

    def process_exited(self) -> None:
        """End the connection soon after the process: its last output is in the pipe, which a child may hold open."""
        self._exited.set()
        asyncio.get_running_loop().call_later(_LAST_WORDS_S, self._silence)

    @property
    def pid(self) -> int:
        """Return the process id, which is also that of its group."""
        return self._pipes.get_pid()

    @property
    def is_running(self) -> bool:
        """Return whether the process lives, according to the system: the event loop may not know of its death yet."""
        return not self._exited.is_set() and is_alive(self.pid)

    def obituary(self, *, ended: bool) -> str:
        """Return, for messages, its fault, its exit code if it ended by itself, and the end of its stderr."""
        code = self._pipes.get_returncode() if ended else None
        stderr = self._stderr.decode(errors="replace").strip()
        told = (
            self.fault,
            "" if code is None else f"the process ended with exit code {code}",
            f"its stderr ends with:\n{stderr}" if stderr else "",
        )
        return "; ".join(filter(None, told))

    async def read(self) -> bytes:
        """Return the next piece of its stdout, empty at the end."""
        return await self._stdout.read(_CHUNK_BYTES)

    def write(self, line: bytes) -> None:
        """Write to its stdin; data that the pipe does not take yet is buffered. Raises `anyio.BrokenResourceError`."""
        stdin = cast("asyncio.WriteTransport | None", self._pipes.get_pipe_transport(_STDIN))
        if stdin is None or stdin.is_closing():
            raise anyio.BrokenResourceError
        stdin.write(line)

    async def stop(self) -> None:
        """Close its input, then end the remaining processes of its group, and wait for them. Bounded, repeatable."""
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
        finally:  # Also after a second cancellation: a closing loop has no more time.
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
        """Read and discard the rest: a server that is blocked in a write does not see that its input is closed."""
        self._silence()
        stdout = cast("asyncio.ReadTransport | None", self._pipes.get_pipe_transport(_STDOUT))
        if stdout is not None:
            with suppress(RuntimeError):  # Closed already, or not paused: nothing to do.
                stdout.resume_reading()

    async def _wait_for_end(self, family: ProcessFamily) -> None:
        with anyio.move_on_after(GRACE_S):
            while not family.is_gone():  # noqa: ASYNC110 - no event for processes that are not our children
                await asyncio.sleep(_POLL_S)


@asynccontextmanager
async def stdio_transport(process: ServerProcess) -> AsyncIterator[tuple[StdioReader, StdioWriter]]:
    """Yield the streams of a running server, and stop it in any case at the end."""
    try:
        yield StdioReader(process), StdioWriter(process)
    finally:
        with anyio.CancelScope(shield=True):
            await process.stop()


class StdioReader:
    """Reads the messages of a server, one per line; other lines are logged and skipped."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process
        self._lines: deque[bytes] = deque()
        self._pieces: list[bytes] = []
        self._size_bytes = 0

    async def receive(self) -> SessionMessage:
        """Return the next message. Raises `anyio.EndOfStream` at the end of the server's output."""
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
    """Writes messages to a server, one per line. Never waits, so that a cancellation is sent at once."""

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
        logger.warning("an MCP server wrote a line to stdout that is not a message: %.200r", line)
        return None
