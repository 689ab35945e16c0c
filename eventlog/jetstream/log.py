"""A namespace of a log on NATS JetStream, with its eight ports."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import anyio

from ..clock import Clock, SystemClock
from ..losses import Audit, Loss
from .artifacts import JetStreamArtifacts
from .audit import audit
from .drafts import JetStreamDrafts
from .events import JetStreamEvents
from .keys import JetStreamKeys
from .known_losses import accept
from .layout import Layout
from .leases import JetStreamLeases
from .opening import Namespace, check_server, role_setting
from .snapshots import JetStreamSnapshots
from .timers import JetStreamTimers
from .wakeups import JetStreamWakeups
from .wire import Wire

_CLOSE_S = 2.0


class JetStreamLog:
    """`Log` on a NATS server or cluster. Open it with `JetStreamLog.open`."""

    def __init__(
        self,
        wire: Wire,
        layout: Layout,
        keeper: Namespace,
        *,
        shards: int,
        clock: Clock,
        ack_wait_s: float,
        gate: str,
    ) -> None:
        self._wire, self._layout = wire, layout
        self.namespace = layout.namespace
        self.clock = clock
        self.events = JetStreamEvents(wire, layout, shards, gate)
        self.wakeups = JetStreamWakeups(wire, layout, self.events, ack_wait_s)
        self.timers = JetStreamTimers(wire, layout, self.events)
        self.leases = JetStreamLeases(wire, layout, keeper)
        self.drafts = JetStreamDrafts(wire, layout)
        self.artifacts = JetStreamArtifacts(wire, layout)
        self.snapshots = JetStreamSnapshots(wire, layout)
        self.keys = JetStreamKeys(wire, layout, keeper, clock)

    @property
    def url(self) -> str:
        """The address of the server, without credentials."""
        return self._wire.url

    @property
    def servers(self) -> tuple[str, ...]:
        """The URLs of the servers with their credentials, for further connections of this process. Never show them."""
        return self._wire.servers

    async def audit(self) -> Audit:
        """Read every stream of the namespace and account for each position. Raises `LogUnavailable`."""
        return await audit(self._wire, self._layout, self.events.shards)

    async def accept(self, losses: tuple[Loss, ...]) -> None:
        """Record that these losses are accepted. Raises `LogUnavailable`."""
        await accept(self._wire, self._layout, losses)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(  # noqa: PLR0913 - the options
        cls,
        url: str,
        *,
        namespace: str = "default",
        shards: int | None = None,
        clock: Clock | None = None,
        ack_wait_s: float = 30.0,
        name: str = "",
        role: str = "client",
        connect_timeout_s: float = 5.0,
        request_timeout_s: float = 5.0,
        gate: str = "",
    ) -> AsyncIterator[JetStreamLog]:
        """Connect, create the namespace if it does not exist, and close the connection at the end.

        - `url` may name several servers of a cluster, separated by commas, and contain credentials; `NATS_CREDS` names
          a credentials file.
        - `shards` (1 to 256, default 4) is fixed when the namespace is created; None takes the existing number.
        - `FOLDLOG_REPLICAS` is the number of replicas of each stream in a cluster, default 3, and
          `FOLDLOG_COMPRESSION` the compression of new streams on disk: s2, or none (default).
        - `ack_wait_s` is the time without a heartbeat after which a wake-up is redelivered.
        - `name` is the name of the connection at the server.
        - `gate` opens a namespace that is being restored from a backup, to which only the holder of its gate can write.
        - Replies come to subjects that begin with `_INBOX.<namespace>.<role>`; `FOLDLOG_ROLE` overrides `role`.

        Raises `LogUnavailable` if no server replies within `connect_timeout_s`, and `ConfigError` if a server cannot
        be used: credentials refused, too old, without JetStream, created with another number of shards.
        """
        layout = Layout(namespace)
        wire = await Wire.open(
            url,
            inbox=layout.inbox(role_setting(role)),
            name=name,
            connect_timeout_s=connect_timeout_s,
            request_timeout_s=request_timeout_s,
        )
        try:
            check_server(wire)
            keeper = Namespace(wire, layout, gate)
            found = await keeper.settle(shards, connect_timeout_s)
            with keeper.kept():
                log = cls(
                    wire,
                    layout,
                    keeper,
                    shards=found,
                    clock=clock or SystemClock(),
                    ack_wait_s=ack_wait_s,
                    gate=gate,
                )
                try:
                    yield log
                finally:
                    with anyio.move_on_after(_CLOSE_S, shield=True):
                        await log.events.sealer.close()
        finally:
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await wire.close()
