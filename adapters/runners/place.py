"""The surroundings of a command on this machine: its directory, environment, and lock of the workspace."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from ...eventlog.errors import ConfigError
from ...runtime.ports.runner import Command
from ...runtime.ports.tools import ToolFailed
from ..builtin.workspace import Workspace

ENV_ALLOWED: Final = (
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
)
"""The variables of this process that a command sees by default."""
_POLL_S = 0.02


class Place:
    """A workspace on this machine, and the environment variables that a command may see.

    `exclusive`: commands wait for each other, over all runs, runners and processes of this machine.
    """

    def __init__(self, workspace: Workspace, env_allowed: Iterable[str], *, exclusive: bool) -> None:
        if isinstance(env_allowed, str):  # each letter would be a name
            raise ConfigError(f"env_allowed: must be names in a list, not {env_allowed!r}")
        self.workspace, self._env_allowed, self._exclusive = workspace, tuple(env_allowed), exclusive

    def cwd(self, command: Command) -> Path:
        """Return the real path of the command's directory. Raises `ToolFailed`."""
        if self.workspace.kind(command.cwd) != "directory":
            raise ToolFailed(f"{command.cwd}: is not a directory of the workspace")
        return self.workspace.resolve(command.cwd)

    def env(self, command: Command) -> Mapping[str, str]:
        """Return the command's whole environment."""
        return {name: os.environ[name] for name in self._env_allowed if name in os.environ} | dict(
            command.env
        )

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Lock the workspace. The lock ends with its process. Raises `ToolFailed` if the file system has no locks."""
        if sys.platform == "win32" or not self._exclusive:
            yield
            return
        root = os.open(self.workspace.root, os.O_RDONLY)
        try:
            while not _lock(root):  # noqa: ASYNC110 - Another process lets go of it without an event.
                await anyio.sleep(_POLL_S)
            yield
        finally:
            os.close(root)


def _lock(root: int) -> bool:
    import fcntl

    try:
        fcntl.flock(root, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise ToolFailed(
            f"the workspace cannot be locked ({error.strerror}): its file system has no locks; "
            "create the runner with exclusive=False if nothing else uses the workspace"
        ) from None
    return True
