"""Opening a log by its URL."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

from ..eventlog.errors import ConfigError
from ..eventlog.memory import MemoryLog
from ..eventlog.ports import Log

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
) -> AsyncIterator[Log]:
    """Open the log at `url`; None is `NATS_URL`, else the embedded server of this project, started if necessary.

    `role` is that of the process, unless `FOLDLOG_ROLE` is set.
    Raises `ConfigError`, `LogUnavailable`.
    """
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
