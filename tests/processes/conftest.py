"""A real server, processes that start at once, and for each test a namespace and a directory of its own."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from foldlog.eventlog.embedded import EphemeralServer

from tests.processes.support import Nursery, Place

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
async def nursery(anyio_backend: str) -> AsyncIterator[Nursery]:
    async with Nursery() as nursery:
        yield nursery


@pytest.fixture(scope="module")
async def server(anyio_backend: str) -> AsyncIterator[EphemeralServer]:
    """Shared by the tests of a module that do it no harm."""
    async with EphemeralServer() as server:
        yield server
        server.kill()  # a clean end takes a tenth of a second for each namespace


@pytest.fixture
async def place(
    server: EphemeralServer, nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Place]:
    monkeypatch.setenv("WORKSHOP", str(tmp_path))
    async with Place(server.url, f"test-{next(_numbers)}", tmp_path, nursery).opened() as place:
        yield place
