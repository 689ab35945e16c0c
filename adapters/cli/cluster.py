"""`foldlog doctor --cluster`: replicas, leaders and sizes of streams, fsync of servers, and free space."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import msgspec

from ...eventlog.embedded import ensure_server
from ...eventlog.errors import ConfigError, LogUnavailable
from ...eventlog.jetstream import headers
from ...eventlog.jetstream.audit import shards_of
from ...eventlog.jetstream.layout import Layout
from ...eventlog.jetstream.opening import REPLICAS_IN_CLUSTER, replicas_setting, role_setting
from ...eventlog.jetstream.wire import Refused, Unanswered, Wire
from .checks import Check
from .settings import Settings

LEAD_MAX = 2
"""How many streams more than its share a server may lead."""
AWAY_S = 5
"""A replica counts as away after this many seconds without contact."""
DAY_S = 86_400
SOON_DAYS = 14
"""A quota that lasts for fewer days than this is reported as wrong."""
MONITOR_S = 5.0


class Replica(msgspec.Struct, frozen=True):
    """Another server's copy of a stream, as its leader sees it. `active`: nanoseconds since its last contact."""

    name: str
    current: bool = False
    offline: bool = False
    active: int = 0
    lag: int = 0


class Group(msgspec.Struct, frozen=True):
    """The servers that keep a stream."""

    leader: str = ""
    replicas: tuple[Replica, ...] = ()


class StreamState(msgspec.Struct, frozen=True):
    """The number of messages and bytes in a stream."""

    messages: int = 0
    bytes: int = 0


class StreamInfo(msgspec.Struct, frozen=True):
    """A stream as the server describes it."""

    config: dict[str, Any]
    state: StreamState = StreamState()
    cluster: Group | None = None

    @property
    def name(self) -> str:
        """The name of the stream."""
        return str(self.config["name"])

    @property
    def wanted(self) -> int:
        """The configured number of replicas."""
        return int(self.config.get("num_replicas", 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Server:
    """A server as its monitoring describes it: its name, whether it syncs each write, and its store (bytes)."""

    name: str
    sync_always: bool
    used: int
    limit: int


async def cluster_checks(settings: Settings, monitors: Sequence[str]) -> AsyncIterator[Check]:
    """Yield the findings on the servers of a namespace. Raises `ConfigError` for an invalid monitoring address."""
    layout = Layout(settings.namespace)
    for monitor in monitors:
        if not monitor.startswith(("http://", "https://")):
            raise ConfigError(
                f"--monitor takes the URL of a server's monitoring, http://host:8222, not {monitor!r:.80}"
            )
    servers = [found for each in monitors if (found := await _server(each))]
    for check in sync_checks(servers, monitors):
        yield check
    try:
        async for check in _of_streams(settings, layout, servers):
            yield check
    except (LogUnavailable, Refused, ConfigError) as error:
        told = " ".join(str(error).split())
        yield _wrong("cluster", f"the streams cannot be asked: {told}", "see docs/runbooks/lost-quorum.md")


async def _of_streams(settings: Settings, layout: Layout, servers: Sequence[Server]) -> AsyncIterator[Check]:
    url = settings.server or os.environ.get("NATS_URL") or (await ensure_server()).url
    wire = await Wire.open(url, inbox=layout.inbox(role_setting("client")), name="foldlog doctor")
    try:
        if not wire.clustered:
            yield Check(name="cluster", state="unknown", detail="one server: nothing is replicated")
        shards = await shards_of(wire, layout)
        if shards is None:
            return
        names = [*map(layout.shard, range(shards)), layout.artifacts, layout.snapshots, layout.leases]
        streams = [await wire.api(f"STREAM.INFO.{name}", None, StreamInfo) for name in names]
        if wire.clustered:
            for check in (*replica_checks(streams), *size_checks(streams), leader_check(streams)):
                yield check
        growth = sum(
            [await _grown(wire, stream) for stream in streams if stream.config.get("storage") == "file"]
        )
        yield quota_check(await _quota(wire), servers, growth)
    finally:
        await wire.close()


def replica_checks(streams: Sequence[StreamInfo]) -> Iterator[Check]:
    """Yield a finding for each server that is away or behind and each leaderless stream; if there are none, say so."""
    leaderless = [stream.name for stream in streams if not (stream.cluster or Group()).leader]
    missed: dict[str, list[tuple[Replica, str]]] = {}
    for stream in streams:
        for replica in (stream.cluster or Group()).replicas:
            if replica.offline or not replica.current:
                missed.setdefault(replica.name, []).append((replica, stream.name))
    for name in leaderless:
        yield _wrong("replicas", f"the stream {name} has no leader", "see docs/runbooks/lost-quorum.md")
    for server, found in sorted(missed.items()):
        away = any(replica.offline or replica.active > AWAY_S * 1e9 for replica, _ in found)
        lag = sum(replica.lag for replica, _ in found)
        yield _wrong(
            "replicas",
            f"{server} is {'away' if away else f'behind by {lag} messages'}: "
            f"{len(found)} of {len(streams)} streams, such as {found[0][1]}",
            "see docs/runbooks/lost-node.md; stop no other server before this one is current",
        )
    if not leaderless and not missed:
        yield Check(name="replicas", state="ok", detail=f"all replicas of {len(streams)} streams are current")


def size_checks(streams: Sequence[StreamInfo]) -> Iterator[Check]:
    """Yield a finding for each stream with fewer replicas than wanted; if there are none, say so."""
    wanted = replicas_setting() or REPLICAS_IN_CLUSTER
    wrong = [stream for stream in streams if stream.wanted < wanted]
    for stream in wrong:
        yield _wrong(
            "size",
            f"the stream {stream.name} is on {stream.wanted} of {wanted} servers",
            f"nats stream edit {stream.name} --replicas {wanted}",
        )
    if not wrong:
        yield Check(name="size", state="ok", detail=f"each stream is on {wanted} servers or more")


def leader_check(streams: Sequence[StreamInfo]) -> Check:
    """Report how many streams each server leads; a server that leads most streams does most of the work."""
    leads = Counter(stream.cluster.leader for stream in streams if stream.cluster and stream.cluster.leader)
    servers = {leads_it for stream in streams if stream.cluster for leads_it in _named(stream.cluster)}
    told = ", ".join(f"{server} {leads.get(server, 0)}" for server in sorted(servers))
    share = -(-len(streams) // max(1, len(servers)))
    if max(leads.values(), default=0) > share + LEAD_MAX:
        return Check(
            name="leaders",
            state="unknown",
            detail=f"unevenly spread: {told}",
            remedy="nats stream cluster balance, at a quiet time",
        )
    return Check(name="leaders", state="ok", detail=f"spread over the servers: {told}")


def sync_checks(servers: Sequence[Server], monitors: Sequence[str]) -> Iterator[Check]:
    """Yield whether each server syncs a message to disk before it acknowledges it."""
    if not monitors:
        yield Check(
            name="sync",
            state="unknown",
            detail="servers tell it at their monitoring only",
            remedy="foldlog doctor --cluster --monitor http://HOST:8222, once for each server",
        )
    elif len(servers) < len(monitors):
        yield _wrong(
            "sync",
            f"{len(monitors) - len(servers)} of {len(monitors)} servers do not answer at --monitor",
            "",
        )
    for server in servers:
        if server.sync_always:
            yield Check(name="sync", state="ok", detail=f"{server.name}: always")
        else:
            yield _wrong(
                "sync",
                f"{server.name} acknowledges writes that are not on its disk yet",
                "configure jetstream { sync_interval: always }",
            )


def quota_check(quota: tuple[int, int] | None, servers: Sequence[Server], growth: int) -> Check:
    """Report the free space, and when it runs out at today's rate. `quota`: the account's used bytes and limit."""
    limits = [] if quota is None or quota[1] <= 0 else [("the account's quota", *quota)]
    limits += [
        (f"the store of {server.name}", server.used, server.limit) for server in servers if server.limit > 0
    ]
    if not limits:
        why = "this user may not ask for the account's quota" if quota is None else "the account has no quota"
        return Check(
            name="space",
            state="unknown",
            detail=f"{why}; the namespace grew by {_size(growth)} in a day",
            remedy="name the servers' monitoring: --monitor http://HOST:8222",
        )
    what, used, limit = min(limits, key=lambda each: each[2] - each[1])
    left = max(0, limit - used)
    told = f"{_size(left)} of {_size(limit)} left in {what}; grew by {_size(growth)} in a day"
    if growth <= 0:
        return Check(name="space", state="ok" if left else "wrong", detail=told)
    days = left / growth
    if days > DAY_S:
        return Check(name="space", state="ok", detail=told)
    day = datetime.fromtimestamp(time.time() + days * DAY_S, UTC).date()
    told += f": full on {day} at this rate"
    if days < SOON_DAYS:
        return _wrong("space", told, "see docs/runbooks/disk-full.md")
    return Check(name="space", state="ok", detail=told)


def _wrong(name: str, detail: str, remedy: str) -> Check:
    return Check(name=name, state="wrong", detail=detail, remedy=remedy)


def _named(group: Group) -> list[str]:
    return [*([group.leader] if group.leader else []), *(replica.name for replica in group.replicas)]


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:  # noqa: PLR2004
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


class _Limits(msgspec.Struct, frozen=True):
    max_storage: int = -1


class _Account(msgspec.Struct, frozen=True):
    storage: int = 0
    limits: _Limits = _Limits()
    tiers: dict[str, Any] = {}


async def _quota(wire: Wire) -> tuple[int, int] | None:
    """Return the bytes that the account has stored and may store; None if this user may not ask."""
    try:
        account = await wire.api("INFO", None, _Account)
    except (ConfigError, Refused, Unanswered):
        return None
    return account.storage, account.limits.max_storage


async def _grown(wire: Wire, stream: StreamInfo) -> int:
    """Estimate the bytes that the stream stored within the last day, on all replicas together."""
    since = datetime.fromtimestamp(time.time() - DAY_S, UTC).isoformat().replace("+00:00", "Z")
    body = json.dumps({"start_time": since, "next_by_subj": ">", "batch": 1}).encode()
    *found, end = await wire.request_many(b"$JS.API.DIRECT.GET." + stream.name.encode(), body)
    newer = len(found) + headers.number(end[0], b"Nats-Num-Pending")
    return stream.state.bytes * newer // max(1, stream.state.messages) * stream.wanted


async def _server(monitor: str) -> Server | None:
    return await asyncio.to_thread(_asked, monitor.rstrip("/"))


def _asked(monitor: str) -> Server | None:
    try:
        with closing(urllib.request.urlopen(f"{monitor}/jsz", timeout=MONITOR_S)) as answer:  # noqa: S310
            page: Mapping[str, Any] = json.load(answer)
        with closing(urllib.request.urlopen(f"{monitor}/varz", timeout=MONITOR_S)) as answer:  # noqa: S310
            name = str(json.load(answer).get("server_name", monitor))
    except (OSError, ValueError):
        return None
    config = page.get("config") or {}
    return Server(
        name=name,
        sync_always=bool(config.get("sync_always")),
        used=int(page.get("storage", 0)),
        limit=int(config.get("max_storage", 0)),
    )
