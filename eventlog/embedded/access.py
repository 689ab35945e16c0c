"""Find the server of a directory, start it if there is none, and stop it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from ..errors import FoldlogError
from .binary import find_binary
from .config import idle_setting_s, sync_setting
from .errors import DirectoryUnusable, ServerDied, ServerNotReady, StoreLocked
from .info import ServerInfo, answering, is_alive, read_info, runs
from .layout import Layout, log_directory
from .lock import StoreLock, holder_of
from .process import last_lines, rotate
from .report import Report

_POLL_S = 0.01
_STOP_S = 20.0
_ORPHAN_AFTER_S = 1.0
_STARTS_MAX = 3
_KEEPER = f"{__package__}.keeper"


async def ensure_server(
    directory: Path | None = None, *, ready_s: float = 10.0, accept_loss: bool = False
) -> ServerInfo:
    """Return the server of a log directory (default: the project's, `log_directory`); start it if none runs.

    Many processes may call it at once and get the same server. Connect within `FOLDLOG_KEEPER_IDLE_S` seconds, or the
    server may have ended. `accept_loss` starts it even on a store that has lost data.

    Raises `NatsServerMissing`, `ConfigError`, `DirectoryUnusable`, `StoreLocked`, `ServerDied`, `TailLost`,
    `PlatformUnsupported`; `ServerNotReady` after `ready_s` seconds.
    """
    layout = _layout(directory)
    sync_setting(), idle_setting_s()  # so that wrong settings are refused here, not by the keeper
    layout.create()
    begun, starts = time.monotonic(), list[_Start]()
    try:
        while (info := await asyncio.to_thread(answering, layout)) is None:
            waited_s = time.monotonic() - begun
            lock = StoreLock.take(layout.lock, "starter")
            if lock is not None:
                _look_before_start(layout, lock, starts)
                starts.append(_Start(layout, lock, accept_loss=accept_loss))
            elif waited_s > ready_s:
                raise _not_ready(layout, ready_s)
            else:
                _look_at_holder(layout, waited_s)
            await asyncio.sleep(_POLL_S)
    finally:
        for start in starts:
            start.close()
    return info


def server_status(directory: Path | None = None) -> ServerInfo | None:
    """Return the server of a log directory, if it runs and replies within half a second."""
    return answering(_layout(directory))


async def stop_server(directory: Path | None = None) -> bool:
    """End the server of a log directory and its keeper; returns whether there was one.

    Raises `StoreLocked` if another server uses the store, `ServerNotReady` if it does not end.
    """
    layout = _layout(directory)
    if not layout.lock.exists():
        return False
    begun, found, signalled = time.monotonic(), False, 0
    while (lock := StoreLock.take(layout.lock, "starter")) is None:
        found, waited_s = True, time.monotonic() - begun
        _look_at_holder(layout, waited_s)
        keeper = holder_of(layout.lock)
        if (
            keeper is not None
            and keeper.role == "keeper"
            and keeper.pid != signalled
            and runs(keeper.pid, _KEEPER)
        ):
            signalled = keeper.pid
            _signal(signalled, signal.SIGTERM)
        if waited_s > _STOP_S:
            raise ServerNotReady(f"The server of {layout.directory} did not end. See {layout.keeper_log}.")
        await asyncio.sleep(_POLL_S)
    layout.info.unlink(missing_ok=True)
    lock.release()
    return found


def _layout(directory: Path | None) -> Layout:
    return Layout((directory or log_directory()).absolute())


class _Start:
    """A keeper that this process is starting. It takes over the lock."""

    def __init__(self, layout: Layout, lock: StoreLock, *, accept_loss: bool) -> None:
        self._layout, self._report = layout, Report()
        try:
            rotate(layout.keeper_log)
            self._child = self._spawn(lock, ["--accept-loss"] if accept_loss else [])
        except OSError as cause:
            self._report.close()
            raise DirectoryUnusable.because(layout.directory, cause) from cause
        finally:
            self._report.hand_over()
            lock.hand_over()

    def _spawn(self, lock: StoreLock, options: list[str]) -> subprocess.Popen[bytes]:
        """Start a child that forks and ends at once, so that the keeper is not a child of this process."""
        command = [sys.executable, "-P", "-m", _KEEPER, str(self._layout.directory), "--detach"]
        inherited = (lock.descriptor, self._report.sender)
        with self._layout.keeper_log.open("ab") as log:
            return subprocess.Popen(
                [*command, "--lock", str(inherited[0]), "--report", str(inherited[1]), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=inherited,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise the error that the keeper reports, if it failed."""
        failure = self._report.failure(self._layout.directory)
        if failure is not None:
            raise failure
        if self._child.poll():
            raise _keeper_died(self._layout)

    def close(self) -> None:
        """Wait for the child, which has ended or is about to, and close the pipe."""
        self._report.close()
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(5)


def _look_before_start(layout: Layout, lock: StoreLock, starts: list[_Start]) -> None:
    """Raise, and release the lock, if an earlier start has failed, or this one would fail."""
    try:
        for start in starts:
            start.check()
        if len(starts) >= _STARTS_MAX:
            raise _keeper_died(layout)
        find_binary()
    except FoldlogError:
        lock.release()
        raise


def _look_at_holder(layout: Layout, waited_s: float) -> None:
    """Raise `StoreLocked` if the holder of the lock is not a keeper; end a server that has lost its keeper."""
    holder = holder_of(layout.lock)
    if holder is not None and holder.role == "ephemeral" and is_alive(holder.pid):
        raise StoreLocked(
            f"The store in {layout.directory} is used by a server of process {holder.pid}. "
            "End that process, or use another directory."
        )
    if waited_s > _ORPHAN_AFTER_S:
        _end_orphan(layout)


def _end_orphan(layout: Layout) -> None:
    """Kill a server that does not reply and whose keeper was killed; no other process does."""
    info = read_info(layout)
    if info is not None and not runs(info.keeper_pid, _KEEPER) and runs(info.pid, str(layout.config)):
        _signal(info.pid, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _not_ready(layout: Layout, ready_s: float) -> ServerNotReady:
    holder = holder_of(layout.lock)
    who = f" (process {holder.pid} holds its lock)" if holder else ""
    return ServerNotReady(
        f"The server of {layout.directory} does not answer after {ready_s:g} s{who}. It may still be reading a large "
        f"store: try again, or look into {layout.server_log} and {layout.keeper_log}."
    )


def _keeper_died(layout: Layout) -> ServerDied:
    said = layout.keeper_log.read_text(errors="replace")
    return ServerDied(
        f"The keeper of the server did not start. Its log, {layout.keeper_log}, ends:\n{last_lines(said)}"
    )
