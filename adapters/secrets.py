"""Sources of secrets: the environment, a file, a command. Each is read again for every call."""

from __future__ import annotations

import asyncio
import os
import subprocess

import anyio
import msgspec

from ..eventlog.errors import ConfigError
from ..eventlog.files import read_bounded
from ..runtime.ports.tools import ToolFailed

FILE_BYTES_MAX = 1 << 20
COMMAND_TIMEOUT_S = 10.0


class EnvironmentSecret(msgspec.Struct, frozen=True, kw_only=True):
    """The value of an environment variable, for the named tools."""

    variable: str
    tools: tuple[str, ...]

    async def read(self) -> str:
        """Return the value. Raises `ToolFailed` if it is not set."""
        if self.variable not in os.environ:
            raise ToolFailed(f"the environment variable {self.variable} of a secret is not set")
        return os.environ[self.variable]


class FileSecret(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a file, without trailing line breaks, for the named tools."""

    path: str
    tools: tuple[str, ...]

    async def read(self) -> str:
        """Return the text. Raises `ToolFailed` if it cannot be read."""
        try:
            text = (await asyncio.to_thread(read_bounded, self.path, FILE_BYTES_MAX)).decode()
        except (OSError, UnicodeDecodeError, ConfigError) as error:
            raise ToolFailed(f"the file {self.path} of a secret cannot be read: {_reason(error)}") from None
        return text.rstrip("\r\n")


class CommandSecret(msgspec.Struct, frozen=True, kw_only=True):
    """The output of a command, without trailing line breaks, for the named tools. It may take 10 s."""

    command: tuple[str, ...]
    tools: tuple[str, ...]

    async def read(self) -> str:
        """Return the output. Raises `ToolFailed` if the command fails; the error never contains its output."""
        try:
            with anyio.fail_after(COMMAND_TIMEOUT_S):
                done = await anyio.run_process(self.command, check=False, stderr=subprocess.DEVNULL)
            text = done.stdout.decode()
        except TimeoutError:
            raise self._failed(f"took more than {COMMAND_TIMEOUT_S:g} s") from None
        except (OSError, UnicodeDecodeError) as error:
            raise self._failed(_reason(error)) from None
        if done.returncode:
            raise self._failed(f"exit code {done.returncode}")
        return text.rstrip("\r\n")

    def _failed(self, problem: str) -> ToolFailed:
        return ToolFailed(f"the command {self.command[0]!r} of a secret failed: {problem}")


def _reason(error: OSError | UnicodeDecodeError | ConfigError) -> str:
    match error:
        case OSError():
            return error.strerror or str(error)
        case ConfigError():
            return str(error)
        case _:
            return "it is not UTF-8"
