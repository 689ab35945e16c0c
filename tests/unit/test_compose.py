"""The files of `docker compose up` agree, and three real servers form a cluster with the nodes' file."""

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import nats
import pytest
import yaml
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from nats.js.errors import NoStreamResponseError

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "deploy" / "nats.conf"
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
NODES = {name: service for name, service in COMPOSE["services"].items() if name.startswith("nats")}
WORKERS = {name: service for name, service in COMPOSE["services"].items() if name.startswith("worker")}
LEADER_KNOWN = re.compile(r"new (JetStream cluster )?metadata leader")
DISCONNECTS = "$SYS.ACCOUNT.FOLDLOG.DISCONNECT"


class Ports(NamedTuple):
    """The loopback address of one node."""

    client: int
    monitor: int
    route: int


def nats_server() -> str:
    """The server that is installed beside this interpreter, else the one on the PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    found = shutil.which("nats-server", path=path)
    assert found is not None
    return found


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on: below those of embedded servers, and those that the system gives away.

    So nobody comes upon them before they are used.
    """
    first, last = 10_000, 20_000
    found: list[int] = []
    for step in range(last - first):
        number = first + (os.getpid() * count + step) % (last - first)
        with suppress(OSError), socket.create_server(("127.0.0.1", number)):
            found.append(number)
        if len(found) == count:
            return found
    raise AssertionError("no ports are free")


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask a server again and again: it tells nobody when another one knows, or has, what it has."""
    while not await holds():  # noqa: ASYNC110 - as it says
        await asyncio.sleep(0.05)


async def is_healthy(ports: Ports) -> bool:
    """Return whether the node's streams are current; a new stream is not on every node at once."""
    try:
        page = await asyncio.to_thread(monitor, ports.monitor, "healthz")
    except urllib.error.HTTPError:
        return False
    return bool(page["status"] == "ok")


async def is_stored(log: JetStreamContext) -> bool:
    """Return whether the event is there; the node may not know the leader of a new stream yet."""
    try:
        return (await log.publish("log", b"event")).seq == 1
    except NoStreamResponseError:
        return False


async def wants_disconnects(ports: Ports) -> bool:
    """Return whether the node knows that a client of another node subscribes to its disconnects."""
    return DISCONNECTS in json.dumps(await asyncio.to_thread(monitor, ports.monitor, "routez?subs=1"))


def monitor(port: int, page: str) -> dict[str, Any]:
    with closing(urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=120)) as answer:
        return json.load(answer)


@contextmanager
def node(name: str, ports: Ports, routes: str, store: Path) -> Iterator[IO[str]]:
    """Start one server from the file of compose.yaml, moved to loopback; yields its log."""
    moved = [
        *("--addr", "127.0.0.1", "--port", str(ports.client), "--http_port", str(ports.monitor)),
        *("--cluster", f"nats://127.0.0.1:{ports.route}", "--routes", routes),
    ]
    command = [nats_server(), "--config", str(CONFIG), "--name", name, "--store_dir", str(store), *moved]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            yield server.stderr
        finally:
            server.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Ports]]:
    """Three nodes, named as in compose.yaml, each of which knows the leader."""
    store = tmp_path_factory.mktemp("cluster")
    numbers = iter(free_ports(9))
    nodes = [Ports(next(numbers), next(numbers), next(numbers)) for _ in NODES]
    routes = ",".join(f"nats://127.0.0.1:{ports.route}" for ports in nodes)
    with ExitStack() as stack:
        starting = zip(NODES, nodes, strict=True)
        logs = [stack.enter_context(node(name, ports, routes, store / name)) for name, ports in starting]
        for log in logs:
            assert any(LEADER_KNOWN.search(line) for line in log)
        yield nodes


async def test_three_servers_from_the_nodes_file_form_a_cluster_that_syncs_every_write(
    cluster: list[Ports],
) -> None:
    pages = [await asyncio.to_thread(monitor, ports.monitor, "varz") for ports in cluster]
    assert [page["server_name"] for page in pages] == list(NODES)
    assert {page["cluster"]["name"] for page in pages} == {"foldlog"}
    assert [page["jetstream"]["config"].get("sync_always") for page in pages] == [True, True, True]

    async with await nats.connect(f"nats://127.0.0.1:{cluster[0].client}") as client:
        log = client.jetstream(timeout=120)
        stream = await log.add_stream(StreamConfig("log", subjects=["log"], num_replicas=3))
        assert stream.cluster is not None
        peers = [peer.name for peer in stream.cluster.replicas or []]
        assert {stream.cluster.leader, *peers} == set(NODES)
        await until(partial(is_stored, log))
    for ports in cluster:
        await until(partial(is_healthy, ports))


async def test_a_client_without_system_credentials_learns_of_a_disconnect_at_another_node(
    cluster: list[Ports],
) -> None:
    heard: asyncio.Queue[Any] = asyncio.Queue()
    async with await nats.connect(f"nats://127.0.0.1:{cluster[0].client}") as watcher:
        await watcher.subscribe(DISCONNECTS, cb=heard.put)
        await watcher.flush()
        await until(partial(wants_disconnects, cluster[1]))
        dying = await nats.connect(f"nats://127.0.0.1:{cluster[1].client}", name="dying")
        await dying.close()
        names = []
        while "dying" not in names:
            names.append(json.loads((await heard.get()).data)["client"].get("name"))
    assert names[-1] == "dying"


def test_each_node_has_its_own_name_volume_and_loopback_port() -> None:
    assert len(NODES) == 3
    for name, service in NODES.items():
        assert service["command"] == [
            "--config",
            "/etc/nats/nats.conf",
            "--name",
            name,
            "--store_dir",
            "/data",
        ]
        assert service["volumes"] == [f"./{CONFIG.relative_to(ROOT)}:/etc/nats/nats.conf:ro", f"{name}:/data"]
        assert service["healthcheck"]["test"]
        assert name in COMPOSE["volumes"]
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert len(set(ports)) == len(NODES)
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_nodes_file_routes_to_every_node_and_syncs_every_write() -> None:
    text = CONFIG.read_text()
    assert set(re.findall(r"nats://([\w-]+):6222", text)) == set(NODES)
    assert re.search(r"^\s*sync_interval: always$", text, re.MULTILINE)


def test_the_nodes_run_the_server_version_that_is_tested_here() -> None:
    said = subprocess.run([nats_server(), "--version"], capture_output=True, text=True, check=True).stdout
    assert {service["image"] for service in NODES.values()} == {f"nats:{said.split('v')[-1].strip()}-alpine"}


def test_two_workers_run_the_image_of_this_repository_against_all_nodes() -> None:
    assert len(WORKERS) == 2
    for service in WORKERS.values():
        assert (ROOT / service["build"] / "Dockerfile").is_file()
        assert service["command"][0] == "worker"
        assert set(service["depends_on"]) == set(NODES)
        assert service["environment"]["NATS_URL"] == ",".join(f"nats://{name}:4222" for name in NODES)


def test_the_registry_that_the_workers_serve_by_default_is_in_the_image() -> None:
    named = re.fullmatch(r"\${FOLDLOG_REGISTRY:-([\w.]+):(\w+)}", WORKERS["worker-1"]["command"][1])
    assert named is not None
    module, name = named.groups()
    source = (ROOT / module.replace(".", "/")).with_suffix(".py")
    assert re.search(rf"^{name}\b", source.read_text(), re.MULTILINE)
    assert f"COPY --chown=foldlog {module.split('.')[0]}/" in (ROOT / "Dockerfile").read_text()


def test_everything_the_image_is_built_from_exists_and_is_sent_to_the_builder() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    copies = re.findall(r"^COPY (?!--from)(?:--\S+ )?(.+) \S+$", dockerfile, re.MULTILINE)
    sources = {source for line in copies for source in line.split()}
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    assert sources == {line[1:] for line in ignore if line.startswith("!")}
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_the_image_does_not_run_as_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert lines.index("USER foldlog") < lines.index('ENTRYPOINT ["foldlog"]')
