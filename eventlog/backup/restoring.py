"""Restoring a backup into an empty namespace, on this server or another, under its name or another one (W55, W56).

Meanwhile no other process can write to the namespace: its streams take no message on their own subjects,
only on those behind a *gate*, a prefix that no other process knows. So no worker goes on with a run before all open
runs are held, even one that has waited for the namespace all along. The streams are marked, so that processes that
open the namespace are told, and leftovers of a restore that was killed are recognised.

Under another name a stream is first restored apart, and then mirrored with its subjects renamed; the mirror keeps all
positions, and becomes a stream of its own. Consumers and timers are not taken over then: both are made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ConfigError, LogUnavailable
from ..jetstream import JetStreamLog
from ..jetstream.known_losses import accept, known_losses
from ..jetstream.layout import RESTORING_KEY, Layout
from ..jetstream.opening import REPLICAS_IN_CLUSTER, check_server, replicas_setting, role_setting
from ..jetstream.removals import note_removal, remove_at, removed
from ..jetstream.seals import read_seals, seal_shard
from ..jetstream.wire import Done, Refused, Wire
from ..losses import Loss
from .batches import drop_end, end_of
from .manifest import Manifest, SavedStream
from .snapshots import load
from .taking import durable_consumers

_POLL_S = 0.1
_SERVERS_OWN = "_nats."
"""The beginning of the keys of a stream's metadata that the server sets itself."""


class _Names(msgspec.Struct, frozen=True):
    total: int = 0
    streams: list[str] | None = None


class _Config(msgspec.Struct, frozen=True):
    metadata: dict[str, str] = {}


class _Mirror(msgspec.Struct, frozen=True):
    lag: int = 0
    active: int = -1


class _Replica(msgspec.Struct, frozen=True):
    current: bool = False
    offline: bool = False


class _Group(msgspec.Struct, frozen=True):
    replicas: list[_Replica] = []


class _Info(msgspec.Struct, frozen=True):
    config: _Config = _Config()
    state: dict[str, Any] = {}
    mirror: _Mirror | None = None
    cluster: _Group = _Group()

    @property
    def last(self) -> int:
        """The position of the last message that was ever stored, 0 if there was none."""
        return int(self.state.get("last_seq", 0))

    @property
    def behind(self) -> bool:
        """True if a replica that can be reached has not everything yet."""
        return any(not (each.current or each.offline) for each in self.cluster.replicas)


class Restoring:
    """A restore at work. `log` is the restored log, to which only this process can write until `finish`.

    `missing_consumers` are durable consumers that the server left out of a snapshot; workers make them again.
    """

    def __init__(self, wire: Wire, layout: Layout, manifest: Manifest, log: JetStreamLog, gate: str) -> None:
        self._wire, self._layout, self._manifest, self._gate = wire, layout, manifest, gate
        self.log = log
        self.missing_consumers: tuple[str, ...] = ()

    async def finish(self) -> None:
        """Let everybody write to the namespace: all that had to be stored before is stored."""
        await self.log.events.sealer.close()
        for stream in _last_first(self._manifest):
            config = _config(self._wire, self._layout, stream)
            await self._wire.api(f"STREAM.UPDATE.{config['name']}", config, Done)


@contextlib.asynccontextmanager
async def restoring(
    url: str,
    directory: Path,
    manifest: Manifest,
    namespace: str,
    tell: Callable[[str], object] = lambda _line: None,
) -> AsyncIterator[Restoring]:
    """Restore the streams of a backup behind a gate, and yield the log behind it; removes them after an error.

    Raises `ConfigError` (the namespace is not empty, the server is too old), `LogUnavailable` (also for no space).
    """
    layout, gate = Layout(namespace), f"restore.{secrets.token_hex(8)}"
    wire = await Wire.open(url, inbox=layout.inbox(role_setting("client")), name="foldlog backup")
    try:
        check_server(wire)
        await _make_room(wire, layout)
        try:
            missing: list[str] = []
            ends: dict[int | None, int] = {}
            for stream in _last_first(manifest):
                ends[stream.shard] = await _restore(wire, layout, directory, manifest, stream, gate)
                while (await _info(wire, _name(layout, stream))).behind:  # noqa: ASYNC110 - the server says nothing
                    await asyncio.sleep(_POLL_S)
                if layout.namespace == manifest.namespace:
                    there = await durable_consumers(wire, stream.name)
                    missing += sorted(set(stream.consumers) - set(there))
                tell(f"restored {_name(layout, stream)}: {stream.messages} messages")
            await _set_seals_again(wire, layout, manifest, ends)
            async with JetStreamLog.open(url, namespace=namespace, name="foldlog backup", gate=gate) as log:
                work = Restoring(wire, layout, manifest, log, gate)
                work.missing_consumers = tuple(missing)
                yield work
        except BaseException:
            with contextlib.suppress(LogUnavailable):
                await asyncio.shield(_remove(wire, layout))
            raise
    finally:
        await wire.close()


def _last_first(manifest: Manifest) -> list[SavedStream]:
    """Return the streams in the order of the gates; the first shard, without which no namespace opens, is the last."""
    return sorted(manifest.streams, key=lambda each: (each.shard is not None, -(each.shard or 0)))


def _name(layout: Layout, stream: SavedStream) -> str:
    return layout.artifacts if stream.shard is None else layout.shard(stream.shard)


def _subjects(layout: Layout, stream: SavedStream) -> str:
    if stream.shard is None:
        return layout.all_artifacts.decode()
    return layout.everything(stream.shard).decode()


# --- an empty namespace -----------------------------------------------------------------------------------------------


async def _make_room(wire: Wire, layout: Layout) -> None:
    """Raise `ConfigError` unless the namespace is empty; what a killed restore has left is removed.

    So are streams that have never had a message, such as those that any command makes in a namespace without streams.
    """
    found = {name: await _info(wire, name) for name in await _streams(wire, layout)}
    lasting = [name for name in found if name not in {layout.leases, layout.drafts}]
    marked = [name for name in lasting if RESTORING_KEY in found[name].config.metadata]
    # The first shard loses its mark last, and before that no process can open the namespace.
    if layout.shard(0) in marked or (lasting and lasting == marked):
        await _remove(wire, layout)
        return
    unmarked = [name for name in found if name not in marked]
    _must_be_unused(wire, layout, [name for name in unmarked if found[name].last])
    for name in found:
        # The server cannot delete a stream on the condition that it has no message. So look again right before: only
        # what another process stores between this reply and the deletion would be lost.
        if name in unmarked and (await _info(wire, name)).last:
            _must_be_unused(wire, layout, [name])
        with contextlib.suppress(Refused):
            await wire.api(f"STREAM.DELETE.{name}", None, Done)


def _must_be_unused(wire: Wire, layout: Layout, used: list[str]) -> None:
    if used:
        raise ConfigError(
            f"the namespace {layout.namespace!r} at {wire.url} is not empty (it has {', '.join(used[:4])}): a backup "
            "is restored only into an empty one. Name another with --as, or stop everything that uses this one and "
            "delete its streams"
        )


async def _streams(wire: Wire, layout: Layout) -> list[str]:
    """Return the streams of the namespace, and those that a restore has put apart for it."""
    prefixes = (f"FL_{layout.namespace}_", f"{_apart(layout)}_")
    names: list[str] = []
    while True:
        page = await wire.api("STREAM.NAMES", {"offset": len(names)}, _Names)
        names += page.streams or []
        if not page.streams or len(names) >= page.total:
            break
    known = {layout.artifacts, layout.snapshots, layout.leases, layout.drafts}
    return sorted(n for n in names if n.startswith(prefixes) and (n in known or _is_shard(n, prefixes)))


def _is_shard(name: str, prefixes: tuple[str, ...]) -> bool:
    rest = next(name.removeprefix(prefix) for prefix in prefixes if name.startswith(prefix))
    return rest == "artifacts" or (len(rest) == 2 and all(c in "0123456789abcdef" for c in rest))  # noqa: PLR2004


def _apart(layout: Layout) -> str:
    """Return the beginning of the names of streams that are restored apart, to be renamed."""
    return f"FLR_{layout.namespace}"


async def _remove(wire: Wire, layout: Layout) -> None:
    for name in await _streams(wire, layout):
        with contextlib.suppress(Refused):
            await wire.api(f"STREAM.DELETE.{name}", None, Done)


async def _info(wire: Wire, name: str) -> _Info:
    return await wire.api(f"STREAM.INFO.{name}", None, _Info)


# --- one stream -------------------------------------------------------------------------------------------------------


def _config(wire: Wire, layout: Layout, stream: SavedStream) -> dict[str, Any]:
    """Return the configuration that the stream is to have: as saved, in this namespace, with this server's replicas."""
    config = {key: value for key, value in stream.config.items() if key not in {"mirror", "sources"}}
    kept = {k: v for k, v in stream.config.get("metadata", {}).items() if not k.startswith(_SERVERS_OWN)}
    config["metadata"] = {k: v for k, v in kept.items() if k != RESTORING_KEY}
    config["name"], config["subjects"] = _name(layout, stream), [_subjects(layout, stream)]
    config["num_replicas"] = replicas_setting() or (REPLICAS_IN_CLUSTER if wire.clustered else 1)
    config.pop("subject_transform", None)
    if stream.shard is not None:
        prefix = layout.prefix(stream.shard)
        config["republish"] = {"src": f"{prefix}.run.>", "dest": f"live.{prefix}.run.>"}
    return config


def _gated(config: Mapping[str, Any], gate: str) -> dict[str, Any]:
    """Return the configuration with the gate: messages come in by other subjects, and are stored under their own."""
    (subjects,) = config["subjects"]
    gated = {
        **config,
        "subjects": [f"{gate}.{subjects}"],
        "subject_transform": {"src": f"{gate}.{subjects}", "dest": subjects},
        "metadata": {**config["metadata"], RESTORING_KEY: gate},
    }
    gated.pop("republish", None)
    return gated


async def _restore(
    wire: Wire, layout: Layout, directory: Path, manifest: Manifest, stream: SavedStream, gate: str
) -> int:
    """Restore one stream behind the gate, and return its last position."""
    config = _config(wire, layout, stream)
    if stream.shard is None:  # nothing runs because of an artifact, and the restore writes some
        restored = {**config, "metadata": {**config["metadata"], RESTORING_KEY: gate}}
    else:
        restored = _gated(config, gate)
    path = directory / stream.file
    if layout.namespace != manifest.namespace:
        return await _restore_renamed(wire, layout, Layout(manifest.namespace), stream, restored, path)
    await load(wire, restored, stream.state, path)
    last = await _last_of(wire, restored["name"], stream)
    if stream.shard is not None:
        end = await end_of(wire, layout, stream.shard, stream.name, last)
        await drop_end(wire, layout, stream.name, end)
    return last


async def _restore_renamed(
    wire: Wire, layout: Layout, was: Layout, stream: SavedStream, restored: Mapping[str, Any], path: Path
) -> int:
    name = restored["name"]
    apart = name.replace("FL_", "FLR_", 1)
    left_out = {"subject_transform", "allow_msg_schedules", "republish"}
    aside = {
        **{key: value for key, value in restored.items() if key not in left_out},
        "name": apart,
        "subjects": [f"apart.{restored['metadata'][RESTORING_KEY]}.{name}"],
    }
    await load(wire, aside, stream.state, path)
    last = await _last_of(wire, apart, stream)
    end = None if stream.shard is None else await end_of(wire, was, stream.shard, apart, last)
    renaming = {"src": _subjects(was, stream), "dest": _subjects(layout, stream)}
    mirror = {
        **{key: value for key, value in aside.items() if key not in {"subjects", "allow_atomic"}},
        "name": name,
        "mirror": {"name": apart, "subject_transforms": [renaming]},
    }
    await wire.api(f"STREAM.CREATE.{name}", mirror, Done)
    while (await _info(wire, name)).last < last:  # noqa: ASYNC110 - the server says nothing
        await asyncio.sleep(_POLL_S)
    if stream.shard is not None and end is not None:  # no timer may be due yet
        plain = {key: value for key, value in restored.items() if key != "allow_msg_schedules"}
        await wire.api(f"STREAM.UPDATE.{name}", {**plain, "allow_rollup_hdrs": True}, Done)
        await drop_end(wire, layout, name, end)
        timers = f"{layout.prefix(stream.shard)}.timer.>"
        await wire.api(f"STREAM.PURGE.{name}", {"filter": timers}, Done)
    await wire.api(f"STREAM.UPDATE.{name}", restored, Done)
    await wire.api(f"STREAM.DELETE.{apart}", None, Done)
    return last


async def _last_of(wire: Wire, name: str, stream: SavedStream) -> int:
    """Return the last position of a restored stream; the snapshot may have more than its state said."""
    last = (await _info(wire, name)).last
    if last < stream.last_position:
        raise LogUnavailable(
            f"the server restored {name} only to position {last} of {stream.last_position}; see its log"
        )
    return last


# --- seals ------------------------------------------------------------------------------------------------------------


async def _set_seals_again(
    wire: Wire, layout: Layout, manifest: Manifest, ends: Mapping[int | None, int]
) -> None:
    """Remove the seals of positions that were saved no more, and seal what is there.

    The artifacts are saved last, so they have seals of later appends. Under another name all seals are void, because
    they are over subjects.
    """
    renamed = layout.namespace != manifest.namespace
    if renamed:
        await _rename_notes(wire, layout, manifest)
    void: list[int] = []
    for shard in range(manifest.shards):
        last = ends[shard]
        async for message, seal in read_seals(wire, layout, shard):
            if renamed or seal is None or seal.last > last:
                void.append(message.position)
    await remove_at(wire, layout, layout.artifacts, sorted(void))
    for shard in range(manifest.shards):
        await seal_shard(wire, layout, shard, ends[shard])


async def _rename_notes(wire: Wire, layout: Layout, manifest: Manifest) -> None:
    """Note losses and removals that are known under the new names of the streams."""
    was = Layout(manifest.namespace)
    for stream in manifest.streams:
        name = _name(layout, stream)
        gone = (await removed(wire, layout, stream.name)).spans
        await note_removal(wire, layout, name, [at for first, last in gone for at in range(first, last + 1)])
        found = [each async for each in known_losses(wire, layout, _name(was, stream))]
        losses = [Loss(stream=name, shard=stream.shard, first=a, last=b, problem="") for _, a, b in found]
        await accept(wire, layout, tuple(losses))
