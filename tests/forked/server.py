"""Forks commands that need no time to start, since all that they import is imported already: `foldlog`, `mcp_server`.

`python server.py SOCKET` says `ready`, and serves the clients beside it until its input ends. A command is a real
process with the client's streams, directory and environment; it dies when its client does.
"""

import atexit
import gc
import importlib
import io
import marshal
import os
import pkgutil
import random
import re
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import typer.main
from foldlog.adapters.cli import app as root
from foldlog.projections import sqlite
from foldlog.projections.approvals import Approvals
from foldlog.projections.operating.costs import Costs
from foldlog.projections.run_list import RunList
from foldlog.replay import read_archive, replay
from foldlog.runtime import Agent
from foldlog.runtime.ports import plugins
from foldlog.runtime.ports.executor import EXECUTORS
from typer.core import TyperArgument, TyperOption

TESTS = Path(__file__).parents[1]
PACKAGES = (
    "foldlog.adapters.cli",
    "foldlog.adapters.demo",
    "foldlog.adapters.knowledge",
    "foldlog.adapters.mcp",
    "foldlog.adapters.models",
    "foldlog.eventlog",
    "foldlog.projections",
    "foldlog.replay",
    "foldlog.runtime",
)
"""All of their modules are imported, also those that a command imports only once it needs them."""
SELDOM = re.compile(r"\b(__main__|asyncapi|conformance|mcp_server|pytest_plugin|strategies)\b")
COMMANDS = os.path.dirname(sys.executable)  # noqa: PTH120
MODULES = (
    "anyio._backends._asyncio",
    "mcp.client.session",
    "openai",
    "rich.console",
    "rich.table",
    "sqlite3",
    "uvloop",
)


def load() -> dict[str, Callable[[], None]]:
    """Import and build what a command might; the commands by name."""
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not SELDOM.search(module.name):
                importlib.import_module(module.name)
    for name in MODULES:
        importlib.import_module(name)
    fake = runpy.run_path(str(TESTS / "fakes" / "mcp_server.py"))
    command = typer.main.get_command(root.app)
    typer.main.get_command = lambda _: command  # made once, not by each
    build_validators(command)
    Agent("first")  # builds the validators of its settings
    for trace in read_archive((TESTS / "histories" / "v1" / "approvals.jsonl").read_bytes()).traces.values():
        assert replay(trace).divergence is None  # makes the decoders of what is stored
    for projection in (RunList(), Approvals(), Costs()):
        sqlite._decoder(projection.row)
    sys.path.insert(0, COMMANDS)
    plugins.installed(EXECUTORS)  # reads the entry points on the path
    plugins.installed.cache_clear()  # there may be others on the path of a command
    assert threading.active_count() == 1, "a thread would be missing in what is forked"
    gc.collect()
    gc.freeze()
    return {"foldlog": root.main, "mcp_server": fake["main"]}


def build_validators(command: Any) -> None:
    """Build those of the options and arguments of the command and all below it."""
    for parameter in command.params:
        if isinstance(parameter, (TyperArgument, TyperOption)):
            parameter.get_runtime_param()
    for below in getattr(command, "commands", {}).values():
        build_validators(below)


class Server:
    """The processes that were forked, each with the client it answers."""

    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(128)
        self._clients: dict[int, socket.socket] = {}
        self._ended, ended = socket.socketpair()
        self._ended.settimeout(0)
        ended.settimeout(0)
        self._wakeup = ended
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(ended.fileno(), warn_on_full_buffer=False)
        self._selector = selectors.DefaultSelector()
        for source in (self._listener, self._ended, sys.stdin):
            self._selector.register(source, selectors.EVENT_READ)

    def serve(self) -> dict[str, Any] | None:
        """Returns in a forked process with its order, and in the server itself when the input has ended."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is sys.stdin:
                    self._end()
                    return None
                if key.fileobj is self._ended:
                    self._reap()
                elif key.fileobj is self._listener:
                    if (order := self._fork()) is not None:
                        return order
                else:
                    self._kill(cast("socket.socket", key.fileobj))

    def _fork(self) -> dict[str, Any] | None:
        client, _ = self._listener.accept()
        header, streams, _, _ = socket.recv_fds(client, 4, 3)
        size_bytes = int.from_bytes(header, "big")
        with client.makefile("rb") as sent:
            told = sent.read(size_bytes)
        if not told or len(told) < size_bytes:  # it was killed meanwhile
            for stream in streams:
                os.close(stream)
            client.close()
            return None
        order: dict[str, Any] = marshal.loads(told)
        if (process := os.fork()) == 0:
            self._leave()
            client.close()
            become(order, streams)
            return order
        for stream in streams:
            os.close(stream)
        self._clients[process] = client
        self._selector.register(client, selectors.EVENT_READ)
        with suppress(BrokenPipeError):
            client.sendall(b"%d\n" % process)
        return None

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            self._ended.recv(4096)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                client = self._clients.pop(ended[0])
                with suppress(BrokenPipeError):
                    client.sendall(b"%d\n" % os.waitstatus_to_exitcode(ended[1]))
                with suppress(KeyError):  # it was gone before
                    self._selector.unregister(client)
                client.close()

    def _kill(self, client: socket.socket) -> None:
        """The client is gone; its process is still to be reaped."""
        for process, known in self._clients.items():
            if known is client:  # else it was told of its process' end at this very moment
                self._selector.unregister(client)
                os.kill(process, signal.SIGKILL)

    def _end(self) -> None:
        for process in self._clients:
            os.kill(process, signal.SIGKILL)

    def _leave(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for known in (self._listener, self._ended, self._wakeup, *self._clients.values()):
            known.close()


def become(order: dict[str, Any], streams: list[int]) -> None:
    """Be what the client would have been."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environb.update(order["environ"])
    time.tzset()
    random.seed()
    tempfile.tempdir = None
    sys.argv = [f"{COMMANDS}/{order['name']}", *order["argv"]]
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.stdin = text(0, "rb", "strict")
    sys.stdout = text(1, "wb", "strict")
    sys.stderr = text(2, "wb", "backslashreplace")


def text(stream: int, mode: str, errors: str) -> io.TextIOWrapper:
    """A standard stream as the interpreter opens it."""
    binary = cast("BinaryIO", open(stream, mode, closefd=False))  # noqa: SIM115
    lines = stream == 2 or binary.isatty()
    return io.TextIOWrapper(
        binary, "utf-8", errors, line_buffering=lines, write_through="PYTHONUNBUFFERED" in os.environ
    )


def carry_out(command: Callable[[], None]) -> None:
    """Run the command and end as the interpreter does, without taking everything apart first."""
    code = 0
    try:
        command()
    except SystemExit as end:
        if isinstance(end.code, str):
            raise
        code = end.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    commands = load()
    server = Server(sys.argv[1])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if (order := server.serve()) is not None:
        carry_out(commands[order["name"]])


if __name__ == "__main__":
    main()
