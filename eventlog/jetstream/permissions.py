"""The permissions of a user of a NATS account in one namespace, by role: enough for it, and nothing of others.

Streams are named one by one, since the wildcards of NATS cover whole tokens only. A user receives answers only below
its own inbox, so a connection that uses another one is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, get_args

from ..errors import ConfigError
from ..names import SHARDS_MAX
from .layout import Layout

Role = Literal["reader", "client", "retention", "worker", "operator"]
Permissions = Mapping[Literal["publish", "subscribe"], tuple[str, ...]]

ROLES: tuple[Role, ...] = get_args(Role)
REPLIES: frozenset[Role] = frozenset({"worker", "operator"})
"""The roles that answer requests: those that are asked whether they are alive."""

_API = "$JS.API"


def permissions(
    namespace: str, role: Role, *, shards: int, inbox: str = "", volatile: bool = False
) -> Permissions:
    """Return the subjects that a user may publish and subscribe to.

    `inbox` is the name under which its answers come, by default the role. `volatile` lets a worker make the streams in
    memory again, which a single server forgets when it restarts.
    Raises `ConfigError` for an invalid name or number of shards.
    """
    if not 1 <= shards <= SHARDS_MAX:
        raise ConfigError(f"shards is {shards}; it can be 1 to {SHARDS_MAX}")
    layout = Layout(namespace)
    answers = f"{layout.inbox(inbox or role).decode()}.>"
    publish = [subject for part in _PARTS[role] for subject in part(layout, shards)]
    if volatile and role == "worker":
        publish += [f"{_API}.STREAM.CREATE.{stream}" for stream in (layout.leases, layout.drafts)]
    heard = [
        answers,
        f"live.fl.{namespace}.>",
        f"draft.{namespace}.>",
        layout.died.decode(),
        layout.gone.decode(),
    ]
    if role in REPLIES:
        heard.append(f"alive.{namespace}.*")
    return {"publish": tuple(dict.fromkeys(publish)), "subscribe": tuple(heard)}


def _shards(layout: Layout, shards: int) -> list[str]:
    return [layout.shard(shard) for shard in range(shards)]


def _streams(layout: Layout, shards: int) -> list[str]:
    return [*_shards(layout, shards), layout.leases, layout.drafts, layout.artifacts, layout.snapshots]


def _reads(layout: Layout, shards: int) -> list[str]:
    streams = _streams(layout, shards)
    return [
        *(f"{_API}.STREAM.INFO.{stream}" for stream in streams),
        *(f"{_API}.DIRECT.GET.{stream}" for stream in streams),
        *(f"{_API}.DIRECT.GET.{stream}.>" for stream in streams),
        *(f"{_API}.{request}.{layout.keys}" for request in ("STREAM.INFO", "STREAM.MSG.GET", "DIRECT.GET")),
        layout.drafts_mark.decode(),
        f"alive.{layout.namespace}.*",
    ]


def _writes(layout: Layout, shards: int) -> list[str]:
    """Return what commands and answers of people need; a purge removes timers, a leader's answer is never stale."""
    return [
        *(f"{_API}.STREAM.MSG.GET.{stream}" for stream in _shards(layout, shards)),
        f"fl.{layout.namespace}.>",
        f"live.fl.{layout.namespace}.*.over.>",
        layout.all_artifacts.decode(),
        f"sealkey.{layout.namespace}.*",
        *(f"{_API}.STREAM.{request}.{layout.keys}" for request in ("CREATE", "MSG.DELETE")),
        *(f"{_API}.STREAM.PURGE.{stream}" for stream in _shards(layout, shards)),
    ]


def _erases(layout: Layout, shards: int) -> list[str]:
    logs, bytes_of = _shards(layout, shards), (layout.artifacts, layout.snapshots)
    return [
        *(f"{_API}.STREAM.MSG.DELETE.{stream}" for stream in (*logs, *bytes_of)),
        *(f"{_API}.CONSUMER.INFO.{stream}.*" for stream in logs),
        f"{_API}.STREAM.PURGE.{layout.drafts}",
    ]


def _drives(layout: Layout, shards: int) -> list[str]:
    logs, name = _shards(layout, shards), layout.namespace
    return [
        *(f"{kind}.{name}.>" for kind in ("snapshot", "draft", "lease")),
        layout.died.decode(),
        f"{_API}.STREAM.PURGE.{layout.leases}",
        *(f"{_API}.CONSUMER.CREATE.{stream}.>" for stream in (*logs, layout.leases)),
        f"{_API}.CONSUMER.DELETE.{layout.leases}.*",
        *(f"{_API}.CONSUMER.MSG.NEXT.{stream}.*" for stream in logs),
        *(f"$JS.ACK.{stream}.>" for stream in logs),
    ]


def _owns(layout: Layout, shards: int) -> list[str]:
    streams = _streams(layout, shards)
    return [
        *(f"{_API}.STREAM.*.{stream}" for stream in streams),
        *(f"{_API}.STREAM.MSG.*.{stream}" for stream in streams),
        *(f"{_API}.CONSUMER.*.{stream}" for stream in streams),
        *(f"{_API}.CONSUMER.*.{stream}.>" for stream in streams),
    ]


_PARTS: Mapping[Role, tuple[Callable[[Layout, int], list[str]], ...]] = {
    "reader": (_reads,),
    "client": (_reads, _writes),
    "retention": (_reads, _writes, _erases),
    "worker": (_reads, _writes, _erases, _drives),
    "operator": (_reads, _writes, _erases, _drives, _owns),
}
