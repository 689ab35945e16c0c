"""Opening a log by its URL."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

from ..eventlog.errors import ConfigError
from ..eventlog.memory import MemoryLog
from ..eventlog.ports import Log
from ..eventlog.sealing.log import sealed_log
from ..eventlog.sealing.wrapping import KeyWrapper, wrapper_at
from .ports.plugins import PROJECT, installed, made
from .ports.suggestions import nearest

KMS = "foldlog.kms"
"""The entry points of key management services: functions of the text after `kms:NAME:`."""
MEMORY = "memory://"


@contextlib.asynccontextmanager
async def open_log(
    url: str | None,
    namespace: str,
    *,
    name: str = "",
    role: str = "client",
    lease_s: float = 10.0,
    given: Log | None = None,
    seal: KeyWrapper | None = None,
) -> AsyncIterator[Log]:
    """Open the log at `url`; None is `NATS_URL`, else the embedded server of this project, started if necessary.

    `role` is that of the process, unless `FOLDLOG_ROLE` is set. `seal` wraps the keys of sealed values (default: as
    `seal_setting` has it); a namespace with sealed values is opened without it, too, but content cannot be read then.
    Raises `ConfigError`, `LogUnavailable`.
    """
    async with _opened(url, namespace, name=name, role=role, lease_s=lease_s, given=given) as log:
        yield await sealed_log(log, seal or seal_setting())


@contextlib.asynccontextmanager
async def _opened(
    url: str | None, namespace: str, *, name: str, role: str, lease_s: float, given: Log | None
) -> AsyncIterator[Log]:
    if given is not None:
        yield given
        return
    address = url or os.environ.get("NATS_URL") or None
    if address == MEMORY:
        yield MemoryLog(namespace, ack_wait_s=lease_s)
        return
    from ..eventlog.jetstream import JetStreamLog

    if address is None:
        from ..eventlog.embedded import ensure_server

        address = (await ensure_server()).url
    if "://" in address and address.split("://", 1)[0] not in {"nats", "tls", "ws", "wss"}:
        raise ConfigError(
            f"the log's URL {address!r} must begin with nats://, tls://, ws://, wss:// or memory://"
        )
    async with JetStreamLog.open(
        address, namespace=namespace, name=name, role=role, ack_wait_s=lease_s
    ) as log:
        yield log


def seal_setting() -> KeyWrapper | None:
    """Return what wraps keys: `FOLDLOG_SEAL`, else `key` of `[seal]` in the project's file; null for neither.

    Raises `ConfigError`.
    """
    source = os.environ.get("FOLDLOG_SEAL") or _configured()
    if not source:
        return None
    if not source.startswith("kms:"):
        return wrapper_at(source)
    name, _, argument = source.removeprefix("kms:").partition(":")
    found = installed(KMS)
    if name not in found:
        raise ConfigError(
            f"no plugin for the key management service {name!r} (entry point {KMS}) is installed"
            f"{nearest(name, found)}"
        )
    wrapper: KeyWrapper = made(found[name], argument)
    return wrapper


def _configured() -> str:
    reader = installed(PROJECT).get("default")
    place, table = made(reader, "seal") if reader is not None else ("", {})
    for key, value in table.items():
        if key != "key":
            raise ConfigError(f"{place}: there is no key {key!r}{nearest(key, ('key',))}")
        if not isinstance(value, str) or not value:
            raise ConfigError(
                f"{place}: key is the source of the wrapping key, such as "
                f'"env:SEAL_KEY" or "file:/run/secrets/seal", not {value!r:.60}'
            )
    return str(table.get("key", ""))
