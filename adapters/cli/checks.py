"""The checks of `foldlog doctor`: each yields a finding and its remedy."""

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
FAULTS_MAX = 4
"""The limit of listed faults of one kind."""
RESTORE = (
    "restore a backup of the log, or continue without the lost data: foldlog events verify --all --accept-loss; what "
    "is left of a run that lacks commits is erased by foldlog runs delete RUN"
)
_PACKAGES = ("foldlog", "nats-py", "openai", "mcp", "msgspec", "pydantic")
_STREAM_NOT_FOUND = 10059
# The settings that a shard's stream must have; the operator may choose all others.
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
    """One finding. The state `unknown` means that it cannot be checked from here, or may be intended."""

    name: str
    state: Literal["ok", "unknown", "wrong"]
    detail: str
    remedy: str = ""


class _Stream(msgspec.Struct, frozen=True):
    config: dict[str, Any]


async def all_checks(settings: Settings) -> AsyncIterator[Check]:
    """Yield all findings, prerequisites first."""
    yield _python()
    yield _versions()
    for check in _keys():
        yield check
    unsealed = _wrapping_key()
    if unsealed is not None:
        yield unsealed
    url, is_ours = settings.server or os.environ.get("NATS_URL"), False
    if url == "memory://":
        yield Check(name="log", state="ok", detail="in the memory of each process; gone when it exits")
        return
    yield _binary(needed=url is None)
    info: ServerInfo | None = None
    if url is None:
        try:
            info = await ensure_server()
        except FoldlogError as error:
            yield Check(name="server", state="wrong", detail=_first(error), remedy=_rest(error))
            return
        url, is_ours = info.url, True
    async for check in _server(settings, url, info):
        yield check
    if is_ours:
        yield _disk()


def _python() -> Check:
    version = platform.python_version()
    return Check(name="python", state="ok", detail=f"{version} ({sys.executable})")


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
            detail=f"not installed: {', '.join(missing)}",
            remedy="pip install --upgrade foldlog",
        )
    return Check(name="packages", state="ok", detail=", ".join(found))


def _keys() -> Iterator[Check]:
    """Yield the findings on providers. A missing OpenAI key is no error: the agents may use other providers."""
    if os.environ.get("OPENAI_API_KEY"):
        yield Check(name="keys", state="ok", detail="OPENAI_API_KEY is set")
    else:
        yield Check(
            name="keys",
            state="unknown",
            detail="OPENAI_API_KEY is not set",
            remedy="set it to run agents with the model openai:...",
        )
    yield _vendors()
    from ..models.configured import load_providers

    try:
        providers = load_providers()
    except ConfigError as error:
        yield Check(name="providers", state="wrong", detail=_first(error), remedy=_rest(error))
        return
    for name, provider in providers.items():
        try:
            provider.check("a model")
        except ConfigError as error:
            yield Check(name="providers", state="wrong", detail=f"{name}: {error}")
        else:
            yield Check(name="providers", state="ok", detail=name)


def _wrapping_key() -> Check | None:
    """Return the finding on a wrapping key that is configured and cannot be had."""
    from ...runtime.opening import seal_setting

    try:
        seal_setting()
    except ConfigError as error:
        remedy = (
            "make it there as it was for the processes that write; `foldlog keys generate` makes a first one"
        )
        return Check(name="seal", state="wrong", detail=str(error), remedy=remedy)
    return None


def _binary(*, needed: bool) -> Check:
    try:
        binary = find_binary()
        version = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, check=True
        ).stdout.strip()
    except FoldlogError as error:
        state: Literal["unknown", "wrong"] = "wrong" if needed else "unknown"
        return Check(name="nats-server", state=state, detail=_first(error), remedy=_rest(error))
    except (OSError, subprocess.CalledProcessError) as error:
        return Check(name="nats-server", state="wrong", detail=f"cannot start: {error}")
    return Check(name="nats-server", state="ok", detail=f"{version.rpartition(' ')[2]} ({binary})")


# --- the server -------------------------------------------------------------------------------------------------------


async def _server(settings: Settings, url: str, info: ServerInfo | None) -> AsyncIterator[Check]:
    try:
        inbox = Layout(settings.namespace).inbox(role_setting("client"))
        wire = await Wire.open(url, inbox=inbox, name="foldlog doctor")
    except FoldlogError as error:
        yield Check(name="server", state="wrong", detail=_first(error), remedy=_rest(error))
        return
    try:
        yield Check(name="server", state="ok", detail=f"{wire.server_version} at {address_of(settings)}")
        try:
            check_server(wire)
        except ConfigError as error:
            yield Check(name="JetStream", state="wrong", detail=_first(error), remedy=_rest(error))
            return
        yield Check(name="JetStream", state="ok", detail="clustered" if wire.clustered else "one server")
        yield _sync(info)
        try:
            async for check in _streams(wire, settings.namespace):
                yield check
            is_there = await _stream(wire, Layout(settings.namespace).shard(0)) is not None
            if is_there and _wrapping_key() is None:
                async for check in _sealed(settings):
                    yield check
        except FoldlogError as error:
            yield Check(name="streams", state="wrong", detail=_first(error), remedy=_rest(error))
    finally:
        await wire.close()


def _sync(info: ServerInfo | None) -> Check:
    if info is None:
        return Check(
            name="sync",
            state="unknown",
            detail="a server does not report its sync setting to clients",
            remedy="configure jetstream { sync_interval: always }; the default may lose two minutes at a power failure",
        )
    if info.risk is None:
        return Check(name="sync", state="ok", detail="always: an event is on disk before it is acknowledged")
    return Check(
        name="sync", state="unknown", detail=info.risk, remedy="unset FOLDLOG_SYNC, then foldlog log down"
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
            name="streams", state="ok", detail=f"none yet: the first run creates the namespace {namespace!r}"
        )
        return
    noted = str(first.get("metadata", {}).get(SHARDS_KEY, ""))
    if not noted.isdigit():
        told = f"the stream {layout.shard(0)} was not created by foldlog"
        yield Check(name="streams", state="wrong", detail=told, remedy="use another namespace")
        return
    faults: list[str] = []
    for shard in range(int(noted)):
        found = first if shard == 0 else await _stream(wire, layout.shard(shard))
        faults += _faults(layout, shard, int(noted), found)
    if not faults:
        kept = f"replicas: {first.get('num_replicas', 1)}"
        told = f"{noted} shards of namespace {namespace!r}, {kept}, configured correctly"
        yield Check(name="streams", state="ok", detail=told)
    for fault in faults:
        yield Check(name="streams", state="wrong", detail=fault, remedy="restore it with `nats stream edit`")
    async for check in _losses(wire, layout, int(noted)):
        yield check


async def _losses(wire: Wire, layout: Layout, shards: int) -> AsyncIterator[Check]:
    """Check that nothing that was stored is lost. Reads the whole log."""
    found = await audit(wire, layout, shards)
    if not found.losses:
        told = f"none: all {found.positions} positions are accounted for, {sum(found.sealed)} of them sealed"
        known = f"; {len(found.accepted)} losses accepted by an operator" if found.accepted else ""
        yield Check(name="losses", state="ok", detail=told + known)
        return
    for line in found.lines():
        yield Check(name="losses", state="wrong", detail=line, remedy=RESTORE)


async def _sealed(settings: Settings) -> AsyncIterator[Check]:
    """Check that each sealed run has its key, and that this process can unwrap all keys."""
    from ...eventlog.sealing import SealedLog
    from ...eventlog.sealing.keyring import owner_in_list
    from ...projections.run_list import SEALED
    from .opening import opened

    async with opened(settings) as runtime:
        log = runtime.log
        if not isinstance(log, SealedLog):
            return
        records = {record.owner: record async for record in log.ring.records()}
        failed: dict[str, str] = {}
        for record in records.values():
            try:
                await log.ring.check(record)
            except FoldlogError as error:
                failed.setdefault(str(error), record.owner)
        rows = await (await runtime.index()).runs(-1, children=False)
    owners = {
        owner_in_list(row.user, row.session, row.run_id)
        for row in rows
        if row.input == SEALED and row.forked_from is None
    }
    missing = sorted(owners - records.keys())
    for problem in list(failed)[:FAULTS_MAX]:
        yield Check(name="seal", state="wrong", detail=problem, remedy="")
    if missing:
        told = f"{len(missing)} owners of sealed runs have no key here, such as {missing[0]}"
        yield Check(name="seal", state="wrong", detail=told, remedy="foldlog keys import FILE")
    if not failed and not missing:
        usable = sum(record.key is not None for record in records.values())
        erased = sum(len(record.erased) for record in records.values())
        told = f"content is sealed: {usable} keys, all of which can be unwrapped here; {erased} erased"
        yield Check(name="seal", state="ok", detail=told)


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
    """Return whether `found` has all wanted settings; a server adds defaults for others."""
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
        return Check(
            name="disk", state="wrong", detail=told, remedy="free some space: a full disk stops the server"
        )
    return Check(name="disk", state="ok", detail=told)


def _vendors() -> Check:
    """Report the vendors of the extra `foldlog[models]` that are installed, and those that have a key.

    The SDK of a vendor without a variable for its key may have to ask the network for one, so it is not looked for.
    """
    from ..models.vendors import VendorProvider
    from ..models.vendors.vendors import VENDORS

    states = ("can be called", "the SDK looks for the key", "no key", "not installed")
    found: dict[str, list[str]] = {state: [] for state in states}
    for name, vendor in VENDORS.items():
        try:
            VendorProvider(name).check("a model")
        except ConfigError:
            found["no key" if vendor.is_installed else "not installed"].append(name)
        else:
            found["can be called" if vendor.keys else "the SDK looks for the key"].append(name)
    told = "; ".join(f"{state}: {', '.join(names)}" for state, names in found.items() if names)
    return Check(name="vendors", state="ok", detail=told)


def _first(error: BaseException) -> str:
    """Return the part of our error message before the first colon or sentence end: what is wrong."""
    return " ".join(str(error).split()).partition(". ")[0].partition(": ")[0]


def _rest(error: BaseException) -> str:
    return " ".join(str(error).split()).removeprefix(_first(error)).lstrip(".: ")
