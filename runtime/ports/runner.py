"""The runner port: how a tool's command is executed, and what is reported of its end.

A `ToolRunner` belongs to one workspace. The common behaviour of all runners is specified as tests in
`adapters.runners.conformance`: the end of a command is the end of all processes it started, its environment contains
only what is allowed, and its output is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, Protocol

import msgspec

from .tools import ToolFailed

TIMED_OUT: Final = 124
"""The exit code of a command that exceeded its timeout, as of timeout(1)."""
NOT_FOUND: Final = 127
"""The exit code when there is no such program, as in a shell."""
NOT_EXECUTABLE: Final = 126
"""The exit code when the program cannot be started, as in a shell."""
SIGNALLED: Final = 128
"""Added to the number of the signal that ended a command, as in a shell."""
OUTPUT_BYTES_MAX: Final = 24 * 1024

Limit = Literal["", "cpu", "memory", "processes"]


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A program and its arguments; no shell parses them.

    `cwd` is a directory of the workspace; `env` is added to the variables that the runner lets through; `stdin` is the
    whole input. `output_bytes_max` bounds the part of the output that is kept. `key` identifies the call, the same for
    every attempt: a runner whose commands outlive this process finds them again by it.

    Raises `ToolFailed` for arguments that no system accepts.
    """

    argv: tuple[str, ...]
    cwd: str = "."
    env: Mapping[str, str] = {}
    stdin: bytes = b""
    timeout_s: float = 10.0
    output_bytes_max: int = OUTPUT_BYTES_MAX
    key: str = ""

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise ToolFailed("the command is empty: give the program and its arguments as a list")
        if not self.timeout_s > 0:
            raise ToolFailed(f"the command's timeout must be more than 0 s, not {self.timeout_s:g} s")
        for text in (*self.argv, *self.env, *self.env.values()):
            _check_text(text)
        for name in self.env:
            if not name or "=" in name:
                raise ToolFailed(f"{name!r} cannot be the name of an environment variable")


class CommandOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a command.

    `exit_code` as in a shell: 124 after its timeout, 126 and 127 if it could not be started, 128 + n after signal n.
    `output` is what it wrote to stdout and stderr, in that order, as text: head and tail with a marker between them if
    it wrote more than `output_bytes_max`; `output_bytes` is the full size. `limit` names the limit that ended it.
    `lost`: the process that ran the command died before it could report how the command ended.
    """

    exit_code: int
    output: str
    output_bytes: int
    duration_s: float
    timed_out: bool = False
    limit: Limit = ""
    lost: bool = False


class ToolRunner(Protocol):
    """Executes commands in one workspace, one at a time."""

    async def run(self, command: Command) -> CommandOutcome:
        """Run the command to its end. When this returns or raises, no process that the command started is running.

        Raises `ToolFailed` if there is no outcome: a `cwd` that is not a directory of the workspace, or a runner that
        cannot work now. Cancelling stops the command.
        """
        ...


def outlives_worker(runner: ToolRunner) -> bool:
    """Return whether commands survive this process and can be found again: the runner's attribute of this name."""
    return bool(getattr(runner, "outlives_worker", False))


def _check_text(text: str) -> None:
    if "\0" in text:
        raise ToolFailed("a command, its arguments and its environment cannot contain a NUL character")
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ToolFailed(f"{text!r} cannot be passed to a program: it is not valid Unicode") from None
