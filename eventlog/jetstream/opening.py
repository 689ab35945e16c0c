"""Creating a namespace, or finding an existing one.

The metadata of each shard's stream has the number of shards. The first shard's stream is created last: once it exists,
all do, and one that is missing later was lost. A process that opens the namespace at the same time with the same number
finds the same streams; with another number it gets an error that names both.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from typing import Any

import msgspec

from ..errors import ConfigError, LogCorrupted, LogUnavailable
from ..names import SHARDS_MAX
from .layout import RESTORING_KEY, SHARDS_KEY, Layout
from .wire import NoResponders, Refused, Wire

VERSION_MIN = (2, 12)
SHARDS_DEFAULT = 4
REPLICAS_IN_CLUSTER = 3

_STREAM_NOT_FOUND = 10059
_OTHER_CONFIG = 10058
_NO_JETSTREAM = {10039, 10076}
_TOO_FEW_SERVERS = {10005, 10074}
_RETRY_S = 0.1


class _Config(msgspec.Struct, frozen=True):
    metadata: dict[str, str] = {}
    persist_mode: str = ""


class _StreamInfo(msgspec.Struct, frozen=True):
    config: _Config


def check_server(wire: Wire) -> None:
    """Raise `ConfigError` unless the server can store a log."""
    numbers = wire.server_version.split("-")[0].split(".")
    version = tuple(int(part) for part in numbers if part.isdigit())
    if version < VERSION_MIN:
        needed = ".".join(map(str, VERSION_MIN))
        raise ConfigError(
            f"the NATS server at {wire.url} is {wire.server_version}; foldlog needs {needed} or newer"
        )
    if not wire.has_jetstream:
        raise _no_jetstream(wire)
    if wire.lacks_tls:
        raise ConfigError(f"the URL {wire.url} requires TLS, which the server does not offer")


def replicas_setting() -> int | None:
    """Return `FOLDLOG_REPLICAS`, None if it is not set. Raises `ConfigError` for anything but 1 to 5."""
    given = os.environ.get("FOLDLOG_REPLICAS")
    if not given:
        return None
    if given not in {"1", "2", "3", "4", "5"}:
        raise ConfigError(f"FOLDLOG_REPLICAS is {given!r}; it can be 1 to 5")
    return int(given)


def role_setting(default: str) -> str:
    """Return `FOLDLOG_ROLE`, the role of the user at the server, which is part of reply subjects."""
    return os.environ.get("FOLDLOG_ROLE") or default


def compression_setting() -> str | None:
    """Return `FOLDLOG_COMPRESSION`, None if it is not set. Raises `ConfigError` for anything but none and s2."""
    given = os.environ.get("FOLDLOG_COMPRESSION")
    if not given:
        return None
    if given not in {"none", "s2"}:
        raise ConfigError(f"FOLDLOG_COMPRESSION is {given!r}; it can be none or s2")
    return given


class Namespace:
    """The streams of a namespace on a server."""

    def __init__(self, wire: Wire, layout: Layout, gate: str = "") -> None:
        self._wire = wire
        self._gate = gate
        self._layout = layout
        self._replicas = replicas_setting() or (REPLICAS_IN_CLUSTER if wire.clustered else 1)
        self._compression = compression_setting() or "none"
        self._healing: asyncio.Task[None] | None = None

    async def settle(self, shards: int | None, timeout_s: float) -> int:
        """Create missing streams and return the number of shards, with retries for `timeout_s`.

        Raises `ConfigError` (another number of shards, no JetStream, a stream that must not be used), `LogUnavailable`,
        `LogCorrupted` (a shard is lost).
        """
        if shards is not None and not 1 <= shards <= SHARDS_MAX:
            raise ConfigError(f"shards is {shards}; it can be 1 to {SHARDS_MAX}")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            try:
                return await self._settle(shards)
            except LogUnavailable:
                if loop.time() >= deadline:
                    raise
                await asyncio.sleep(_RETRY_S)

    async def _settle(self, shards: int | None) -> int:
        found = await self._noted(0)
        if found is None:
            await self._must_be_new()
            found = await self._found(shards)
        else:
            await asyncio.gather(*(self._must_be(shard) for shard in range(1, found)))
        self._check_number(shards, found)
        await asyncio.gather(
            self._ensure(self._layout.artifacts_config(found, self._replicas)),
            self._ensure(self._layout.snapshots_config(self._replicas)),
            self._make_volatile(),
        )
        return found

    def _check_number(self, shards: int | None, found: int) -> None:
        if shards is not None and shards != found:
            raise ConfigError(
                f"the namespace {self._layout.namespace!r} was created with shards={found}, which cannot be changed, "
                f"and is opened with shards={shards}: omit the number, or use another namespace"
            )

    async def _noted(self, shard: int) -> int | None:
        """Return the number of shards in the metadata of this shard's stream, None if there is no such stream."""
        stream = self._layout.shard(shard)
        try:
            info = await self._info(stream)
        except NoResponders:
            if self._wire.clustered:
                raise  # no leader yet
            raise _no_jetstream(self._wire) from None
        if info is None:
            return None
        self._must_not_be_restored(info)
        noted = info.config.metadata.get(SHARDS_KEY, "")
        if not noted.isdigit():
            raise ConfigError(
                f"the stream {stream} at {self._wire.url} was not created by foldlog: it lacks {SHARDS_KEY}"
            )
        return int(noted)

    def _must_not_be_restored(self, info: _StreamInfo) -> None:
        if info.config.metadata.get(RESTORING_KEY, self._gate) != self._gate:
            raise LogUnavailable(
                f"the namespace {self._layout.namespace!r} at {self._wire.url} is being restored from a backup: wait "
                "for the end of `foldlog backup restore`, or run it again if it was killed"
            )

    async def _found(self, wanted: int | None) -> int:
        """Create the shards, the first one last; returns their number, perhaps that of a process that was earlier."""
        shards = wanted or SHARDS_DEFAULT
        shard = shards - 1
        while shard >= 0:
            try:
                await self._create(self._layout.shard_config(shard, shards, self._replicas))
            except Refused as refused:
                if refused.err_code != _OTHER_CONFIG:
                    raise
                noted = await self._noted(shard) or shards
                self._check_number(wanted, noted)
                if noted != shards:
                    shards = shard = noted  # and one less, below
            shard -= 1
        return shards

    async def _must_be_new(self) -> None:
        """Raise `LogCorrupted` if streams exist that are created only after the first shard, which is missing.

        A restore makes it last: while that is under way, it is `LogUnavailable`.
        """
        later = [await self._info(stream) for stream in (self._layout.artifacts, self._layout.snapshots)]
        found = [info for info in later if info is not None]
        if found and await self._noted(0) is None:
            for info in found:
                self._must_not_be_restored(info)
            await self._must_be(0)

    async def _must_be(self, shard: int) -> None:
        """Raise `LogCorrupted` if this shard of a completely created namespace is missing; it must not start again."""
        stream = self._layout.shard(shard)
        if await self._info(stream) is None:
            raise LogCorrupted(
                f"(any of shard {shard})", 0, f"there is no stream {stream} at {self._wire.url}"
            )

    async def _info(self, stream: str) -> _StreamInfo | None:
        try:
            info = await self._wire.api(f"STREAM.INFO.{stream}", None, _StreamInfo)
        except Refused as refused:
            if refused.err_code in _NO_JETSTREAM:
                raise _no_jetstream(self._wire) from refused
            if refused.err_code == _STREAM_NOT_FOUND:
                return None
            raise
        if info.config.persist_mode == "async":
            raise ConfigError(
                f"the stream {stream} at {self._wire.url} has persist_mode async, which loses acknowledged events: "
                "create it again without"
            )
        return info

    async def _ensure(self, config: dict[str, Any]) -> None:
        """Create a stream unless it exists. An existing one keeps the configuration of its operator."""
        if await self._info(config["name"]) is None:
            try:
                await self._create(config)
            except Refused as refused:
                if refused.err_code != _OTHER_CONFIG:
                    raise

    async def _create(self, config: dict[str, Any]) -> None:
        if config["storage"] == "file":
            config = {**config, "compression": self._compression}
        try:
            await self._wire.api(f"STREAM.CREATE.{config['name']}", config, _StreamInfo)
        except Refused as refused:
            if refused.err_code in _TOO_FEW_SERVERS:
                raise LogUnavailable(
                    f"the cluster at {self._wire.url} has no room for {config['num_replicas']} replicas of a stream "
                    f"({refused.description}): start all its servers, or set FOLDLOG_REPLICAS"
                ) from refused
            raise

    async def make_keys(self) -> None:
        """Create the stream of wrapped keys, which only a namespace with sealed values has. Raises `LogUnavailable`."""
        await self._ensure(self._layout.keys_config(self._replicas))

    async def _make_volatile(self) -> None:
        """Create the memory streams, which a single server forgets when it restarts."""
        await asyncio.gather(
            self._ensure(self._layout.leases_config(self._replicas)),
            self._ensure(self._layout.drafts_config()),
        )

    async def heal(self) -> None:
        """Create the memory streams again; concurrent callers share one attempt. Raises `LogUnavailable`."""
        await asyncio.shield(self._heal())

    def _heal(self) -> asyncio.Task[None]:
        if self._healing is None or self._healing.done():
            self._healing = asyncio.ensure_future(self._make_volatile())
            self._healing.add_done_callback(_looked_at)
        return self._healing

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Heal after each reconnect, until the context is left."""
        self._wire.on_up.add(self._heal)
        try:
            yield
        finally:
            self._wire.on_up.discard(self._heal)
            if self._healing is not None:
                self._healing.cancel()


def _looked_at(task: asyncio.Task[None]) -> None:
    """Mark the exception as retrieved: a failed attempt matters only to its callers; the next one tries again."""
    if not task.cancelled():
        task.exception()


def _no_jetstream(wire: Wire) -> ConfigError:
    return ConfigError(
        f"the NATS server at {wire.url} has no JetStream (for this account): start it with `-js`, or with a "
        "`jetstream` block in its configuration"
    )
