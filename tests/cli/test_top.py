"""`foldlog top` on a real terminal: a pseudo-terminal of its own session, with keys, sizes and signals."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from foldlog.adapters.cli.exits import NO_CONNECTION
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.runtime import Agent, Registry, Runtime

from tests.cli.commands import Project

pytestmark = pytest.mark.anyio
FOLDLOG = Path(sys.executable).with_name("foldlog")
WAIT_S = 60.0
RUNS = 30
HOME = "\x1b[H"
"""Each frame begins at the top of the screen."""
_CONTROL = re.compile(r"\x1b\[[\d;?]*[a-zA-Z]")


class Terminal:
    """A command on a terminal, and the frames that it has drawn."""

    def __init__(self, project: Project, *args: str, size: tuple[int, int]) -> None:
        self._master, end = pty.openpty()
        self.resize(*size)
        self.before = termios.tcgetattr(end)
        self._end, self._written, self._some = end, b"", asyncio.Event()
        environ = {name: value for name, value in project.environ.items() if name != "LINES"}
        self.process = subprocess.Popen(
            [FOLDLOG, *args],
            cwd=project.place,
            env={**environ, "TERM": "xterm-256color"},
            stdin=end,
            stdout=end,
            stderr=end,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - a call of the system only
        )
        asyncio.get_running_loop().add_reader(self._master, self._read)

    def _read(self) -> None:
        try:
            self._written += os.read(self._master, 65_536)
        except OSError:  # Linux: nobody has the other end any more
            asyncio.get_running_loop().remove_reader(self._master)
        self._some.set()

    def resize(self, width: int, height: int) -> None:
        termios.tcsetwinsize(self._master, (height, width))

    def press(self, key: str) -> None:
        os.write(self._master, key.encode())

    @property
    def frame(self) -> list[str]:
        """The lines of the last whole frame."""
        *_, whole, _ = ["", "", *self._written.decode(errors="ignore").split(HOME)]
        return [line.rstrip() for line in _CONTROL.sub("", whole).replace("\r", "").split("\n")]

    async def until(self, found: Callable[[list[str]], bool]) -> list[str]:
        """Return the first frame in which something is found."""
        try:
            async with asyncio.timeout(WAIT_S):
                while not found(self.frame):
                    await self._some.wait()
                    self._some.clear()
        except TimeoutError:
            raise AssertionError("\n".join([f"code {self.process.poll()}", *self.frame])) from None
        return self.frame

    async def ended(self) -> int:
        """Return its exit code; the terminal is as it was before."""
        code = await asyncio.to_thread(self.process.wait, WAIT_S)
        assert termios.tcgetattr(self._end) == self.before
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)
        os.close(self._end)


@contextlib.asynccontextmanager
async def watching(server: EphemeralServer, place: Path) -> AsyncIterator[tuple[Terminal, Runtime]]:
    """`foldlog top` on a terminal of 80 by 24 cells, and a runtime that starts runs nobody drives."""
    agent = Agent("clerk", model="scripted:clerk.json")
    opened = Runtime.open(server.url, namespace="top", registry=Registry(agents=[agent]))
    async with opened as runtime:
        terminal = Terminal(Project(place, server.url, "top"), "top", "--interval", "0.2", size=(80, 24))
        try:
            await terminal.until(lambda frame: "no runs" in frame[0])
            yield terminal, runtime
        finally:
            terminal.close()


def fits(frame: list[str], width: int, height: int) -> bool:
    return len(frame) <= height and all(len(line) <= width for line in frame)


async def test_the_live_view_fits_its_terminal_follows_its_size_and_ends_by_a_key(tmp_path: Path) -> None:
    async with EphemeralServer() as server, watching(server, tmp_path) as (terminal, runtime):
        for number in range(RUNS):
            await runtime.start(runtime.registry.agents["clerk"], f"Count {number}", executor="durable")
        small = await terminal.until(lambda frame: f"Open runs ({RUNS})" in " ".join(frame))
        assert fits(small, 80, 24)
        assert f"{RUNS} queued" in small[0]
        for title in ("Workers (0)", "Queue (1)", "Approvals (0)"):
            assert title in small
        terminal.resize(120, 40)
        large = await terminal.until(lambda frame: len(frame) > 30)
        assert fits(large, 120, 40)
        whole = [row.run_id for row in await runtime.list_runs()]
        assert sum(line.split(" ")[0] in whole for line in large) > 20
        terminal.press("x")
        terminal.press("q")
        assert await terminal.ended() == 0


@pytest.mark.nightly
async def test_the_live_view_says_that_the_log_is_away_and_goes_on_once_it_is_back(tmp_path: Path) -> None:
    async with EphemeralServer() as server, watching(server, tmp_path) as (terminal, runtime):
        server.kill()
        away = await terminal.until(lambda frame: "the log has not answered for" in frame[0])
        assert fits(away, 80, 24)
        await server.restart()
        await terminal.until(lambda frame: "no runs" in frame[0])
        await runtime.start(runtime.registry.agents["clerk"], "Count", executor="durable")
        await terminal.until(lambda frame: "1 queued" in frame[0])
        terminal.press("\x03")
        assert await terminal.ended() == 0


@pytest.mark.nightly
async def test_without_a_server_the_live_view_says_what_to_do(tmp_path: Path) -> None:
    async with EphemeralServer() as server:
        url = server.url
    terminal = Terminal(Project(tmp_path, url, "top"), "top", size=(80, 24))
    try:
        assert await asyncio.to_thread(terminal.process.wait, WAIT_S) == NO_CONNECTION
        assert "cannot reach the NATS server" in terminal._written.decode()
        assert "\x1b[?1049h" not in terminal._written.decode()
    finally:
        terminal.close()
