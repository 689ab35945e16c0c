"""The log on JetStream passes the conformance suites, on a real server that syncs every write."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from foldlog.eventlog import Log
from foldlog.eventlog.conformance import (
    ArtifactsSuite,
    DraftsSuite,
    EventLogSuite,
    KeysSuite,
    LeasesSuite,
    SnapshotsSuite,
    Suite,
    TimersSuite,
    WakeupsSuite,
)
from foldlog.eventlog.conformance.leases import Kill
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server(anyio_backend: str) -> AsyncIterator[EphemeralServer]:
    async with EphemeralServer() as server:
        yield server


class OnJetStream(Suite):
    """All tests share one namespace; each has a connection of its own."""

    ack_wait_s = 2.0

    @pytest.fixture
    async def log(self, server: EphemeralServer) -> AsyncIterator[Log]:
        async with self.opened(server.url) as log:
            yield log

    @asynccontextmanager
    async def reopened(self, log: Log) -> AsyncIterator[Log]:
        assert isinstance(log, JetStreamLog)
        async with self.opened(log.url) as again:
            yield again

    @asynccontextmanager
    async def opened(self, url: str) -> AsyncIterator[JetStreamLog]:
        async with JetStreamLog.open(url, namespace="conf", shards=2, ack_wait_s=self.ack_wait_s) as log:
            yield log


class TestEventLog(OnJetStream, EventLogSuite):
    pass


class TestWakeups(OnJetStream, WakeupsSuite):
    pass


class TestTimers(OnJetStream, TimersSuite):
    pass


class TestLeases(OnJetStream, LeasesSuite):
    @asynccontextmanager
    async def mortal(self, log: Log, worker: str) -> AsyncIterator[tuple[Log, Kill]]:
        async with self.reopened(log) as mine:
            assert isinstance(mine, JetStreamLog)
            link = mine._wire._link

            async def kill() -> None:
                link.options["allow_reconnect"] = False
                link._transport._io_writer.transport.abort()

            yield mine, kill


class TestDrafts(OnJetStream, DraftsSuite):
    pass


class TestArtifacts(OnJetStream, ArtifactsSuite):
    pass


class TestSnapshots(OnJetStream, SnapshotsSuite):
    pass


class TestKeys(OnJetStream, KeysSuite):
    pass
