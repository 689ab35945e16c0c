"""Run commands under a supervisor: with limits, optionally in a sandbox; nothing that they start outlives them."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, cast, get_args

import msgspec

from ...eventlog.errors import ConfigError
from ...runtime.ports.runner import Command, CommandOutcome, Limit
from ..builtin.workspace import Workspace
from .bubblewrap import Bubblewrap
from .child import run_child
from .direct import kill_group
from .place import ENV_ALLOWED, Place

_SUPERVISOR: Final = Path(__file__).with_name("supervisor.py")
_REPORT_BYTES_MAX = 4096
_NO_MEMORY = re.compile(
    r"MemoryError|bad_alloc|cannot allocate|out of memory|memory exhausted", re.IGNORECASE
)
_LAST_LINES = 3


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Resource limits of a command. None: no limit.

    `cpu_s`, `memory_bytes` and `processes` apply to all processes of the command together, checked ten times a second
    (Linux only). In addition, the kernel limits each process: its CPU time, `open_files`, and on Linux its writable
    memory; a process that is refused memory fails with a message of its own, from which the limit is inferred.
    """

    cpu_s: int | None = 60
    memory_bytes: int | None = 2 * 1024**3
    open_files: int | None = 1024
    processes: int | None = 256

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"limits.{name} must be at least 1, not {value!r}")


DEFAULT_LIMITS: Final = Limits()


class SubprocessRunner:
    """Runs each command under a supervisor process that enforces `limits` and, on Linux, finds all its processes.

    Everything that a command started ends with it, even if this process is killed. `sandbox` confines it with
    bubblewrap. Raises `ConfigError` if the system is not POSIX, or bubblewrap is needed and not installed.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        limits: Limits = DEFAULT_LIMITS,
        sandbox: Bubblewrap | None = None,
        env_allowed: Iterable[str] = ENV_ALLOWED,
        exclusive: bool = True,
    ) -> None:
        if sys.platform == "win32":
            raise ConfigError("SubprocessRunner needs a POSIX system; use DirectRunner")
        self._place = Place(workspace, env_allowed, exclusive=exclusive)
        self._limits, self._sandbox = limits, sandbox
        self._bwrap = sandbox.find() if sandbox else ""

    async def run(self, command: Command) -> CommandOutcome:
        """See `ToolRunner.run`."""
        cwd, env = self._place.cwd(command), self._place.env(command)
        async with self._place.alone():
            with _supervision() as supervision:
                outcome = await run_child(
                    [*self._supervisor(supervision.fd, env), *self._wrapped(command, cwd)],
                    command,
                    cwd=cwd,
                    env=env,
                    killer=supervision,
                    pass_fds=(supervision.fd,),
                )
                limit = supervision.limit() or self._refused(outcome)
                return msgspec.structs.replace(outcome, limit=limit, lost=supervision.died())

    def _refused(self, outcome: CommandOutcome) -> Limit:
        """Infer from its last lines of output that the kernel refused a program memory."""
        failed = outcome.exit_code and not outcome.timed_out and self._limits.memory_bytes is not None
        last_words = "\n".join(outcome.output.splitlines()[-_LAST_LINES:])
        return "memory" if failed and _NO_MEMORY.search(last_words) else ""

    def _supervisor(self, fd: int, env: Mapping[str, str]) -> list[str]:
        limits = {
            "cpu": self._limits.cpu_s,
            "memory": self._limits.memory_bytes,
            "files": self._limits.open_files,
            "processes": self._limits.processes,
        }
        options = [f"{name}={value}" for name, value in limits.items() if value is not None]
        if "LC_CTYPE" not in env:  # Python sets it in a bare environment; the command must not see it.
            options.append("-LC_CTYPE")
        return [sys.executable, "-I", "-S", str(_SUPERVISOR), str(fd), *options, "--"]

    def _wrapped(self, command: Command, cwd: Path) -> list[str]:
        if self._sandbox is None:
            return list(command.argv)
        return self._sandbox.wrap(self._bwrap, command.argv, self._place.workspace.root, cwd)


class _Supervision:
    """The connection to a supervisor: closing it ends everything; its reports say why the command ended."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._told = ""

    @property
    def fd(self) -> int:
        """The supervisor's end."""
        return self._theirs.fileno()

    def kill(self, pid: int) -> None:
        """Have the supervisor `pid` end everything; if it died before it did, kill the process group it reported."""
        self._theirs.close()
        self._ours.shutdown(socket.SHUT_WR)
        command, over, _ = self._report()
        if command and not over:
            kill_group(int(command))

    def died(self) -> bool:
        """Return whether the supervisor died before it reported the end."""
        command, over, _ = self._report()
        return bool(command) and not over

    def limit(self) -> Limit:
        """Return the limit that ended the command, once the supervisor has exited."""
        *_, limit = self._report()
        return cast("Limit", limit) if limit in get_args(Limit) else ""

    def close(self) -> None:
        self._theirs.close()
        self._ours.close()

    def _report(self) -> tuple[str, bool, str]:
        """Return what was reported so far: the command's pid, whether all has ended, and the limit that ended it."""
        self._ours.settimeout(0)
        with suppress(BlockingIOError):
            self._told += self._ours.recv(_REPORT_BYTES_MAX).decode()
        pid, _, rest = self._told.partition("\n")
        limit, over, _ = rest.partition("\n")
        return pid, bool(over), limit


@contextmanager
def _supervision() -> Iterator[_Supervision]:
    supervision = _Supervision()
    try:
        yield supervision
    finally:
        supervision.close()
