"""Run commands as children of this process, without limits: works on every platform, needs the most trust."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from ...runtime.ports.runner import Command, CommandOutcome
from ..builtin.workspace import Workspace
from .child import run_child
from .place import ENV_ALLOWED, Place

MARK: Final = "FOLDLOG_COMMAND"
"""Environment variable that marks all processes that a command started."""
_ROUNDS_MAX: Final = 50


class DirectRunner:
    """Runs commands as children of this process, each in a session of its own.

    When a command ends, its process group and its descendants are killed, and on Linux every other process with its
    mark in the environment. A process that left the group and its parent and cleared its environment is not found:
    `SubprocessRunner` finds that, too.
    """

    def __init__(
        self, workspace: Workspace, *, env_allowed: Iterable[str] = ENV_ALLOWED, exclusive: bool = True
    ) -> None:
        self._place = Place(workspace, env_allowed, exclusive=exclusive)

    async def run(self, command: Command) -> CommandOutcome:
        """See `ToolRunner.run`."""
        mark = secrets.token_hex(16)
        cwd, env = self._place.cwd(command), {**self._place.env(command), MARK: mark}
        async with self._place.alone():
            return await run_child(command.argv, command, cwd=cwd, env=env, killer=_Tree(mark))


class _Tree:
    """Kills the group that `pid` leads, its remaining descendants, and all processes with the mark."""

    def __init__(self, mark: str) -> None:
        self._mark = f"{MARK}={mark}".encode()

    def kill(self, pid: int) -> None:
        doomed: list[psutil.Process] = []
        with suppress(psutil.Error):
            leader = psutil.Process(pid)
            doomed = [leader, *leader.children(recursive=True)]
        if sys.platform != "win32":
            kill_group(pid)
        for process in doomed:
            with suppress(psutil.Error):
                process.kill()
        for _ in range(_ROUNDS_MAX):  # a process may have forked before it was killed
            if not _kill_all(_marked(self._mark)):
                return


def _marked(mark: bytes) -> Iterator[int]:
    """Yield the processes with the mark in their environment; a zombie has none. Linux only."""
    if sys.platform != "linux":
        return
    with os.scandir("/proc") as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.name.isdecimal() and mark in Path(entry.path, "environ").read_bytes():
                    yield int(entry.name)


def _kill_all(pids: Iterable[int]) -> int:
    """Kill these processes, and return how many were still there."""
    count = 0
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            count += 1
    return count


def kill_group(pid: int) -> None:
    """Kill the process group that `pid` leads or led. POSIX only."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
