"""The demo's child processes. Each is ended when its context is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import cast

import psutil

from ...eventlog.errors import FoldlogError

END_S = 5.0


class DemoFailed(FoldlogError):
    """A part of the demo did not start, or ended unexpectedly."""


class Process:
    """A child process and its output; `lines` holds the last lines of it."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name, self._process = name, process
        self.lines: deque[str] = deque(maxlen=20)
        self._orphans: list[psutil.Process] = []

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def line_with(self, text: str) -> str:
        """Read until a line contains `text`, and return that line. Raises `DemoFailed` if the process ends first."""
        output = cast("asyncio.StreamReader", self._process.stdout)
        while line := (await output.readline()).decode(errors="replace"):
            self.lines.append(line.rstrip())
            if text in line:
                return line.strip()
        told = "; ".join(self.lines) or "nothing"
        raise DemoFailed(f"{self.name} ended before it was ready. Its output: {told}")

    async def kill(self) -> None:
        """Send SIGKILL to this process only, and wait until it is gone; `end` kills the processes that it started."""
        self._orphans = _family(self.pid)
        self._process.kill()
        await self._process.wait()

    async def end(self) -> None:
        """Send SIGTERM, then SIGKILL, also to all processes that it started."""
        family = [*self._orphans, *_family(self.pid)]
        if self._process.returncode is None:
            self._process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await self._process.wait()
        for member in family:
            with contextlib.suppress(psutil.Error):
                member.kill()
        await self._process.wait()


def _family(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []


@contextlib.asynccontextmanager
async def running(name: str, *command: str, environ: Mapping[str, str]) -> AsyncIterator[Process]:
    """Run a Python module as a child process while open. `command` is the module's name and its arguments."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **environ},
        start_new_session=True,  # the demo handles Ctrl-C, and ends them in order
    )
    started = Process(name, process)
    try:
        yield started
    finally:
        await started.end()
