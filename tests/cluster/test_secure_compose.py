"""The cluster of compose.secure.yaml: TLS between all, and a user for each role."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from foldlog.eventlog import ConfigError
from foldlog.eventlog.jetstream import JetStreamLog

from tests.cluster.nodes import ROOT, Cluster, secure

OVERRIDE = yaml.safe_load((ROOT / "compose.secure.yaml").read_text())
PLAIN = yaml.safe_load((ROOT / "compose.yaml").read_text())


@pytest.fixture(scope="module")
async def cluster(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    directory = tmp_path_factory.mktemp("secure")
    config, passwords = secure(directory / "etc")
    async with Cluster(directory, config, passwords) as cluster:
        yield cluster


@pytest.fixture
def authority(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = cluster.nodes[0].config.parent / "ca.pem"
    monkeypatch.setenv("NATS_CA", str(found))
    return found


def url(cluster: Cluster, user: str, password: str | None = None, scheme: str = "tls") -> str:
    secret = f"{user}-of-all" if password is None else password
    return ",".join(f"{scheme}://{user}:{secret}@localhost:{node.port}" for node in cluster.nodes)


async def test_users_reach_a_cluster_over_tls_and_nobody_else_does(
    cluster: Cluster, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with JetStreamLog.open(url(cluster, "operator"), role="operator", connect_timeout_s=30) as log:
        assert log.events.shards == 4
    async with JetStreamLog.open(url(cluster, "client", scheme="nats"), role="client") as log:
        assert await log.leases.present() == ()
    with pytest.raises(ConfigError, match="refused the credentials"):
        async with JetStreamLog.open(url(cluster, "client", "wrong"), role="client"):
            pass
    with pytest.raises(ConfigError, match=r"_INBOX\.default\.worker.*FOLDLOG_ROLE"):
        async with JetStreamLog.open(url(cluster, "client"), role="worker"):
            pass
    monkeypatch.delenv("NATS_CA")
    with pytest.raises(ConfigError, match="has a certificate that is not trusted here"):
        async with JetStreamLog.open(url(cluster, "client"), role="client"):
            pass


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"NATS_CA": "nowhere.pem"}, "NATS_CA names nowhere.pem, which is not a file"),
        ({"NATS_CA": __file__}, "cannot be used for TLS"),
        ({"NATS_CERT": __file__}, "NATS_CERT and NATS_KEY belong together"),
    ],
)
async def test_files_for_tls_that_are_of_no_use_are_refused_by_name(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], told: str
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=told):
        async with JetStreamLog.open(url(cluster, "client"), role="client"):
            pass


def test_the_files_of_the_secure_cluster_agree() -> None:
    config = (ROOT / "deploy" / "secure" / "nats.conf").read_text()
    passwords = set(re.findall(r"password: \$(\w+)", config))
    services = OVERRIDE["services"]
    for name in ("nats-1", "nats-2", "nats-3"):
        assert set(services[name]["environment"]) == passwords
        assert "./deploy/secure/nats.conf:/etc/nats/nats.conf:ro" in services[name]["volumes"]
    assert set(services) - {"namespace"} == set(PLAIN["services"])
    for name in ("worker-1", "worker-2"):
        (user,) = set(re.findall(r"tls://(\w+):", services[name]["environment"]["NATS_URL"]))
        assert f"{{user: {user}," in config
    plain = (ROOT / "deploy" / "nats.conf").read_text()
    jetstream = re.compile(r"^jetstream \{\n.*?^\}", re.MULTILINE | re.DOTALL)
    assert jetstream.findall(config) == jetstream.findall(plain)
