"""Taking a backup of a namespace, with writers beside it (W54, W55).

The shards are saved one after the other and the artifacts last, because an artifact is stored before the commit that
names it. Leases, drafts and snapshots of states are not saved: they are made again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from ..errors import ConfigError
from ..jetstream.layout import Layout
from ..jetstream.wire import Wire
from .manifest import FORMAT, PARTIAL, Manifest, SavedStream, write_manifest
from .snapshots import save

_PAGE = 256


class _ConsumerConfig(msgspec.Struct, frozen=True):
    durable_name: str = ""


class _Consumer(msgspec.Struct, frozen=True):
    config: _ConsumerConfig = _ConsumerConfig()


class _Consumers(msgspec.Struct, frozen=True):
    total: int = 0
    consumers: list[_Consumer] | None = None


async def take_backup(
    wire: Wire, layout: Layout, shards: int, place: Path, tell: Callable[[str], object] = lambda _line: None
) -> tuple[Path, Manifest]:
    """Save a namespace into a new directory of `place`; returns the directory and the manifest.

    `tell` gets a line for each stream. Raises `ConfigError` (the place cannot be written, or is full),
    `LogUnavailable`. What was written before an error is removed.
    """
    began_at = time.time()
    stamp = datetime.fromtimestamp(began_at, UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    directory = place / f"{layout.namespace}-{stamp}"
    partial = directory.with_name(directory.name + PARTIAL)
    try:
        partial.mkdir(parents=True, mode=0o700)
        streams: list[SavedStream] = []
        for shard in (*range(shards), None):
            streams.append(await _saved(wire, layout, shard, partial))
            tell(f"saved {streams[-1].name}: {streams[-1].messages} messages, {streams[-1].size_bytes} bytes")
        manifest = Manifest(
            format=FORMAT,
            namespace=layout.namespace,
            shards=shards,
            began_at=began_at,
            ended_at=time.time(),
            foldlog=_release(),
            server=wire.server_version,
            streams=tuple(streams),
        )
        manifest = write_manifest(partial, manifest)
        partial.rename(directory)
    except OSError as error:
        raise ConfigError(f"the backup cannot be written to {place}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return directory, manifest


async def _saved(wire: Wire, layout: Layout, shard: int | None, directory: Path) -> SavedStream:
    name = layout.artifacts if shard is None else layout.shard(shard)
    consumers = await durable_consumers(wire, name)
    file = f"{name}.s2"
    written = await save(wire, name, directory / file)
    return SavedStream(
        name=name,
        shard=shard,
        file=file,
        size_bytes=written.size_bytes,
        sha256=written.sha256,
        config=written.config,
        state=written.state,
        consumers=consumers,
    )


async def durable_consumers(wire: Wire, stream: str) -> tuple[str, ...]:
    """Return the names of a stream's durable consumers, sorted. Raises `Refused`, `LogUnavailable`."""
    names: list[str] = []
    offset = 0
    while True:
        page = await wire.api(f"CONSUMER.LIST.{stream}", {"offset": offset}, _Consumers)
        found = page.consumers or []
        names += [each.config.durable_name for each in found if each.config.durable_name]
        offset += len(found)
        if not found or offset >= page.total:
            return tuple(sorted(names))


def _release() -> str:
    try:
        return version("foldlog")
    except PackageNotFoundError:
        return ""
