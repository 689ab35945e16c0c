"""The reference log passes its own conformance suites."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from foldlog.eventlog import Log, MemoryLog
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


class OnMemory(Suite):
    durable = False
    ack_wait_s = 1.5

    @pytest.fixture
    def log(self) -> Log:
        return MemoryLog(shards=2, ack_wait_s=self.ack_wait_s)

    @asynccontextmanager
    async def reopened(self, log: Log) -> AsyncIterator[Log]:
        yield MemoryLog(log.namespace, shards=2, ack_wait_s=self.ack_wait_s)


class TestEventLog(OnMemory, EventLogSuite):
    pass


class TestWakeups(OnMemory, WakeupsSuite):
    pass


class TestTimers(OnMemory, TimersSuite):
    pass


class TestLeases(OnMemory, LeasesSuite):
    @asynccontextmanager
    async def mortal(self, log: Log, worker: str) -> AsyncIterator[tuple[Log, Kill]]:
        assert isinstance(log, MemoryLog)
        memory = log

        async def kill() -> None:
            memory.disconnect(worker)

        yield log, kill


class TestDrafts(OnMemory, DraftsSuite):
    pass


class TestArtifacts(OnMemory, ArtifactsSuite):
    pass


class TestSnapshots(OnMemory, SnapshotsSuite):
    pass


class TestKeys(OnMemory, KeysSuite):
    pass
