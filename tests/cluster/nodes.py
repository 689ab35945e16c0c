"""Three real nats-servers on loopback, from a configuration file of `deploy/`, that can be killed or stopped."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self

from tests.cluster.networks import Network
from tests.unit.test_compose import ROOT, free_ports, nats_server

PATIENCE_S = 300.0
"""The longest wait for what never comes: on a busy machine elections and servers take their time."""
CONFIG = ROOT / "deploy" / "nats.conf"


class Node:
    """One server; its store outlives it."""

    def __init__(self, name: str, directory: Path, ports: Sequence[int], config: Path) -> None:
        self.name, self.directory, self.config = name, directory, config
        self.port, self.monitor_port, self.route_port = ports
        self.store = directory / "store"
        self.routes = ""
        self.host, self.entering = "127.0.0.1", tuple[str, ...]()
        self.environment: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://{self.host}:{self.port}"

    @property
    def log(self) -> str:
        return (self.directory / "server.log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        moved = ["--addr", self.host, "--port", str(self.port), "--http_port", str(self.monitor_port)]
        if self.routes:
            moved += ["--cluster", f"nats://{self.host}:{self.route_port}", "--routes", self.routes]
        command = [*self.entering, nats_server(), "--config", str(self.config), "--name", self.name]
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--store_dir", str(self.store), *moved],
                stderr=log,
                env={**os.environ, **self.environment},
            )

    def kill(self) -> None:
        """End it at once, also while it is stopped."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def terminate(self) -> None:
        """End it in good order: SIGTERM."""
        assert self._process is not None
        self._process.terminate()
        await asyncio.wait_for(asyncio.to_thread(self._process.wait), PATIENCE_S)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    async def page(self, page: str) -> Any:
        """A page of its monitoring; None if it does not answer."""
        return await asyncio.to_thread(self._page, page)

    def _page(self, page: str) -> Any:
        try:
            url = f"http://{self.host}:{self.monitor_port}/{page}"
            with closing(urllib.request.urlopen(url, timeout=2)) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)
        except (OSError, ValueError):
            return None

    async def is_current(self) -> bool:
        """Return whether it has everything: what a rolling restart waits for."""
        page = await self.page("healthz")
        return page is not None and page.get("status") == "ok"


class Cluster:
    """Three nodes, named as in compose.yaml."""

    def __init__(
        self,
        directory: Path,
        config: Path = CONFIG,
        environment: dict[str, str] | None = None,
        *,
        count: int = 3,
        small: Path | None = None,
        apart: Network | None = None,
    ) -> None:
        """The first node keeps its store in `small`, such as a small disk; the second is at the far end of `apart`."""
        ports = free_ports(3 * count)
        if count == 1:
            directory.mkdir(parents=True, exist_ok=True)
            alone = re.sub(r"^cluster \{\n.*?^\}\n", "", config.read_text(), flags=re.MULTILINE | re.DOTALL)
            config = directory / "alone.conf"
            config.write_text(alone)
        self.nodes = [
            Node(f"nats-{n + 1}", directory / f"nats-{n + 1}", ports[3 * n : 3 * n + 3], config)
            for n in range(count)
        ]
        if small is not None:
            self.nodes[0].store = small / "store"
        if apart is not None:
            for node in self.nodes:
                node.host = apart.near
            self.nodes[1].host, self.nodes[1].entering = apart.far, tuple(apart.entering)
        routes = ",".join(f"nats://{node.host}:{node.route_port}" for node in self.nodes)
        for node in self.nodes:
            node.routes, node.environment = routes if count > 1 else "", environment or {}

    @property
    def url(self) -> str:
        return ",".join(node.url for node in self.nodes)

    async def __aenter__(self) -> Self:
        for node in self.nodes:
            node.start()
        try:
            await self.settled()
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for node in self.nodes:
            node.kill()

    async def settled(self) -> None:
        """Wait until all nodes are there, current, and know the leader of all."""
        await until(self._is_settled)

    async def _is_settled(self) -> bool:
        current = all([await node.is_current() for node in self.nodes])
        return current and (len(self.nodes) == 1 or await self.leader() is not None)

    async def leader(self) -> Node | None:
        """The node that leads JetStream's meta group, as the running nodes agree."""
        named = set()
        for node in self.nodes:
            page = await node.page("jsz") if node.is_running else None
            if page is not None:
                named.add((page.get("meta_cluster") or {}).get("leader", ""))
        return next((node for node in self.nodes if named == {node.name}), None)

    async def leader_of(self, stream: str) -> Node | None:
        """The node that leads a stream, as one of them says."""
        for node in self.nodes:
            page = await node.page("jsz?streams=true&accounts=true") if node.is_running else None
            for account in (page or {}).get("account_details", []):
                for found in account.get("stream_detail", []):
                    leader = (found.get("cluster") or {}).get("leader")
                    if found["name"] == stream and leader:
                        return next((each for each in self.nodes if each.name == leader), None)
        return None


async def until(holds: Callable[[], Awaitable[object]], patience_s: float = PATIENCE_S) -> None:
    """Ask again and again: a server tells nobody when it has caught up."""
    async with asyncio.timeout(patience_s):
        while not await holds():  # noqa: ASYNC110 - as it says
            await asyncio.sleep(0.1)


def foldlog() -> str:
    """The command that is installed beside this interpreter."""
    found = shutil.which("foldlog", path=str(Path(sys.executable).parent))
    assert found is not None
    return found


def secure(directory: Path) -> tuple[Path, dict[str, str]]:
    """The configuration with TLS and users, made as its page says; its file, and the passwords."""
    shutil.copytree(ROOT / "deploy" / "secure", directory, dirs_exist_ok=True)
    subprocess.run(
        [directory / "make-certificates", directory, "localhost", "127.0.0.1"], check=True, timeout=PATIENCE_S
    )
    for role in ("operator", "worker", "client", "reader", "retention"):
        made = subprocess.run(
            [foldlog(), "log", "permissions", "--role", role],
            check=True,
            capture_output=True,
            timeout=PATIENCE_S,
        )
        (directory / f"{role}.conf").write_bytes(made.stdout)
    config = directory / "nats.conf"
    config.write_text(re.sub(r'"/etc/nats/', f'"{directory}/', config.read_text()))
    roles = ("sys", "operator", "worker", "client", "reader", "retention")
    return config, {f"{role.upper()}_PASSWORD": f"{role}-of-all" for role in roles}
