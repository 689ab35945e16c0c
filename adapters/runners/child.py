"""Run one process to completion, with bounded output and time, and end everything that it started."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, cast

import anyio

from ...runtime.ports.runner import NOT_EXECUTABLE, NOT_FOUND, SIGNALLED, TIMED_OUT, Command, CommandOutcome
from ...runtime.ports.tools import ToolFailed
from .output import HeadAndTail

DYING_S: float = 30.0
"""The time a killed process may take to end."""
_LAST_WORDS_S = 0.5

_STDIN, _STDOUT = 0, 1


class Killer(Protocol):
    """Kills a process and everything that it started."""

    def kill(self, pid: int) -> None:
        """Kill `pid`, which may be gone already, and all processes that it started. Does not wait."""
        ...


async def run_child(
    argv: Sequence[str],
    command: Command,
    *,
    cwd: Path,
    env: Mapping[str, str],
    killer: Killer,
    pass_fds: tuple[int, ...] = (),
) -> CommandOutcome:
    """Start the process in a session of its own, and wait until it ends, times out, or this task is cancelled.

    In each case `killer` ends all processes that are left. Raises `ToolFailed` for a process that cannot be killed.
    """
    output = HeadAndTail(command.output_bytes_max)
    begun_s = time.monotonic()
    timed_out = False
    starting = asyncio.ensure_future(_Child.start(argv, command, output, cwd=cwd, env=env, pass_fds=pass_fds))
    try:
        child = await _started(starting, killer)
    except OSError as error:
        return _not_started(command.argv[0], error, time.monotonic() - begun_s)
    try:
        async with asyncio.timeout(command.timeout_s):
            await child.exited.wait()
    except TimeoutError:
        timed_out = True
    finally:
        killer.kill(child.pid)
        with anyio.CancelScope(shield=True):
            await child.end()
    if not child.exited.is_set():
        raise ToolFailed(f"the process {child.pid} outlived SIGKILL", in_doubt=True)
    return CommandOutcome(
        exit_code=TIMED_OUT if timed_out else child.exit_code,
        output=output.text(),
        output_bytes=output.size_bytes,
        duration_s=time.monotonic() - begun_s,
        timed_out=timed_out,
    )


async def _started(starting: asyncio.Future[_Child], killer: Killer) -> _Child:
    """Return the child. If this task is cancelled while it starts, end it and all processes that it has started.

    asyncio's own start, if cancelled, would end only the child itself. Raises `OSError`.
    """
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True), suppress(OSError):
            child = await starting
            killer.kill(child.pid)
            await child.end()
        raise


class _Child(asyncio.SubprocessProtocol):
    def __init__(self, output: HeadAndTail) -> None:
        self.exited, self._silent = asyncio.Event(), asyncio.Event()
        self._output = output
        self._transport: asyncio.SubprocessTransport

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        command: Command,
        output: HeadAndTail,
        *,
        cwd: Path,
        env: Mapping[str, str],
        pass_fds: tuple[int, ...],
    ) -> _Child:
        """Start the process. Raises `OSError`."""
        _, child = await asyncio.get_running_loop().subprocess_exec(
            lambda: cls(output),
            *argv,
            stdin=subprocess.PIPE if command.stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,  # Windows has none, and ignores it.
            pass_fds=pass_fds,
        )
        child.give(command.stdin)
        return child

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._output.feed(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == _STDOUT:
            self._silent.set()

    def process_exited(self) -> None:
        self.exited.set()

    @property
    def pid(self) -> int:
        return self._transport.get_pid()

    @property
    def exit_code(self) -> int:
        code = self._transport.get_returncode() or 0
        return code if code >= 0 else SIGNALLED - code

    def give(self, stdin: bytes) -> None:
        """Write the whole input and close it; what the process does not read is dropped."""
        pipe = cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(_STDIN))
        if pipe is not None and not pipe.is_closing():  # the command may have closed its end by now
            pipe.write(stdin)
            pipe.close()

    async def end(self) -> None:
        """Wait for its end and output. The wait is bounded: another process may hold the pipe open."""
        try:
            with anyio.move_on_after(DYING_S):
                await self.exited.wait()
            with anyio.move_on_after(_LAST_WORDS_S):
                await self._silent.wait()
        finally:
            with suppress(ProcessLookupError):
                self._transport.close()


def _not_started(program: str, error: OSError, duration_s: float) -> CommandOutcome:
    missing = isinstance(error, FileNotFoundError)
    text = f"{program}: {'program not found' if missing else error.strerror or error}\n"
    return CommandOutcome(
        exit_code=NOT_FOUND if missing else NOT_EXECUTABLE,
        output=text,
        output_bytes=len(text.encode()),
        duration_s=duration_s,
    )
