"""The kit of `deploy/`: the chart rendered by Helm's own code, the units, and what KEDA asks of a server."""

import asyncio
import json
import re
import shutil
import subprocess
import sys
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.eventlog.jetstream.layout import Layout, queue_of
from foldlog.eventlog.priorities import PRIORITIES
from foldlog.runtime import Agent, Registry, Runtime, Worker
from foldlog.runtime.driving.host import Host

from tests.cluster.nodes import ROOT, foldlog, until
from tests.runtime.conftest import HeldTool, call, calls, says

CHART = ROOT / "deploy" / "helm" / "foldlog"
UNITS = ROOT / "deploy" / "systemd"
RENDERING = ("helm-python-sdk==0.2.2", "kubernetes-validate==1.37.0", "pyyaml")
FULL = {
    "nats": {"url": "tls://nats:4222", "credsSecret": "creds", "caSecret": "ca", "role": "worker-7"},
    "envSecret": "keys",
    "env": {"LEVEL": 3},
    "workers": {"registry": "shop:registry", "graceS": 60, "build": "b7"},
    "serve": {"enabled": True, "publicUrl": "https://hooks.example.com"},
    "keda": {"enabled": True, "agents": ["cashier", "clerk"], "shards": 2},
    "imagePullSecrets": [{"name": "registry"}],
}
BAD = [
    {"workers": {"registry": "no registry"}},
    {"keda": {"enabled": True}},
    {"worker": {}},
]


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Render the chart with Helm's own code: lint, and one result for each of the values."""
    place = tmp_path_factory.mktemp("helm") / "venv"
    uv = shutil.which("uv")
    make = [uv, "venv", "--quiet", str(place)] if uv else [sys.executable, "-m", "venv", str(place)]
    pip = [uv, "pip", "install", "--quiet", "--python"] if uv else []
    subprocess.run(make, check=True, timeout=300)
    python = place / "bin" / "python"
    install = [*pip, str(python)] if uv else [str(python), "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, *RENDERING], check=True, timeout=600)
    done = subprocess.run(
        [python, Path(__file__).with_name("render.py"), CHART],
        input=json.dumps([{}, FULL, *BAD]),
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def kinds(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in objects}


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_chart_renders_to_valid_objects_and_refuses_wrong_values(rendered: dict[str, Any]) -> None:
    assert rendered["lint"]["errors"] == []
    plain, full, *bad = rendered["rendered"]
    assert set(kinds(plain["objects"])) == {"Deployment/shop-workers"}
    found = kinds(full["objects"])
    assert set(found) == {
        "Deployment/shop-workers",
        "Deployment/shop-serve",
        "Service/shop-serve",
        "ScaledObject/shop-workers",
    }
    spec = found["Deployment/shop-workers"]["spec"]
    assert "replicas" not in spec  # KEDA sets them
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][:2] == ["worker", "shop:registry"]
    assert "--build=b7" in container["args"]
    assert pod["terminationGracePeriodSeconds"] > 60
    environment = {each["name"]: each["value"] for each in container["env"]}
    assert environment["NATS_URL"] == "tls://nats:4222"
    assert environment["FOLDLOG_ROLE"] == "worker-7"
    assert environment["LEVEL"] == "3"
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    assert all(str(Path(environment[name]).parent) in mounted for name in ("NATS_CREDS", "NATS_CA"))
    scaled = found["ScaledObject/shop-workers"]["spec"]
    layout = Layout("default")
    assert {(each["metadata"]["stream"], each["metadata"]["consumer"]) for each in scaled["triggers"]} == {
        (layout.shard(shard), queue_of(agent, priority))
        for shard in range(2)
        for agent in ("cashier", "clerk")
        for priority in PRIORITIES
    }
    names = [each["name"] for each in scaled["triggers"]]
    assert scaled["advanced"]["scalingModifiers"]["formula"] == " + ".join(names)
    assert len(set(names)) == 12
    assert ["error" in each for each in bad] == [True, True, True]
    assert "keda.agents is empty" in bad[1]["error"]


@pytest.mark.nightly
@pytest.mark.parametrize("path", sorted(UNITS.iterdir()), ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong_with_the_units(path: Path, tmp_path: Path) -> None:
    """The programs are those of this machine, since systemd looks for them."""
    text = path.read_text().replace("/opt/foldlog/.venv/bin/foldlog", foldlog())
    text = text.replace("/usr/local/bin/nats-server", "/bin/true")
    unit = tmp_path / path.name.replace("@.", "@1.")
    unit.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_each_unit_gives_its_process_more_time_than_it_drains_for() -> None:
    for path in UNITS.glob("foldlog-*"):
        text = path.read_text()
        (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
        grace = re.findall(r"--grace-s (\d+)", text) or ["10"]
        assert int(stop) > int(grace[0]) + 10
        assert "KillSignal=SIGTERM" in text


def demand(server: EphemeralServer, namespace: str, agent: str) -> int:
    """The figures of KEDA's scaler `nats-jetstream`, over all shards: pending and unacknowledged messages."""
    page = f"{server.monitor_url}/jsz?acc=$G&consumers=true&config=true"
    with closing(urllib.request.urlopen(page, timeout=120)) as answer:
        accounts = json.load(answer)["account_details"]
    layout = Layout(namespace)
    (streams,) = [each["stream_detail"] for each in accounts if each["name"] == "$G"]
    return sum(
        consumer["num_pending"] + consumer["num_ack_pending"]
        for stream in streams
        if stream["name"] in {layout.shard(shard) for shard in range(4)}
        for consumer in stream.get("consumer_detail") or []
        if consumer["name"] in {queue_of(agent, priority) for priority in PRIORITIES}
    )


async def test_what_keda_asks_a_server_is_the_number_of_runs_to_be_driven(script: Any) -> None:
    held = HeldTool()
    agent = Agent("held", model=script(calls(call("wait")), says("done")), tools=[held.wait])
    asking = Agent(
        "asking", model=script(calls(call("wait")), says("done")), tools=[held.wait], hitl_tools=["wait"]
    )
    registry = Registry(agents=[agent, asking])
    async with EphemeralServer() as server, JetStreamLog.open(server.url, name="w", role="worker") as log:
        worker = Worker(Host(log=log, registry=registry, worker="w"), concurrency=2, park_after_s=0.0)
        serving = asyncio.create_task(worker.serve())
        async with Runtime.open(server.url, registry=registry) as runtime:

            async def is_asked(count: int, name: str) -> bool:
                return await asyncio.to_thread(demand, server, "default", name) == count

            waiting = await runtime.start(asking, "x", executor="durable")
            async for event in waiting.stream(detailed=True):
                if event.type == "approval_requested":
                    break
            await until(lambda: is_asked(0, "asking"))
            runs = [await runtime.start(agent, "x", executor="durable") for _ in range(5)]
            await held.entered.wait()
            await until(lambda: is_asked(5, "held"))
            held.let_go.set()
            for run in runs:
                await run.result()
            await until(lambda: is_asked(0, "held"))
            await waiting.cancel("over")
        worker.stop()
        await serving
        server.kill()
