"""Commands as children of this process, without limits: works everywhere, trusts them most."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress

import psutil

from ...runtime.toolrunner import Command, Outcome
from ..builtin.workspace import Workspace
from .child import run_child
from .place import ENV_ALLOWED, Place


class DirectRunner:
    """Runs commands in a session of their own, started by this process.

    At the end its process group is killed, and on a time-out or a cancellation also its descendants that left the
    group. Not found are those whose parent ended before: `SubprocessRunner` finds these too.
    """

    def __init__(
        self, workspace: Workspace, *, env_allowed: Iterable[str] = ENV_ALLOWED, exclusive: bool = True
    ) -> None:
        self._place = Place(workspace, env_allowed, exclusive=exclusive)

    async def run(self, command: Command) -> Outcome:
        """See `ToolRunner.run`."""
        cwd, env = self._place.cwd(command), self._place.env(command)
        async with self._place.alone():
            return await run_child(command.argv, command, cwd=cwd, env=env, killer=_Tree())


class _Tree:
    """Kills the group that `pid` leads and the descendants that it still has."""

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


def kill_group(pid: int) -> None:
    """Kill the process group that `pid` leads or led. POSIX only."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
