"""A log wrapped for faults, of which none is planned, behaves as the log that it wraps."""

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
from foldlog.eventlog.faults import FaultyLog


class OnFaulty(Suite):
    durable = True  # another wrapper is another process on the same log
    ack_wait_s = 1.5

    @pytest.fixture
    def log(self) -> Log:
        return FaultyLog(MemoryLog(shards=2, ack_wait_s=self.ack_wait_s))

    @asynccontextmanager
    async def reopened(self, log: Log) -> AsyncIterator[Log]:
        assert isinstance(log, FaultyLog)
        yield FaultyLog(log.inner)


class TestEventLog(OnFaulty, EventLogSuite):
    pass


class TestWakeups(OnFaulty, WakeupsSuite):
    pass


class TestTimers(OnFaulty, TimersSuite):
    pass


class TestLeases(OnFaulty, LeasesSuite):
    @asynccontextmanager
    async def mortal(self, log: Log, worker: str) -> AsyncIterator[tuple[Log, Kill]]:
        assert isinstance(log, FaultyLog)
        memory = log.inner
        assert isinstance(memory, MemoryLog)
        mine = FaultyLog(memory)

        async def kill() -> None:
            mine.crash()
            memory.disconnect(worker)

        yield mine, kill


class TestDrafts(OnFaulty, DraftsSuite):
    pass


class TestArtifacts(OnFaulty, ArtifactsSuite):
    pass


class TestSnapshots(OnFaulty, SnapshotsSuite):
    pass


class TestKeys(OnFaulty, KeysSuite):
    pass
