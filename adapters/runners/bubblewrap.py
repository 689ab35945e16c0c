"""Run a command in a bubblewrap sandbox: with its workspace and the system's programs, without network by default."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from ...eventlog.errors import ConfigError

READ_ONLY: Final = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/alternatives",
    "/etc/group",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/resolv.conf",
    "/etc/ssl",
)
"""The paths of the system that a sandbox shows, if they exist."""


class Bubblewrap(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a sandbox. `network` gives it the host's network; without it, it cannot even reach the host.

    `read_only` are paths that it shows besides the workspace, which is writable. `program` is the name or path of
    bubblewrap. Processes of the host are invisible, `/tmp` is empty and private.
    """

    network: bool = False
    read_only: tuple[str, ...] = READ_ONLY
    program: str = "bwrap"

    def find(self) -> str:
        """Return the path of bubblewrap. Raises `ConfigError` if it is not installed."""
        found = shutil.which(self.program)
        if found is None:
            raise ConfigError(
                f"bubblewrap ({self.program}) is not installed: install it, or create the runner without a sandbox"
            )
        return found

    def wrap(self, program: str, argv: Sequence[str], root: Path, cwd: Path) -> list[str]:
        """Return the command line that runs `argv` in a sandbox around the workspace `root`."""
        shown = [word for path in self.read_only for word in ("--ro-bind-try", path, path)]
        return [
            *(program, "--die-with-parent", "--unshare-all", *(["--share-net"] if self.network else [])),
            *(*shown, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),  # noqa: S108 - A private one.
            *("--bind", str(root), str(root), "--chdir", str(cwd), "--"),
            *(
                "/bin/sh",
                "-c",
                'exec "$@"',
                "sh",
                *argv,
            ),  # The shell's exit codes for programs that cannot start.
        ]
