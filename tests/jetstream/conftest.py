"""A server for each test, which may do it any harm; a log on it, and a way to it that can break."""

from collections.abc import AsyncIterator

import pytest
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog

from tests.jetstream.support import Gate, opened


@pytest.fixture
async def server() -> AsyncIterator[EphemeralServer]:
    async with EphemeralServer() as server:
        yield server


@pytest.fixture
def shards() -> int:
    """Number of shards of the log, which a module may override."""
    return 2


@pytest.fixture
async def log(server: EphemeralServer, shards: int) -> AsyncIterator[JetStreamLog]:
    async with opened(server.url, shards=shards) as log:
        yield log


@pytest.fixture
async def gate(server: EphemeralServer) -> AsyncIterator[Gate]:
    async with Gate(server.port) as gate:
        yield gate
