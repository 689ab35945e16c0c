"""The checks of `foldlog doctor`, each a finding with what to do about it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import msgspec

from ...eventlog.embedded import ServerInfo, ensure_server, find_binary, log_directory
from ...eventlog.errors import ConfigError, FoldlogError
from ...eventlog.jetstream.audit import audit
from ...eventlog.jetstream.layout import SHARDS_KEY, Layout
from ...eventlog.jetstream.opening import check_server, compression_setting, role_setting
from ...eventlog.jetstream.wire import Refused, Wire
from .servers import address_of
from .settings import Settings

FREE_BYTES_MIN = 256 * 1024 * 1024
RESTORE = (
    "restore a copy of the log, or go on without what is lost: foldlog events verify --all --accept-loss"
)
_PACKAGES = ("foldlog", "nats-py", "openai", "mcp", "msgspec", "pydantic")
_STREAM_NOT_FOUND = 10059
# What a shard's stream must be set to; the rest is its operator's business.
_NEEDED = (
    "storage",
    "retention",
    "allow_direct",
    "allow_atomic",
    "allow_msg_schedules",
    "subjects",
    "republish",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """One finding. `unknown`: it cannot be seen from here, or may be meant so."""

    name: str
    state: Literal["ok", "unknown", "wrong"]
    told: str
    remedy: str = ""


class _Stream(msgspec.Struct, frozen=True):
    config: dict[str, Any]


async def all_checks(settings: Settings) -> AsyncIterator[Check]:
    """Everything, in the order in which it has to be right."""
    yield _python()
    yield _versions()
    for check in _keys():
        yield check
    url, is_ours = settings.server or os.environ.get("NATS_URL"), False
    if url == "memory://":
        yield Check(name="log", state="ok", told="in the memory of each process: gone when it ends")
        return
    yield _binary(needed=url is None)
    info: ServerInfo | None = None
    if url is None:
        try:
            info = await ensure_server()
        except FoldlogError as error:
            yield Check(name="server", state="wrong", told=_first(error), remedy=_rest(error))
            return
        url, is_ours = info.url, True
    async for check in _server(settings, url, info):
        yield check
    if is_ours:
        yield _disk()


def _python() -> Check:
    version = platform.python_version()
    return Check(name="python", state="ok", told=f"{version} ({sys.executable})")


def _versions() -> Check:
    found, missing = [], []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Check(
            name="packages",
            state="wrong",
            told=f"not installed: {', '.join(missing)}",
            remedy="pip install --upgrade foldlog",
        )
    return Check(name="packages", state="ok", told=", ".join(found))


def _keys() -> Iterator[Check]:
    """The keys of the providers. OpenAI's is not wrong to lack: other providers may be meant."""
    if os.environ.get("OPENAI_API_KEY"):
        yield Check(name="keys", state="ok", told="OPENAI_API_KEY is set")
    else:
        yield Check(
            name="keys",
            state="unknown",
            told="OPENAI_API_KEY is not set",
            remedy="agents with the model openai:... cannot run until it is",
        )
    from ..models.configured import load_providers

    try:
        providers = load_providers()
    except ConfigError as error:
        yield Check(name="providers", state="wrong", told=_first(error), remedy=_rest(error))
        return
    for name, provider in providers.items():
        try:
            provider.check("a model")
        except ConfigError as error:
            yield Check(name="providers", state="wrong", told=f"{name}: {error}")
        else:
            yield Check(name="providers", state="ok", told=name)


def _binary(*, needed: bool) -> Check:
    try:
        binary = find_binary()
        version = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, check=True
        ).stdout.strip()
    except FoldlogError as error:
        state: Literal["unknown", "wrong"] = "wrong" if needed else "unknown"
        return Check(name="nats-server", state=state, told=_first(error), remedy=_rest(error))
    except (OSError, subprocess.CalledProcessError) as error:
        return Check(name="nats-server", state="wrong", told=f"cannot be started: {error}")
    return Check(name="nats-server", state="ok", told=f"{version.rpartition(' ')[2]} ({binary})")


# --- the server -------------------------------------------------------------------------------------------------------


async def _server(settings: Settings, url: str, info: ServerInfo | None) -> AsyncIterator[Check]:
    try:
        inbox = Layout(settings.namespace).inbox(role_setting("caller"))
        wire = await Wire.open(url, inbox=inbox, name="foldlog doctor")
    except FoldlogError as error:
        yield Check(name="server", state="wrong", told=_first(error), remedy=_rest(error))
        return
    try:
        yield Check(name="server", state="ok", told=f"{wire.server_version} at {address_of(settings)}")
        try:
            check_server(wire)
        except ConfigError as error:
            yield Check(name="JetStream", state="wrong", told=_first(error), remedy=_rest(error))
            return
        yield Check(name="JetStream", state="ok", told="clustered" if wire.clustered else "one server")
        yield _sync(info)
        try:
            async for check in _streams(wire, settings.namespace):
                yield check
        except FoldlogError as error:
            yield Check(name="streams", state="wrong", told=_first(error), remedy=_rest(error))
    finally:
        await wire.close()


def _sync(info: ServerInfo | None) -> Check:
    if info is None:
        return Check(
            name="sync",
            state="unknown",
            told="a server does not tell its clients how it syncs",
            remedy="its configuration should say jetstream { sync_interval: always }; the default loses two minutes",
        )
    if info.risk is None:
        return Check(name="sync", state="ok", told="always: an event is on disk before it is acknowledged")
    return Check(
        name="sync", state="unknown", told=info.risk, remedy="unset FOLDLOG_SYNC, then foldlog log down"
    )


async def _streams(wire: Wire, namespace: str) -> AsyncIterator[Check]:
    layout = Layout(namespace)
    first = await _stream(wire, layout.shard(0))
    if first is None:
        left = await _stream(wire, layout.artifacts)
        if left is not None:
            async for check in _losses(wire, layout, int(left.get("metadata", {}).get(SHARDS_KEY, 1))):
                yield check
            return
        yield Check(
            name="streams", state="ok", told=f"none yet: the first run makes the namespace {namespace!r}"
        )
        return
    noted = str(first.get("metadata", {}).get(SHARDS_KEY, ""))
    if not noted.isdigit():
        told = f"the stream {layout.shard(0)} was not made by foldlog"
        yield Check(name="streams", state="wrong", told=told, remedy="use another namespace")
        return
    faults: list[str] = []
    for shard in range(int(noted)):
        found = first if shard == 0 else await _stream(wire, layout.shard(shard))
        faults += _faults(layout, shard, int(noted), found)
    if not faults:
        kept = f"each on {first.get('num_replicas', 1)} server(s)"
        told = f"{noted} shards of namespace {namespace!r}, {kept}, set as they should be"
        yield Check(name="streams", state="ok", told=told)
    for fault in faults:
        yield Check(name="streams", state="wrong", told=fault, remedy="set it back with `nats stream edit`")
    async for check in _losses(wire, layout, int(noted)):
        yield check


async def _losses(wire: Wire, layout: Layout, shards: int) -> AsyncIterator[Check]:
    """Return whether everything that was stored is there. Reads all of it."""
    found = await audit(wire, layout, shards)
    if not found.losses:
        told = f"none: {found.positions} positions are accounted for, {sum(found.sealed)} of them sealed"
        known = f"; {len(found.accepted)} losses that an operator accepted" if found.accepted else ""
        yield Check(name="losses", state="ok", told=told + known)
        return
    for line in found.lines():
        yield Check(name="losses", state="wrong", told=line, remedy=RESTORE)


async def _stream(wire: Wire, name: str) -> Mapping[str, Any] | None:
    try:
        return (await wire.api(f"STREAM.INFO.{name}", None, _Stream)).config
    except Refused as refused:
        if refused.err_code == _STREAM_NOT_FOUND:
            return None
        raise


def _faults(layout: Layout, shard: int, shards: int, found: Mapping[str, Any] | None) -> list[str]:
    name = layout.shard(shard)
    if found is None:
        return [f"the stream {name} is gone: runs of its shard are lost"]
    wanted = layout.shard_config(shard, shards, replicas=1)
    faults = [
        f"the stream {name} has {key} {found.get(key)!r}, not {wanted[key]!r}"
        for key in _NEEDED
        if not _covers(found.get(key), wanted[key])
    ]
    compression = compression_setting()
    if compression is not None and found.get("compression", "none") != compression:
        faults.append(
            f"the stream {name} has compression {found.get('compression', 'none')!r}, not {compression!r}"
        )
    if found.get("persist_mode") == "async":
        faults.append(f"the stream {name} has persist_mode async, which loses acknowledged events")
    faults += [
        f"the stream {name} drops events: {key} is {found[key]}"
        for key in ("max_msgs", "max_bytes", "max_age", "max_msgs_per_subject")
        if found.get(key, 0) > 0
    ]
    return faults


def _covers(found: Any, wanted: Any) -> bool:
    """A server adds what was left out; what was asked for has to be there."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(found.get(key) == value for key, value in wanted.items())
    return bool(found == wanted)


def _disk() -> Check:
    place = log_directory()
    with contextlib.suppress(StopIteration):
        place = next(path for path in (place, *place.parents) if path.exists())
    free = shutil.disk_usage(place).free
    told = f"{free / 1024**3:.1f} GiB free at {Path(place)}"
    if free < FREE_BYTES_MIN:
        return Check(name="disk", state="wrong", told=told, remedy="make room: a full disk stops the server")
    return Check(name="disk", state="ok", told=told)


def _first(error: BaseException) -> str:
    """What is wrong; our errors say behind the first colon or sentence what to do."""
    return " ".join(str(error).split()).partition(". ")[0].partition(": ")[0]


def _rest(error: BaseException) -> str:
    return " ".join(str(error).split()).removeprefix(_first(error)).lstrip(".: ")
