"""`foldlog doctor --cluster` on three real servers, and its judgements on figures of any size."""

import asyncio
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from foldlog.adapters.cli.cluster import (
    Group,
    Replica,
    Server,
    StreamInfo,
    leader_check,
    quota_check,
    replica_checks,
    size_checks,
    sync_checks,
)
from foldlog.eventlog.jetstream import JetStreamLog

from tests.cluster.nodes import Cluster, foldlog, until

GIB = 1024**3


def stream(name: str, leader: str = "a", *replicas: Replica, wanted: int = 3) -> StreamInfo:
    followers = replicas or tuple(Replica(name=each, current=True) for each in "abc" if each != leader)
    return StreamInfo(
        config={"name": name, "num_replicas": wanted}, cluster=Group(leader=leader, replicas=followers)
    )


def test_replicas_that_are_away_or_behind_are_named_and_a_stream_without_leader() -> None:
    behind = stream("S1", "a", Replica(name="b", lag=7), Replica(name="c", offline=True))
    told = [
        (check.state, check.detail)
        for check in replica_checks([behind, stream("S2", "", Replica(name="a", current=True))])
    ]
    assert told == [
        ("wrong", "the stream S2 has no leader"),
        ("wrong", "b is behind by 7 messages: 1 of 2 streams, such as S1"),
        ("wrong", "c is away: 1 of 2 streams, such as S1"),
    ]
    assert [check.state for check in replica_checks([stream("S1"), stream("S2", "b")])] == ["ok"]


def test_streams_on_fewer_servers_than_wanted_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    (check,) = size_checks([stream("S1"), stream("S2", wanted=1)])
    assert (check.state, check.detail) == ("wrong", "the stream S2 is on 1 of 3 servers")
    assert "--replicas 3" in check.remedy
    monkeypatch.setenv("FOLDLOG_REPLICAS", "5")
    assert len(list(size_checks([stream("S1")]))) == 1


def test_leaders_are_uneven_if_one_server_leads_far_more_than_its_share() -> None:
    assert leader_check([stream(f"S{n}", "abc"[n % 3]) for n in range(7)]).state == "ok"
    uneven = leader_check([stream(f"S{n}", "a") for n in range(7)])
    assert (uneven.state, uneven.detail) == ("unknown", "unevenly spread: a 7, b 0, c 0")


def test_each_server_is_asked_whether_it_syncs() -> None:
    good = Server(name="a", sync_always=True, used=0, limit=0)
    bad = Server(name="b", sync_always=False, used=0, limit=0)
    assert [check.state for check in sync_checks([good, bad], ["u1", "u2"])] == ["ok", "wrong"]
    assert [check.state for check in sync_checks([good], ["u1", "u2"])] == ["wrong", "ok"]
    assert [check.state for check in sync_checks([], [])] == ["unknown"]


def test_the_day_on_which_space_runs_out_is_named() -> None:
    soon = quota_check((90 * GIB, 100 * GIB), [], growth=2 * GIB)
    day = datetime.fromtimestamp(time.time() + 5 * 86_400, UTC).date()
    assert soon.state == "wrong"
    assert soon.detail == (
        f"10.0 GiB of 100.0 GiB left in the account's quota; grew by 2.0 GiB in a day: full on {day} at this rate"
    )
    full = Server(name="b", sync_always=True, used=99 * GIB, limit=100 * GIB)
    assert "the store of b" in quota_check((0, 100 * GIB), [full], growth=1024).detail
    assert quota_check((0, 100 * GIB), [], growth=GIB).state == "ok"
    assert quota_check((100 * GIB, 100 * GIB), [], growth=0).state == "wrong"
    assert quota_check((5, -1), [], growth=0).state == "unknown"
    assert quota_check(None, [], growth=0).state == "unknown"


@pytest.fixture(scope="module")
async def cluster(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        async with JetStreamLog.open(cluster.url, connect_timeout_s=60):
            pass
        yield cluster


async def doctor(cluster: Cluster, namespace: str = "default", *, expected: int) -> dict[str, list[Any]]:
    """The findings of the command, by name."""
    monitors = [f"--monitor=http://127.0.0.1:{node.monitor_port}" for node in cluster.nodes]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FOLDLOG_")}
    done = await asyncio.to_thread(
        subprocess.run,
        [foldlog(), "-n", namespace, "-s", cluster.url, "doctor", "--cluster", "--json", *monitors],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=120,
    )
    assert done.returncode == expected, done.stdout + done.stderr
    found: dict[str, list[Any]] = {}
    for check in json.loads(done.stdout)["checks"]:
        found.setdefault(check["name"], []).append(check)
    return found


@pytest.mark.nightly
async def test_doctor_finds_a_healthy_cluster_healthy_and_then_what_is_wrong_with_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await cluster.settled()
    found = await doctor(cluster, expected=0)
    assert {name: {check["state"] for check in found[name]} for name in ("replicas", "size", "sync")} == {
        "replicas": {"ok"},
        "size": {"ok"},
        "sync": {"ok", "unknown"},  # the unknown one is what clients can see
    }
    assert [check["detail"] for check in found["sync"] if check["state"] == "ok"] == [
        f"{node.name}: always" for node in cluster.nodes
    ]
    (space,) = found["space"]
    assert "left in the store of nats-" in space["detail"]
    monkeypatch.setenv("FOLDLOG_REPLICAS", "1")
    async with JetStreamLog.open(cluster.url, namespace="single", shards=1):
        pass
    monkeypatch.delenv("FOLDLOG_REPLICAS")
    sizes = (await doctor(cluster, "single", expected=1))["size"]
    assert {check["detail"] for check in sizes} >= {"the stream FL_single_00 is on 1 of 3 servers"}
    leader = await cluster.leader_of("FL_default_00")
    lost = next(node for node in cluster.nodes if node is not leader)
    lost.kill()

    async def is_missed() -> bool:
        away = [check["detail"] for check in (await doctor(cluster, expected=1)).get("replicas", [])]
        return any(told.startswith(f"{lost.name} is away: 7 of 7 streams") for told in away)

    await until(is_missed)
