"""The keeper: holds the lock of one store, runs its nats-server as a child, and ends when it is no longer needed.

    python -m foldlog.eventlog.embedded.keeper DIRECTORY

Its rules:

- Clients are admitted only after a check of the store: every stream must reach its high-water mark and, if files
  changed since the last clean stop, have every message. The check runs on a port that no client knows, because clients
  that reconnect would write over a lost tail and hide it.
- A server that dies is checked and started again on the same port, so that clients reconnect by themselves.
- `server.json` exists only while the server may be used. It is removed before the keeper ends for lack of clients, and
  connections are then counted once more, so that a client that has just read it is not disconnected.
- The server ends before the keeper. If the keeper is killed, the server ends too (Linux); it holds the lock until then.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ..errors import FoldlogError
from .binary import find_binary
from .config import Sync, idle_setting_s, server_config, sync_setting
from .damage import damage, is_touched, note_clean_stop
from .errors import DirectoryUnusable, ServerDied, StoreDamaged, TailLost
from .high_water import Head, fewer_messages, lost_tails, read_high_water, write_high_water
from .info import Identity, ServerInfo, write_info
from .layout import Layout, write_private
from .lock import StoreLock, holder_of
from .monitor import Activity, NoAnswer, activity, heads
from .process import AddressInUse, ServerProcess, choose_port
from .report import send_failure

_READY_S = 600.0  # a large store needs time; a caller that waits gives up earlier
_RECORD_EVERY_S = 2.0
_PORT_ATTEMPTS = 5
_DEATHS_MAX = 5
_DEATHS_WINDOW_S = 30.0


class Keeper:
    """Keeps one server. `idle_s` is the time without clients after which it ends."""

    def __init__(
        self, layout: Layout, lock: StoreLock, *, sync: Sync, idle_s: float, accept_loss: bool = False
    ) -> None:
        self._layout, self._lock, self._sync, self._idle_s = layout, lock, sync, idle_s
        self._accept_loss = accept_loss
        self._binary = find_binary()
        self._identity = _read_identity(layout)
        self._server: ServerProcess | None = None
        self._serving = False
        self._recorded: dict[str, Head] = {}
        self._record_due = self._used_at = 0.0
        self._used = Activity(0, 0, "")
        self._deaths: list[float] = []
        self._child_ended = asyncio.Event()

    async def run(self) -> None:
        """Serve until a signal, or until there are no clients for `idle_s`. Raises the errors of `ensure_server`."""
        self._obey_signals()
        try:
            await self._serve()
        except asyncio.CancelledError:
            say("stopped by a signal")
        finally:
            await self._end()

    def _obey_signals(self) -> None:
        loop, serving = asyncio.get_running_loop(), asyncio.current_task()
        cancelled = False

        def end() -> None:
            nonlocal cancelled
            if serving is not None and not cancelled:  # a second signal must not interrupt the clean stop
                cancelled = serving.cancel()

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, end)
        loop.add_signal_handler(signal.SIGCHLD, self._child_ended.set)

    async def _serve(self) -> None:
        server = await self._start()
        while True:
            await self._wait_for_something()
            if not self._lock.is_at(self._layout.lock):
                say("the directory or its lock was removed")
                return
            if not server.running():
                self._serving = False
                self._count_death(server)
                server = await self._start()
            elif await self._is_idle(server):
                return
            elif time.monotonic() >= self._record_due:
                await self._record(server)

    async def _wait_for_something(self) -> None:
        """Return when the server has ended, or after a moment."""
        with suppress(TimeoutError):  # not with wait_for, which may swallow the cancellation in Python 3.11
            async with asyncio.timeout(min(1.0, self._idle_s / 5)):
                await self._child_ended.wait()
        self._child_ended.clear()

    def _count_death(self, server: ServerProcess) -> None:
        now, death = time.monotonic(), server.death()
        say(f"the server died and is started again. {death}")
        self._deaths = [then for then in self._deaths if then > now - _DEATHS_WINDOW_S] + [now]
        if len(self._deaths) > _DEATHS_MAX:
            raise death

    # Starting

    async def _start(self) -> ServerProcess:
        self._layout.info.unlink(missing_ok=True)
        await self._check_store()
        server = await self._listen()
        self._used, self._used_at = await activity(server.monitor_port), time.monotonic()
        self._recorded, self._record_due = read_high_water(self._layout), 0.0
        self._serving = True
        self._announce(server)
        say(f"serving on port {server.port}, server {server.pid}")
        return server

    async def _check_store(self) -> None:
        """Compare the streams with their high-water marks, on a port that no client knows.

        Clients that reconnect to the known port would otherwise write over a lost tail and hide it.
        """
        recorded, touched = read_high_water(self._layout), not self._deaths and is_touched(self._layout)
        if not touched and not any(head.last_sequence for head in recorded.values()):
            return
        server = await self._run_server(-1)
        found = await heads(server.monitor_port)
        lost = lost_tails(recorded, found)
        for line in fewer_messages(recorded, found):
            say(line)
        lines: list[str] = []
        if touched or lost:
            lines = await damage(self._url(server), accept_loss=self._accept_loss)
        await server.terminate()
        if lost and not self._accept_loss:
            raise TailLost(self._layout.directory, lost, tuple(lines))
        if lines and not self._accept_loss:
            raise StoreDamaged(self._layout.directory, tuple(lines))
        for line in (*map(str, lost), *lines):
            say(f"loss accepted: {line}")
        write_high_water(self._layout, found)
        self._accept_loss = False

    async def _listen(self) -> ServerProcess:
        """Start the server on its own port, or on another one if that is taken."""
        for _ in range(_PORT_ATTEMPTS):
            try:
                server = await self._run_server(self._identity.port)
            except AddressInUse:
                self._identity = msgspec.structs.replace(self._identity, port=choose_port())
            else:
                write_private(self._layout.identity, msgspec.json.encode(self._identity))
                return server
        raise ServerDied("No port could be found for the server between 20000 and 32000 on 127.0.0.1.")

    async def _run_server(self, port: int) -> ServerProcess:
        config = server_config(
            store=self._layout.store,
            ports=self._layout.directory,
            name=self._identity.name,
            port=port,
            token=self._identity.token,
            sync=self._sync,
        )
        self._server = ServerProcess.spawn(self._binary, self._layout, config, self._lock)
        await self._server.ready(_READY_S)
        return self._server

    def _announce(self, server: ServerProcess) -> None:
        info = ServerInfo(
            url=self._url(server),
            token=self._identity.token,
            directory=self._layout.directory,
            name=self._identity.name,
            port=server.port,
            pid=server.pid,
            keeper_pid=os.getpid(),
            version=self._used.version,
            sync=self._sync,
            monitor_url=f"http://127.0.0.1:{server.monitor_port}",
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        write_info(self._layout, info)

    def _url(self, server: ServerProcess) -> str:
        return f"nats://{self._identity.token}@127.0.0.1:{server.port}"

    # Watching

    async def _is_idle(self, server: ServerProcess) -> bool:
        """Return whether there was no client for long enough; if so, `server.json` is removed."""
        if await self._in_use(server) or time.monotonic() - self._used_at < self._idle_s:
            return False
        self._layout.info.unlink(missing_ok=True)
        if await self._in_use(server):  # a client read it just before
            self._announce(server)
            return False
        say(f"no client was connected for {self._idle_s:g} s")
        return True

    async def _in_use(self, server: ServerProcess) -> bool:
        """Return whether a client is connected, or was since the last check. A server without a reply is in use."""
        try:
            now = await activity(server.monitor_port)
        except NoAnswer:
            return True
        used = now.connections > 0 or now != self._used
        if used:
            self._used, self._used_at = now, time.monotonic()
        return used

    async def _record(self, server: ServerProcess) -> None:
        """Record the ends of the streams, if they have changed."""
        self._record_due = time.monotonic() + _RECORD_EVERY_S
        try:
            found = await heads(server.monitor_port)
            if found != self._recorded:
                write_high_water(self._layout, found)
                self._recorded = found
        except (NoAnswer, OSError) as cause:
            say(f"the high-water mark could not be written: {cause}")

    # Ending

    async def _end(self) -> None:
        ours = self._lock.is_at(self._layout.lock)  # otherwise the files may be those of another keeper
        if ours:
            self._layout.info.unlink(missing_ok=True)
        server, self._server = self._server, None
        if server is not None:
            serving = ours and self._serving and server.running()
            if serving:
                await self._record(server)
            await server.terminate()
            if serving and not self._deaths:  # after a death, the next start must check the whole store
                with suppress(OSError):
                    note_clean_stop(self._layout)
        say("ended")


def _read_identity(layout: Layout) -> Identity:
    try:
        return msgspec.json.decode(layout.identity.read_bytes(), type=Identity)
    except (OSError, msgspec.MsgspecError):
        return Identity(
            name=f"foldlog-{secrets.token_hex(6)}", token=secrets.token_hex(24), port=choose_port()
        )


def say(line: str) -> None:
    """Write one line to the keeper's log."""
    sys.stderr.write(f"{datetime.now(UTC).isoformat(timespec='milliseconds')} [{os.getpid()}] {line}\n")
    sys.stderr.flush()


def _lock_of(arguments: argparse.Namespace, layout: Layout) -> StoreLock | None:
    if arguments.lock is not None:
        return StoreLock(arguments.lock)
    layout.create()
    return StoreLock.take(layout.lock, "keeper")


def _keep(layout: Layout, lock: StoreLock, arguments: argparse.Namespace) -> int:
    """Keep the server of one directory, with its lock in hand; returns the exit code."""
    os.umask(0o077)
    try:
        os.chdir(layout.directory)
        lock.sign("keeper")
        asyncio.run(_run(layout, lock, accept_loss=arguments.accept_loss))
    except (FoldlogError, NoAnswer, OSError) as cause:
        error = _documented(layout, cause)
        say(str(error))
        if arguments.report is not None:
            send_failure(arguments.report, error)
        return 1
    finally:
        lock.release()
    return 0


async def _run(layout: Layout, lock: StoreLock, *, accept_loss: bool) -> None:
    keeper = Keeper(layout, lock, sync=sync_setting(), idle_s=idle_setting_s(), accept_loss=accept_loss)
    await keeper.run()


def _documented(layout: Layout, cause: Exception) -> FoldlogError:
    if isinstance(cause, FoldlogError):
        return cause
    if isinstance(cause, OSError):
        return DirectoryUnusable.because(layout.directory, cause)
    return ServerDied(f"nats-server does not reply on its monitoring port: {cause}. See {layout.server_log}.")


def main() -> int:
    """Keep the server of the directory in the arguments."""
    parser = argparse.ArgumentParser(
        prog="foldlog keeper", description="Keep the nats-server of one log directory."
    )
    parser.add_argument("directory", type=Path, help="the log directory, as in <project>/.foldlog/log")
    parser.add_argument(
        "--accept-loss", action="store_true", help="continue with streams that have lost data"
    )
    parser.add_argument("--detach", action="store_true", help="continue in the background")
    parser.add_argument("--lock", type=int, help="a file descriptor that already holds the lock")
    parser.add_argument("--report", type=int, help="a file descriptor for reporting a failure to start")
    arguments = parser.parse_args()
    layout = Layout(arguments.directory.absolute())
    try:
        lock = _lock_of(arguments, layout)
    except FoldlogError as error:
        say(str(error))
        return 1
    if lock is None:
        holder = holder_of(layout.lock)
        say(f"{layout.directory} already has a keeper" + (f", process {holder.pid}" if holder else ""))
        return 1
    if arguments.detach and os.fork():
        os._exit(0)
    return _keep(layout, lock, arguments)


if __name__ == "__main__":
    sys.exit(main())
